//! What lies on disk for a run: private folders, the skills, and for a moment the servers.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};
use shikiri_app::execution::{EngineError, Order};
use shikiri_files::{FileOwner, FilesError, Trash, UntrustedDir};
use shikiri_model::confinement::ConfinementLevel;
use shikiri_model::skill::Skill;
use shikiri_sandbox::SandboxPlan;

/// The plugin in which skills are handed over. Measured with both versions: while setting sources
/// are off the CLI looks for skills neither in its configuration folder nor in added ones, but a
/// plugin's are seen, as `shikiri:NAME`.
const PLUGIN: &str = "shikiri";
/// How names of files with servers begin and end.
const SERVERS: (&str, &str) = ("servers-", ".json");
/// Entries of a home that are looked at: an agent may have made millions.
const MAX_ENTRIES: usize = 10_000;
/// Entries that are given to the engine's user before a run. What the engine made is its own already.
const MAX_HANDED_OVER: usize = 1_000_000;

/// Makes the folders of a conversation, and takes away what a run before may have left. What stands
/// in the place of a folder and is none gives way. Blocks.
pub(super) fn prepare(order: &Order) -> Result<UntrustedDir, EngineError> {
    if !order.home.is_absolute() || !order.folder.is_absolute() {
        return Err(EngineError::new("the claude-code engine needs a data folder on disk"));
    }
    prepare_home(order).map_err(|error| {
        EngineError::new(format!("the engine's folder cannot be prepared: {error}"))
    })
}

fn prepare_home(order: &Order) -> Result<UntrustedDir, FilesError> {
    let home = UntrustedDir::create(&order.home)?;
    match order.folder.strip_prefix(&order.home) {
        Ok(inside) => home.replace_dir(inside)?,
        Err(_) => UntrustedDir::create(&order.folder)?,
    };
    home.replace_dir("claude/projects")?;
    let trash = Trash::beside(&order.home)?;
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

/// Gives the folders of a run to the user that its engine has, if that is not the server's.
pub(super) async fn hand_over(
    order: &Order,
    plan: &SandboxPlan,
    data: Option<&Path>,
) -> Result<(), EngineError> {
    let Some(user) = plan.confinement.engine_user else { return Ok(()) };
    // Without a file tree of its own, the engine's user has to pass the server's folder.
    let data = data.filter(|_| plan.confinement.level == ConfinementLevel::Landlock);
    let (order, data) = (order.clone(), data.map(Path::to_owned));
    let handing = tokio::task::spawn_blocking(move || give_folders(&order, user, data.as_deref()));
    let handed = handing.await.map_err(|error| EngineError::new(error.to_string()))?;
    handed.map_err(|error| {
        EngineError::new(format!("the engine's user cannot be given its folder: {error}"))
    })
}

fn give_folders(order: &Order, user: u32, data: Option<&Path>) -> std::io::Result<()> {
    let owner = FileOwner { uid: user, gid: user };
    let is_inside = order.folder.starts_with(&order.home);
    for folder in [Some(&order.home), Some(&order.folder).filter(|_| !is_inside)] {
        let Some(folder) = folder else { continue };
        if let Some(data) = data {
            shikiri_sandbox::open_way(data, folder)?;
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

/// Writes the skills, and nothing but them, as a plugin; gives its folder below the home, or None if
/// there are none. Blocks.
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

/// The text with its head, without which the CLI would not know what it is for.
fn skill_text(skill: &Skill) -> String {
    if skill.content.starts_with("---") {
        return skill.content.clone();
    }
    // A string of JSON is one of YAML.
    let (name, description) = (json!(skill.name), json!(skill.description));
    format!("---\nname: {name}\ndescription: {description}\n---\n\n{}", skill.content)
}

fn write_below(folder: &UntrustedDir, path: &str, content: &str) -> Result<(), EngineError> {
    let above = Path::new(path).parent().unwrap_or(Path::new(""));
    let made = folder.create_dir(above).map(drop);
    let written = made.and_then(|()| folder.write(path, content.as_bytes()));
    written.map_err(|error| EngineError::new(format!("{path:?} cannot be written: {error}")))
}

/// The servers with their headers, in a file that is there until this is dropped.
pub(super) struct ServersFile {
    home: UntrustedDir,
    name: String,
}

impl ServersFile {
    /// Blocks, as its end does, for no longer than a file of a few lines takes.
    pub(super) fn write(
        home: UntrustedDir,
        servers: Map<String, Value>,
    ) -> Result<Self, EngineError> {
        let name = format!("{}{}{}", SERVERS.0, uuid::Uuid::now_v7(), SERVERS.1);
        let file = Self { home, name };
        write_below(&file.home, &file.name, &json!({ "mcpServers": servers }).to_string())?;
        Ok(file)
    }

    /// Below the home.
    pub(super) fn name(&self) -> &Path {
        Path::new(&self.name)
    }
}

impl Drop for ServersFile {
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
#[path = "files_tests.rs"]
mod tests;
