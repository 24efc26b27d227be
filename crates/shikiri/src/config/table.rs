//! The entries of the table of settings, and the macro that generates from the table the settings
//! of one source ([`Settings`]) and the configuration ([`Config`]).

use std::path::Path;

use clap::{Arg, ArgMatches};

use super::layers::Layers;
pub use super::settings::GROUPS;
use super::{Config, Settings, Surroundings};
use crate::exit::Failure;
use crate::trust::ConfigUse;

/// One setting. The functions reach its place in [`Settings`] and [`Config`].
pub struct Setting {
    pub key: &'static str,
    /// One sentence, without the default.
    pub help: &'static str,
    /// Further sentences for the reference.
    pub details: &'static [&'static str],
    /// The first one that is set counts.
    pub variables: &'static [&'static str],
    /// The written form of its value, for the reference.
    pub form: fn() -> String,
    pub default_text: DefaultText,
    pub flag: Option<Flag>,
    pub project: ProjectRule,
    /// Reads its variables.
    pub(super) read: fn(&'static Setting, &Surroundings<'_>, &mut Settings) -> Result<(), Failure>,
    /// Validates the strongest source's value and stores it in the configuration.
    pub(super) apply: fn(&'static Setting, &Layers, &mut Config) -> Result<(), Failure>,
    /// The effective value; empty if there is none.
    pub show: fn(&Config) -> String,
    pub is_set: fn(&Settings) -> bool,
    pub clear: fn(&mut Settings),
    /// The value as shown to a person who is asked for trust; None if it is unset or requests
    /// nothing.
    pub request: fn(&Settings, &Path) -> Option<String>,
}

/// How the help and the reference state the default.
pub enum DefaultText {
    /// The value itself.
    Value,
    Shown(&'static str),
    /// The help does not mention it.
    ReferenceOnly(fn() -> String),
}

/// Whether a project's own file may set it (`docs/decisions/0019`).
pub enum ProjectRule {
    Free,
    /// After trust. Holds the commands that use it, and its effect in words.
    Guarded(ConfigUse, &'static str),
    /// Never from a project's file, only from flags, the environment and the person's own
    /// configuration.
    Never,
}

/// The commands that have the flag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlagScope {
    Global,
    Serve,
    /// Commands that ask providers: `serve`, `mcp` and `browser`.
    Browser,
}

pub struct Flag {
    pub scope: FlagScope,
    /// Such as `--listen <IP:PORT>`.
    pub usage: &'static str,
    /// In it, `[default]` stands for the default.
    pub help: &'static str,
    pub(super) argument: fn(Arg) -> Arg,
    pub(super) take: fn(&str, &ArgMatches, &mut Settings),
}

impl Setting {
    pub fn all() -> impl Iterator<Item = &'static Self> {
        GROUPS.iter().flat_map(|(_, settings)| settings.iter())
    }

    /// The help of its first variable.
    pub fn about(&self) -> String {
        match self.default_in_help() {
            default if default.is_empty() => self.help.to_owned(),
            default => format!("{} [{default}]", self.help),
        }
    }

    pub(super) fn default_in_help(&self) -> String {
        match self.default_text {
            DefaultText::Value => (self.show)(&Config::for_help()),
            DefaultText::Shown(text) => text.to_owned(),
            DefaultText::ReferenceOnly(_) => String::new(),
        }
    }
}

/// The given tokens, or else a default.
macro_rules! given_or {
    ((), $default:expr) => {
        $default
    };
    (($($given:tt)+), $default:expr) => {
        $($given)+
    };
}

