//! Where a hook's project is, and what lies in its `.shikiri` folder.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use shikiri_model::hook::Payload;

use crate::git_index::tracked_files;

/// The data folder's name in the project's.
const FOLDER: &str = ".shikiri";
/// The database and what lies beside it.
const DATABASE_FILES: [&str; 5] =
    ["state.db", "state.db-wal", "state.db-shm", "state.db-journal", "state.db.lock"];
/// Bytes of a git index that takes long to read.
const LARGE_INDEX: u64 = 1024 * 1024;
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
        let current = || std::env::current_dir().ok().map(|current| find_root(&current));
        let root = told.map(PathBuf::from).or_else(current);
        let root = root.or_else(|| payload.cwd.as_ref().map(PathBuf::from));
        match root {
            Some(root) if root.is_dir() => Ok(Self { root }),
            Some(root) => Err(format!("the project's folder {} does not exist", root.display())),
            None => Err("no project: CLAUDE_PROJECT_DIR is not set".to_owned()),
        }
    }

    pub fn folder(&self) -> PathBuf {
        self.root.join(FOLDER)
    }

    pub fn database(&self) -> PathBuf {
        self.folder().join("state.db")
    }

    pub fn conventions(&self) -> PathBuf {
        self.folder().join("conventions.toml")
    }

    /// Refuses a database that this user's programs did not make here: one behind a link, of another
    /// user, or out of a repository. What is missing is fine.
    pub fn check_database(&self) -> Result<(), String> {
        let folder = self.folder();
        if !is_own(&folder, fs::Metadata::is_dir)? {
            return Ok(());
        }
        for name in DATABASE_FILES {
            is_own(&folder.join(name), fs::Metadata::is_file)?;
        }
        match self.is_tracked() {
            Ok(false) => Ok(()),
            Ok(true) => Err(format!(
                "{} is tracked by git, so it is not used: remove it, or if it is yours take it out \
                 with `git rm --cached`",
                self.database().display()
            )),
            Err(error) => Err(format!("git's index cannot be read: {error}")),
        }
    }

    /// Whether the database came with the repository. A large index is read only if the file does not
    /// have the mode that this program gives it: a hook has to be quick.
    fn is_tracked(&self) -> io::Result<bool> {
        let Ok(database) = self.database().symlink_metadata() else { return Ok(false) };
        let index = self.root.join(".git/index").metadata();
        if database.mode() & 0o777 == 0o600 && index.is_ok_and(|it| it.len() > LARGE_INDEX) {
            return Ok(false);
        }
        let path = Path::new(FOLDER).join("state.db");
        Ok(!tracked_files(&self.root, &path)?.is_empty())
    }
}

/// False if it is missing. An error if it is a link, of another kind or of another user.
fn is_own(path: &Path, is_kind: fn(&fs::Metadata) -> bool) -> Result<bool, String> {
    let Ok(found) = path.symlink_metadata() else { return Ok(false) };
    let shown = path.display();
    if found.is_symlink() || !is_kind(&found) {
        return Err(format!("{shown} is a link or of the wrong kind, so it is not used"));
    }
    if found.uid() != rustix::process::geteuid().as_raw() {
        return Err(format!("{shown} belongs to another user, so it is not used"));
    }
    Ok(true)
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

/// A link in the folder's place is an error: it would lead what is written elsewhere.
pub fn make_folder(folder: &Path) -> io::Result<()> {
    let is_there = || folder.symlink_metadata().is_ok_and(|found| found.is_dir());
    match fs::DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && is_there() => Ok(()),
        made => made,
    }
}

/// The project's folder, seen from a folder in it: the nearest one upwards that has `.shikiri` or
/// `shikiri.toml`, but not above the top of the git work tree, and in no folder of another user.
/// Without one, the folder itself.
pub fn find_root(current: &Path) -> PathBuf {
    let own = rustix::process::geteuid().as_raw();
    let is_own = |folder: &&Path| folder.metadata().is_ok_and(|found| found.uid() == own);
    let above: Vec<&Path> = current.ancestors().take_while(is_own).collect();
    let has = |folder: &Path, name: &str| folder.join(name).symlink_metadata().is_ok();
    // Outside of a work tree nothing says where the project ends.
    let Some(top) = above.iter().position(|folder| has(folder, ".git")) else {
        return current.to_owned();
    };
    let is_root = |folder: &&&Path| has(folder, ".shikiri") || has(folder, "shikiri.toml");
    above[..=top].iter().find(is_root).map_or(current, |folder| *folder).to_owned()
}
