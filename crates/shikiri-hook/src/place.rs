//! Where a hook's project is, and what lies in its `.shikiri` folder.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use shikiri_model::hook::Payload;

const GITIGNORE: &str = "*\n!conventions.toml\n!providers.toml\n";

#[derive(Clone, Debug)]
pub struct Place {
    /// The project's folder.
    pub root: PathBuf,
}

impl Place {
    /// What Claude Code says, else where it started the hook, else where it says that it is.
    pub fn find(payload: &Payload) -> Result<Self, String> {
        let told = std::env::var_os("CLAUDE_PROJECT_DIR").filter(|told| !told.is_empty());
        let root = told.map(PathBuf::from).or_else(|| std::env::current_dir().ok());
        let root = root.or_else(|| payload.cwd.as_ref().map(PathBuf::from));
        match root {
            Some(root) if root.is_dir() => Ok(Self { root }),
            Some(root) => Err(format!("the project's folder {} does not exist", root.display())),
            None => Err("no project: CLAUDE_PROJECT_DIR is not set".to_owned()),
        }
    }

    pub fn folder(&self) -> PathBuf {
        self.root.join(".shikiri")
    }

    pub fn database(&self) -> PathBuf {
        self.folder().join("state.db")
    }

    pub fn conventions(&self) -> PathBuf {
        self.folder().join("conventions.toml")
    }
}

/// Makes a `.shikiri` folder as far as it is missing: for its owner only, and kept out of git but
/// for what people write.
pub fn prepare(folder: &Path) -> io::Result<()> {
    make_folder(folder)?;
    match OpenOptions::new().write(true).create_new(true).open(folder.join(".gitignore")) {
        Ok(mut file) => file.write_all(GITIGNORE.as_bytes()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
    }
}

pub fn make_folder(folder: &Path) -> io::Result<()> {
    match fs::DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && folder.is_dir() => Ok(()),
        made => made,
    }
}