macro_rules! settings {
    ($($title:literal { $(
        $(#[doc = $detail:literal])*
        $key:ident {
            help: $help:literal,
            variables: [$($variable:literal),+],
            kind: $kind:ty,
            $(field: $field:ident: $field_type:ty = $default:expr,)?
            $(sets: $($place:ident).+,)?
            $(default: $default_text:expr,)?
            $(flag: $scope:ident $usage:literal $flag_help:literal,)?
            $(project: $project:expr,)?
        }
    )* })*) => {
        /// What one source says; the keys of the configuration files.
        #[derive(Clone, Debug, Default, PartialEq, serde::Deserialize, schemars::JsonSchema)]
        #[serde(deny_unknown_fields)]
        pub struct Settings {
            $($(pub $key: Option<<$kind as SettingKind>::Written>,)*)*
        }

        impl Settings {
            /// These values; where there are none, those of a weaker source.
            pub fn or(self, weaker: Self) -> Self {
                Self { $($($key: self.$key.or(weaker.$key),)*)* }
            }
        }

        /// The effective settings, all checked.
        #[derive(Clone, Debug)]
        pub struct Config {
            /// The project's folder, in the main worktree of a git repository.
            pub root: std::path::PathBuf,
            /// The same folder in the worktree at hand.
            pub checkout: std::path::PathBuf,
            pub store: $crate::store_url::StoreUrl,
            pub runtime: shikiri_runtime::RuntimeOptions,
            pub executions: shikiri_executions::ExecutionOptions,
            pub team: shikiri_model::team::TeamLimits,
            pub lanes: shikiri_lanes::LaneOptions,
            /// The resource limits of one run of Claude Code.
            pub engine_limits: shikiri_sandbox::SandboxLimits,
            pub browser: $crate::config::BrowserSettings,
            /// With the key that seals secrets, if not in the data folder.
            pub sealing_key_file: Option<std::path::PathBuf>,
            /// Whether the project's own files count.
            pub trust: $crate::trust::ProjectTrust,
            $($($(
                #[doc = $help]
                pub $field: $field_type,
            )?)*)*
        }

        impl Config {
            /// The values that apply if no source sets any.
            pub(super) fn defaults(
                root: std::path::PathBuf,
                has_display: bool,
                trust: $crate::trust::ProjectTrust,
            ) -> Self {
                let project = root.file_name().map(|name| name.to_string_lossy().into_owned());
                Self {
                    store: $crate::store_url::StoreUrl::Sqlite(root.join(".shikiri/state.db")),
                    runtime: Default::default(),
                    executions: Default::default(),
                    team: Default::default(),
                    lanes: shikiri_lanes::LaneOptions {
                        project: project.unwrap_or_default(),
                        ..Default::default()
                    },
                    engine_limits: Default::default(),
                    browser: $crate::config::BrowserSettings::new(has_display),
                    sealing_key_file: None,
                    trust,
                    checkout: root.clone(),
                    root,
                    $($($($field: $default,)?)*)*
                }
            }
        }

        /// All settings, as the reference groups them.
        pub static GROUPS: &[(&str, &[$crate::config::table::Setting])] = &[
            $(($title, &[$($crate::config::table::Setting {
                key: stringify!($key),
                help: $help,
                details: &[$($detail),*],
                variables: &[$($variable),+],
                form: <$kind as SettingKind>::form,
                default_text: $crate::config::table::given_or!(
                    ($($default_text)?), $crate::config::table::DefaultText::Value
                ),
                flag: $crate::config::table::given_or!(
                    ($(Some($crate::config::table::Flag {
                        scope: $crate::config::table::FlagScope::$scope,
                        usage: $usage,
                        help: $flag_help,
                        argument: <<$kind as SettingKind>::Written
                            as $crate::config::flags::FlagValue>::argument,
                        take: |id, matches, settings| {
                            settings.$key = $crate::config::flags::FlagValue::take(matches, id);
                        },
                    }))?),
                    None
                ),
                project: $crate::config::table::given_or!(
                    ($($project)?), $crate::config::table::ProjectRule::Free
                ),
                read: |setting, surroundings, settings| {
                    settings.$key =
                        $crate::config::layers::read_variables(setting, surroundings)?;
                    Ok(())
                },
                apply: |setting, layers, config| {
                    let found = layers.find(setting, |settings| settings.$key.clone());
                    if let Some((written, source)) = found {
                        let value = <$kind as SettingKind>::check(written, &source)?;
                        config.$($field)?$($($place).+)? = value.into();
                    }
                    Ok(())
                },
                show: |config| {
                    let value = $crate::config::kinds::Held::<<$kind as SettingKind>::Value>::get(
                        &config.$($field)?$($($place).+)?
                    );
                    value.map(<$kind as SettingKind>::show).unwrap_or_default()
                },
                is_set: |settings| settings.$key.is_some(),
                clear: |settings| settings.$key = None,
                request: |settings, root| {
                    <$kind as SettingKind>::request(settings.$key.as_ref()?, root)
                },
            },)*]),)*
        ];
    };
}

pub(super) use {given_or, settings};
