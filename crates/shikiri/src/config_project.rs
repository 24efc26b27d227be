//! The project's own configuration file, as far as it counts.

use std::io;
use std::path::Path;

use crate::config::{Settings, Surroundings};
use crate::config_layers::{Layer, Origin, parse_settings};
use crate::exit::{Exit, Failure};
use crate::trust::{ConfigUse, GUARDED_KEYS, ProjectTrust, read_project_file, settings_request};

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
        .map_err(|what| Failure::usage(format!("{} {what}", path.display()), "correct the file"))?;
    if let Some(key) = forbidden.first().filter(|_| uses.contains(&ConfigUse::Engines)) {
        let what = format!("`{key}` in {} never counts", path.display());
        let next = "take it out; set it by flag, environment or your own configuration";
        return Err(Failure::new(Exit::Refused, what, next));
    }
    let request = settings_request(&text, &settings, root);
    let used: Vec<&str> = GUARDED_KEYS
        .iter()
        .filter(|key| uses.contains(&key.used_for))
        .filter(|key| !stronger.iter().any(|layer| (key.is_set)(&layer.settings)))
        .filter(|key| request.entries.iter().any(|entry| entry.name == key.name))
        .map(|key| key.name)
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
    let asked = GUARDED_KEYS.iter().filter(|key| names.contains(&key.name));
    asked.for_each(|key| (key.clear)(settings));
}

/// Whether a command that drives a browser may follow the project's description of the pages.
pub(crate) fn require_providers(trust: &ProjectTrust) -> Result<(), Failure> {
    match trust.request(crate::trust::ProjectFile::Providers) {
        Some(request) => trust.require(&request, &request.names()),
        None => Ok(()),
    }
}

/// The project's folder: the one that is named, else found upwards from the current one.
pub(crate) fn find_root(surroundings: &Surroundings<'_>) -> Option<std::path::PathBuf> {
    surroundings.current_folder.as_deref().map(shikiri_hook::place::find_root)
}
