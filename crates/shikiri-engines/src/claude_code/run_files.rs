//! The files of a run: private folders, the skills, and for a short time the MCP servers.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};
use shikiri_executions::execution::{EngineError, TurnRequest};
use shikiri_files::{FileOwner, FilesError, Trash, UntrustedDir};
use shikiri_model::confinement::ConfinementLevel;
use shikiri_model::skill::Skill;
use shikiri_sandbox::SandboxPlan;

/// The plugin that holds the skills. Measured with both versions: without setting sources the CLI
/// reads skills neither from its configuration folder nor from added ones, but it reads a plugin's, as
/// `shikiri:NAME`.
const PLUGIN: &str = "shikiri";
/// Start and end of the names of files with MCP servers.
const SERVERS: (&str, &str) = ("servers-", ".json");
/// Entries of a home that are listed: an agent may have made millions.
const MAX_ENTRIES: usize = 10_000;
/// Entries that are given to the engine's user before a run. It already owns what it made itself.
const MAX_HANDED_OVER: usize = 1_000_000;

/// Creates the folders of a conversation and removes leftovers of earlier runs. Replaces entries that
/// stand in place of a folder. Blocks.
pub(super) fn prepare(request: &TurnRequest) -> Result<UntrustedDir, EngineError> {
    if !request.home.is_absolute() || !request.folder.is_absolute() {
        return Err(EngineError::new("the claude-code engine needs a data folder on disk"));
    }
    prepare_home(request).map_err(|error| {
        EngineError::new(format!("the engine's folder cannot be prepared: {error}"))
    })
}

fn prepare_home(request: &TurnRequest) -> Result<UntrustedDir, FilesError> {
    let home = UntrustedDir::create(&request.home)?;
    match request.folder.strip_prefix(&request.home) {
        Ok(inside) => home.replace_dir(inside)?,
        Err(_) => UntrustedDir::create(&request.folder)?,
    };
    home.replace_dir("claude/projects")?;
    let trash = Trash::beside(&request.home)?;
    for folder in ["tmp", "plugin"] {
        trash.remove(&home, folder)?;
    }
    home.create_dir("tmp")?;
    for entry in home.entries(MAX_ENTRIES)? {
        let name = entry.name.to_string_lossy();
        if name.starts_with(SERVERS.0) && name.ends_with(SERVERS.1) {
            trash.remove(&home, &entry.name)?;
        }
    }
    Ok(home)
}

/// Gives the folders of a run to the engine's user, if that is not the server's.
pub(super) async fn hand_over(
    request: &TurnRequest,
    plan: &SandboxPlan,
    data: Option<&Path>,
) -> Result<(), EngineError> {
    let Some(user) = plan.confinement.engine_user else { return Ok(()) };
    // Without its own file tree, the engine's user must traverse the server's folder.
    let data = data.filter(|_| plan.confinement.level == ConfinementLevel::Landlock);
    let (request, data) = (request.clone(), data.map(Path::to_owned));
    let task = tokio::task::spawn_blocking(move || give_folders(&request, user, data.as_deref()));
    let given = task.await.map_err(|error| EngineError::new(error.to_string()))?;
    given.map_err(|error| {
        EngineError::new(format!("the engine's user cannot be given its folder: {error}"))
    })
}

fn give_folders(request: &TurnRequest, user: u32, data: Option<&Path>) -> std::io::Result<()> {
    let owner = FileOwner { uid: user, gid: user };
    let is_inside = request.folder.starts_with(&request.home);
    for folder in [Some(&request.home), Some(&request.folder).filter(|_| !is_inside)] {
        let Some(folder) = folder else { continue };
        if let Some(data) = data {
            shikiri_sandbox::allow_traversal(data, folder)?;
        }
        let opened = UntrustedDir::open(folder).map_err(std::io::Error::other)?;
        let given = opened.hand_over(owner, MAX_HANDED_OVER).map_err(std::io::Error::other)?;
        if given.refused > 0 || !given.is_complete {
            let (folder, refused) = (folder.display(), given.refused);
            tracing::warn!(%folder, refused, "not all files were handed over to the engine's user");
        }
    }
    Ok(())
}

/// Writes the skills as a plugin. Returns its folder below the home, or `None` without skills. Blocks.
pub(super) fn write_skills(
    home: &UntrustedDir,
    skills: &[Skill],
) -> Result<Option<PathBuf>, EngineError> {
    const FOLDER: &str = "plugin";
    if skills.is_empty() {
        return Ok(None);
    }
    let unwritten = |error| EngineError::new(format!("the skills cannot be written: {error}"));
    let plugin = home.create_dir(FOLDER).map_err(unwritten)?;
    let about = json!({ "name": PLUGIN, "version": "1.0.0", "description": "Skills" });
    write_below(&plugin, ".claude-plugin/plugin.json", &about.to_string())?;
    for skill in skills {
        if Path::new(&skill.name).components().count() != 1 {
            return Err(EngineError::new(format!("{:?} is no name of a skill", skill.name)));
        }
        let folder = plugin.create_dir(Path::new("skills").join(&skill.name));
        let folder = folder.map_err(unwritten)?;
        write_below(&folder, "SKILL.md", &skill_text(skill))?;
        for (path, content) in &skill.files {
            write_below(&folder, path, content)?;
        }
    }
    Ok(Some(FOLDER.into()))
}

/// The skill's text with a front matter, which tells the CLI its name and purpose.
fn skill_text(skill: &Skill) -> String {
    if skill.content.starts_with("---") {
        return skill.content.clone();
    }
    // A JSON string is a valid YAML string.
    let (name, description) = (json!(skill.name), json!(skill.description));
    format!("---\nname: {name}\ndescription: {description}\n---\n\n{}", skill.content)
}

fn write_below(folder: &UntrustedDir, path: &str, content: &str) -> Result<(), EngineError> {
    let above = Path::new(path).parent().unwrap_or(Path::new(""));
    let made = folder.create_dir(above).map(drop);
    let written = made.and_then(|()| folder.write(path, content.as_bytes()));
    written.map_err(|error| EngineError::new(format!("{path:?} cannot be written: {error}")))
}

/// A file with the MCP servers and their headers, removed when this is dropped.
pub(super) struct McpServersFile {
    home: UntrustedDir,
    name: String,
}

impl McpServersFile {
    /// Blocks for a short time, as dropping does: the file has a few lines.
    pub(super) fn write(
        home: UntrustedDir,
        servers: Map<String, Value>,
    ) -> Result<Self, EngineError> {
        let name = format!("{}{}{}", SERVERS.0, uuid::Uuid::now_v7(), SERVERS.1);
        let file = Self { home, name };
        write_below(&file.home, &file.name, &json!({ "mcpServers": servers }).to_string())?;
        Ok(file)
    }

    /// Relative to the home.
    pub(super) fn name(&self) -> &Path {
        Path::new(&self.name)
    }
}

impl Drop for McpServersFile {
    fn drop(&mut self) {
        match self.home.remove_file(&self.name) {
            Err(error) if !error.is_not_found() => {
                tracing::warn!(%error, "the file with an engine's servers cannot be removed");
            }
            _ => {}
        }
    }
}

#[cfg(test)]
#[path = "run_files_tests.rs"]
mod tests;
