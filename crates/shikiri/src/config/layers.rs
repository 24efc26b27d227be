//! The sources of settings, each as one layer, and the files as layers.

use std::io;
use std::path::{Path, PathBuf};

use super::table::{ProjectRule, Setting};
use super::written::{FromVariable, Variable};
use super::{Settings, Surroundings};
use crate::exit::{Exit, Failure};
use crate::near_name::nearest;

pub(crate) struct Layer {
    pub(crate) origin: Origin,
    pub(crate) settings: Settings,
    /// The base of relative paths in this layer.
    pub(crate) folder: PathBuf,
}

pub(crate) enum Origin {
    Flag,
    Environment,
    File(PathBuf),
}

/// The layers, strongest first.
pub(crate) struct Layers(pub(crate) Vec<Layer>);

impl Layers {
    /// A setting's value in the strongest layer that has one.
    pub(super) fn find<T>(
        &self,
        setting: &'static Setting,
        value: impl Fn(&Settings) -> Option<T>,
    ) -> Option<(T, Source<'_>)> {
        self.0.iter().find_map(|layer| Some((value(&layer.settings)?, Source { setting, layer })))
    }
}

/// Where a value comes from.
pub struct Source<'a> {
    setting: &'static Setting,
    pub(super) layer: &'a Layer,
}

impl Source<'_> {
    /// The setting's name in messages.
    pub(super) fn name(&self) -> String {
        match (&self.layer.origin, &self.setting.flag) {
            (Origin::Flag, Some(flag)) => flag.name().to_owned(),
            (Origin::Flag, None) => self.setting.key.to_owned(),
            (Origin::Environment, _) => self.setting.variables[0].to_owned(),
            (Origin::File(path), _) => format!("`{}` in {}", self.setting.key, path.display()),
        }
    }

    pub(super) fn complaint(&self, what: &str, next: &str) -> Failure {
        Failure::usage(format!("{}: {what}", self.name()), next)
    }
}

pub(crate) fn environment_layer(
    surroundings: &Surroundings<'_>,
    folder: PathBuf,
) -> Result<Layer, Failure> {
    let mut settings = Settings::default();
    for setting in Setting::all() {
        (setting.read)(setting, surroundings, &mut settings)?;
    }
    Ok(Layer { origin: Origin::Environment, settings, folder })
}

/// The first variable of a setting that is set.
pub(super) fn read_variables<T: FromVariable>(
    setting: &'static Setting,
    surroundings: &Surroundings<'_>,
) -> Result<Option<T>, Failure> {
    let found = setting.variables.iter().find_map(|name| {
        surroundings.variable(name).map(|value| Variable { setting, name, value })
    });
    found.map(T::from_variable).transpose()
}

/// The next step for a file with a mistake.
pub(super) const CORRECT_FILE: &str = "correct the file; `shikiri schema config` has its keys";

/// None if there is no such file.
pub(crate) fn file_layer(path: &Path) -> Result<Option<Layer>, Failure> {
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => {
            let what = format!("cannot read {}: {error}", path.display());
            return Err(Failure::new(Exit::Unavailable, what, "make it readable or remove it"));
        }
    };
    let settings = settings_of(&text)
        .map_err(|error| Failure::usage(format!("{} {error}", path.display()), CORRECT_FILE))?;
    let folder = path.parent().map(Path::to_owned).unwrap_or_default();
    Ok(Some(Layer { origin: Origin::File(path.to_owned()), settings, folder }))
}

/// What is wrong in a settings file, and where.
#[derive(Debug, thiserror::Error)]
#[error("line {line}: {message}")]
pub(crate) struct SettingsError {
    line: usize,
    message: String,
}

fn settings_of(text: &str) -> Result<Settings, SettingsError> {
    toml::from_str(text).map_err(|error| SettingsError {
        line: error.span().map_or(1, |span| 1 + text[..span.start].matches('\n').count()),
        message: with_near_key(error.message()),
    })
}

/// For an unknown key the one that was probably meant, else all.
fn with_near_key(message: &str) -> String {
    let unknown = message.strip_prefix("unknown field `").and_then(|rest| rest.split_once('`'));
    let near =
        unknown.and_then(|(key, _)| Some((key, nearest(key, Setting::all().map(|s| s.key))?)));
    match near {
        Some((key, near)) => format!("unknown field `{key}`, did you mean `{near}`?"),
        None => message.to_owned(),
    }
}

/// The settings of a project's file, and the keys in it that never count there.
pub(crate) fn parse_settings(text: &str) -> Result<(Settings, Vec<&'static str>), SettingsError> {
    let mut settings = settings_of(text)?;
    let never = Setting::all().filter(|setting| matches!(setting.project, ProjectRule::Never));
    let forbidden: Vec<_> = never.filter(|setting| (setting.is_set)(&settings)).collect();
    forbidden.iter().for_each(|setting| (setting.clear)(&mut settings));
    Ok((settings, forbidden.iter().map(|setting| setting.key).collect()))
}
