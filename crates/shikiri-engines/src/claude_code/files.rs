//! What lies on disk for a run: private folders, the skills, and for a moment the servers.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Component, Path, PathBuf};

use serde_json::{Map, Value, json};
use shikiri_app::execution::{EngineError, Order};
use shikiri_model::skill::Skill;

/// The plugin in which skills are handed over. Measured with both versions: while setting sources
/// are off the CLI looks for skills neither in its configuration folder nor in added ones, but a
/// plugin's are seen, as `shikiri:NAME`.
const PLUGIN: &str = "shikiri";
/// How names of files with servers begin and end.
const SERVERS: (&str, &str) = ("servers-", ".json");

/// Makes the folders of a conversation, and takes away what a run before may have left.
pub(super) fn prepare(order: &Order) -> Result<(), EngineError> {
    if !order.home.is_absolute() || !order.folder.is_absolute() {
        return Err(EngineError::new("the claude-code engine needs a data folder on disk"));
    }
    let failed = |error: io::Error| {
        EngineError::new(format!("the engine's folder cannot be prepared: {error}"))
    };
    for folder in [&order.home, &order.folder, &order.home.join("claude")] {
        private_folder(folder).map_err(failed)?;
    }
    for folder in ["tmp", "plugin"] {
        remove_folder(&order.home.join(folder)).map_err(failed)?;
    }
    private_folder(&order.home.join("tmp")).map_err(failed)?;
    for entry in std::fs::read_dir(&order.home).map_err(failed)?.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with(SERVERS.0) && name.ends_with(SERVERS.1) {
            std::fs::remove_file(entry.path()).map_err(failed)?;
        }
    }
    Ok(())
}

/// Writes the skills, and nothing but them, as a plugin; None if there are none.
pub(super) fn write_skills(home: &Path, skills: &[Skill]) -> Result<Option<PathBuf>, EngineError> {
    if skills.is_empty() {
        return Ok(None);
    }
    let plugin = home.join("plugin");
    let about = json!({ "name": PLUGIN, "version": "1.0.0", "description": "Skills" });
    write_below(&plugin, ".claude-plugin/plugin.json", &about.to_string())?;
    for skill in skills {
        let folder = plugin.join("skills");
        confined(&skill.name)
            .filter(|name| name.components().count() == 1)
            .ok_or_else(|| EngineError::new(format!("{:?} is no name of a skill", skill.name)))?;
        write_below(&folder, &format!("{}/SKILL.md", skill.name), &skill_text(skill))?;
        for (path, content) in &skill.files {
            confined(path).ok_or_else(|| {
                let name = &skill.name;
                EngineError::new(format!("the skill {name:?} has a file outside of it: {path:?}"))
            })?;
            write_below(&folder.join(&skill.name), path, content)?;
        }
    }
    Ok(Some(plugin))
}

/// The text with its head, without which the CLI would not know what it is for.
fn skill_text(skill: &Skill) -> String {
    if skill.content.starts_with("---") {
        return skill.content.clone();
    }
    // A string of JSON is one of YAML.
    let (name, description) = (json!(skill.name), json!(skill.description));
    format!("---\nname: {name}\ndescription: {description}\n---\n\n{}", skill.content)
}

/// The path, if it stays below the folder that it is relative to.
fn confined(path: &str) -> Option<&Path> {
    let path = Path::new(path);
    let stays = path.components().all(|part| matches!(part, Component::Normal(_)));
    let is_named = path.components().next().is_some();
    (stays && is_named && !path.as_os_str().as_encoded_bytes().contains(&0)).then_some(path)
}

fn write_below(folder: &Path, path: &str, content: &str) -> Result<(), EngineError> {
    let file = folder.join(path);
    let written = private_folder(file.parent().unwrap_or(folder))
        .and_then(|()| private_file(&file))
        .and_then(|mut file| file.write_all(content.as_bytes()));
    written.map_err(|error| EngineError::new(format!("{path:?} cannot be written: {error}")))
}

/// The servers with their headers, in a file that is there until this is dropped.
pub(super) struct ServersFile(PathBuf);

impl ServersFile {
    pub(super) fn write(home: &Path, servers: Map<String, Value>) -> Result<Self, EngineError> {
        let name = format!("{}{}{}", SERVERS.0, uuid::Uuid::now_v7(), SERVERS.1);
        // Before it is written to: half a file goes, too.
        let file = Self(home.join(&name));
        write_below(home, &name, &json!({ "mcpServers": servers }).to_string())?;
        Ok(file)
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for ServersFile {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_file(&self.0) {
            tracing::warn!(%error, "the file with an engine's servers cannot be removed");
        }
    }
}

fn private_folder(folder: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

fn private_file(file: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(file)
}

fn remove_folder(folder: &Path) -> io::Result<()> {
    match std::fs::remove_dir_all(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

#[cfg(test)]
#[path = "files_tests.rs"]
mod tests;
