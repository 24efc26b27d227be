//! The project's own configuration file, as far as it is trusted.

use std::io;
use std::path::Path;

use super::Settings;
use super::layers::{CORRECT_FILE, Layer, Origin, parse_settings};
use super::table::Setting;
use crate::exit::{Exit, Failure};
use crate::trust::{
    ConfigUse, ProjectTrust, guarded_settings, read_project_file, settings_request,
};

/// The layer of `<root>/shikiri.toml`, None if there is no such file. Its guarded keys are in it
/// only after trust. The person is asked if the command uses one that no stronger layer sets.
pub(crate) fn project_layer(
    path: &Path,
    root: &Path,
    stronger: &[Layer],
    uses: &[ConfigUse],
    trust: &ProjectTrust,
) -> Result<Option<Layer>, Failure> {
    let text = match read_project_file(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => {
            let what = format!("cannot read {}: {error}", path.display());
            return Err(Failure::new(Exit::Unavailable, what, "make it readable or remove it"));
        }
    };
    let (mut settings, forbidden) = parse_settings(&text)
        .map_err(|what| Failure::usage(format!("{} {what}", path.display()), CORRECT_FILE))?;
    if let Some(key) = forbidden.first().filter(|_| uses.contains(&ConfigUse::Engines)) {
        let what = format!("`{key}` in {} never counts", path.display());
        let next = "take it out; set it by flag, environment or your own configuration";
        return Err(Failure::new(Exit::Refused, what, next));
    }
    let request = settings_request(&text, &settings, root);
    let used: Vec<&str> = guarded_settings()
        .filter(|(_, used_for, _)| uses.contains(used_for))
        .filter(|(setting, ..)| !stronger.iter().any(|layer| (setting.is_set)(&layer.settings)))
        .filter(|(setting, ..)| request.entries.iter().any(|entry| entry.name == setting.key))
        .map(|(setting, ..)| setting.key)
        .collect();
    if !used.is_empty() {
        trust.require(&request, &used)?;
    } else if !trust.accepts(&request).unwrap_or(false) {
        clear_guarded(&mut settings, &request.names());
    }
    let folder = path.parent().map(Path::to_owned).unwrap_or_default();
    Ok(Some(Layer { origin: Origin::File(path.to_owned()), settings, folder }))
}

fn clear_guarded(settings: &mut Settings, names: &[&str]) {
    let asked = Setting::all().filter(|setting| names.contains(&setting.key));
    asked.for_each(|setting| (setting.clear)(settings));
}

/// Whether a command that drives a browser may follow the project's description of the pages.
pub(crate) fn require_providers(trust: &ProjectTrust) -> Result<(), Failure> {
    match trust.request(crate::trust::ProjectFile::Providers) {
        Some(request) => trust.require(&request, &request.names()),
        None => Ok(()),
    }
}
