//! The flags of settings.

use std::marker::PhantomData;

use clap::builder::EnumValueParser;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};

use super::table::{Flag, FlagScope, Setting};
use super::{LogFormat, Settings};

/// Behind a command's own options.
const LAST: usize = 900;

/// A type of flag values.
pub(super) trait FlagValue: Sized {
    fn argument(argument: Arg) -> Arg;
    fn take(matches: &ArgMatches, id: &str) -> Option<Self>;
}

impl FlagValue for String {
    fn argument(argument: Arg) -> Arg {
        argument.action(ArgAction::Set)
    }

    fn take(matches: &ArgMatches, id: &str) -> Option<Self> {
        matches.get_one(id).cloned()
    }
}

impl FlagValue for bool {
    fn argument(argument: Arg) -> Arg {
        argument.action(ArgAction::SetTrue)
    }

    fn take(matches: &ArgMatches, id: &str) -> Option<Self> {
        matches.get_flag(id).then_some(true)
    }
}

impl FlagValue for Vec<String> {
    fn argument(argument: Arg) -> Arg {
        argument.action(ArgAction::Append)
    }

    fn take(matches: &ArgMatches, id: &str) -> Option<Self> {
        Some(matches.get_many(id)?.cloned().collect())
    }
}

impl FlagValue for LogFormat {
    fn argument(argument: Arg) -> Arg {
        argument.action(ArgAction::Set).value_parser(EnumValueParser::<Self>::new())
    }

    fn take(matches: &ArgMatches, id: &str) -> Option<Self> {
        matches.get_one(id).copied()
    }
}

impl Flag {
    /// `--listen` of `--listen <IP:PORT>`.
    pub fn name(&self) -> &'static str {
        self.usage.split_once(' ').map_or(self.usage, |(name, _)| name)
    }

    fn argument(&self, setting: &Setting) -> Arg {
        let default = format!("[default: {}]", setting.default_in_help());
        let mut argument = Arg::new(setting.key)
            .long(self.name().trim_start_matches('-'))
            .help(self.help.replace("[default]", &default))
            .global(self.scope == FlagScope::Global);
        if self.scope == FlagScope::Global {
            argument = argument.display_order(LAST).help_heading("Common options");
        }
        if let Some((_, value)) = self.usage.split_once(' ') {
            argument = argument.value_name(value.trim_matches(['<', '>']));
        }
        (self.argument)(argument)
    }
}

/// The flags of a group of commands, to be flattened into their arguments.
#[derive(Clone)]
pub struct SettingFlags<S> {
    pub settings: Settings,
    scope: PhantomData<S>,
}

/// The commands that [`SettingFlags`] belong to.
pub trait OfCommands {
    const SCOPE: FlagScope;
}

macro_rules! flags_of {
    ($($scope:ident => $alias:ident),+) => {
        $(
            #[derive(Clone)]
            pub struct $scope;
            impl OfCommands for $scope {
                const SCOPE: FlagScope = FlagScope::$scope;
            }
            pub type $alias = SettingFlags<$scope>;
        )+
    };
}

flags_of!(Global => GlobalFlags, Serve => ServeFlags, Browser => BrowserFlags);

fn flags_in(scope: FlagScope) -> impl Iterator<Item = (&'static Setting, &'static Flag)> {
    let flags = Setting::all().filter_map(|setting| Some((setting, setting.flag.as_ref()?)));
    flags.filter(move |(_, flag)| flag.scope == scope)
}

impl<S: OfCommands> Args for SettingFlags<S> {
    fn augment_args(command: Command) -> Command {
        command.args(flags_in(S::SCOPE).map(|(setting, flag)| flag.argument(setting)))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl<S: OfCommands> FromArgMatches for SettingFlags<S> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut settings = Settings::default();
        for (setting, flag) in flags_in(S::SCOPE) {
            (flag.take)(setting.key, matches, &mut settings);
        }
        Ok(Self { settings, scope: PhantomData })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}
