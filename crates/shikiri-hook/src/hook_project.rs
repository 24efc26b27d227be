//! Finds a hook's project and the files in its `.shikiri` folder.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use shikiri_model::hook::HookInput;

use crate::git_index::tracked_files;
use crate::git_worktree::LinkedWorktree;

/// The name of the data folder.
const FOLDER: &str = ".shikiri";
/// The usual database, relative to the project.
pub(crate) const DATABASE: &str = ".shikiri/state.db";
/// The database and its companion files.
const DATABASE_FILES: [&str; 5] =
    ["state.db", "state.db-wal", "state.db-shm", "state.db-journal", "state.db.lock"];
/// A larger git index takes too long to read.
const LARGE_INDEX: u64 = 1024 * 1024;
const GITIGNORE: &str = "*\n!conventions.toml\n!providers.toml\n";

#[derive(Clone, Debug)]
pub struct HookProject {
    /// The project's folder.
    pub root: PathBuf,
}

impl HookProject {
    /// The folder that Claude Code names, else the one around the folder in which it started the
    /// hook, else the one in the event.
    pub fn find(payload: &HookInput) -> Result<Self, String> {
        let configured =
            std::env::var_os("CLAUDE_PROJECT_DIR").filter(|configured| !configured.is_empty());
        let folders = match (configured, std::env::current_dir(), &payload.cwd) {
            (Some(configured), ..) => ProjectFolders::named(PathBuf::from(configured)),
            (None, Ok(current), _) => ProjectFolders::around(&current),
            (None, Err(_), Some(cwd)) => ProjectFolders::named(PathBuf::from(cwd)),
            (None, Err(_), None) => {
                return Err("no project: CLAUDE_PROJECT_DIR is not set".to_owned());
            }
        };
        match folders.root {
            root if root.is_dir() => Ok(Self { root }),
            root => Err(format!("the project's folder {} does not exist", root.display())),
        }
    }

    pub fn folder(&self) -> PathBuf {
        self.root.join(FOLDER)
    }

    pub fn database(&self) -> PathBuf {
        self.root.join(DATABASE)
    }

    pub fn conventions(&self) -> PathBuf {
        self.folder().join("conventions.toml")
    }

    /// Refuses a database that was not created here by this user: behind a link, of another user,
    /// or from a repository. A missing database is accepted.
    pub fn check_database(&self) -> Result<(), String> {
        let folder = self.folder();
        if !is_own(&folder, fs::Metadata::is_dir)? {
            return Ok(());
        }
        for name in DATABASE_FILES {
            is_own(&folder.join(name), fs::Metadata::is_file)?;
        }
        match self.is_tracked(Path::new(DATABASE)) {
            Ok(false) => Ok(()),
            Ok(true) => Err(format!(
                "{} is tracked by git, so it is not used: remove it, or if it is yours take it out \
                 with `git rm --cached`",
                self.database().display()
            )),
            Err(error) => Err(format!("git's index cannot be read: {error}")),
        }
    }

    /// Whether a database in the project came with the repository. A large index is read only if the
    /// file does not have this program's file mode, because a hook must be fast.
    pub(crate) fn is_tracked(&self, inside: &Path) -> io::Result<bool> {
        let Ok(database) = self.root.join(inside).symlink_metadata() else { return Ok(false) };
        let index = self.root.join(".git/index").metadata();
        if database.mode() & 0o777 == 0o600 && index.is_ok_and(|it| it.len() > LARGE_INDEX) {
            return Ok(false);
        }
        Ok(!tracked_files(&self.root, inside)?.is_empty())
    }
}

/// False if it is missing. An error if it is a link, of another kind, or of another user.
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

/// Creates the `.shikiri` folder if it is missing: readable only by its owner, and ignored by git
/// except for the files that people write.
pub fn prepare_folder(folder: &Path) -> io::Result<()> {
    make_folder(folder)?;
    match OpenOptions::new().write(true).create_new(true).open(folder.join(".gitignore")) {
        Ok(mut file) => file.write_all(GITIGNORE.as_bytes()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
    }
}

/// A link instead of the folder is an error, because it would redirect writes.
pub fn make_folder(folder: &Path) -> io::Result<()> {
    let is_there = || folder.symlink_metadata().is_ok_and(|found| found.is_dir());
    match fs::DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && is_there() => Ok(()),
        made => made,
    }
}

/// A project's folders. All worktrees of a git repository are one project.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProjectFolders {
    /// The folder in which the data and the configuration are: in the main worktree.
    pub root: PathBuf,
    /// The same folder in the worktree at hand, where Claude Code has its settings.
    pub checkout: PathBuf,
}

impl ProjectFolders {
    /// The project of a folder that was named as the project's.
    pub fn named(folder: PathBuf) -> Self {
        match LinkedWorktree::around(&folder) {
            Some(worktree) => Self { root: worktree.in_main(&folder), checkout: folder },
            None => Self { root: folder.clone(), checkout: folder },
        }
    }

    /// The project around a folder.
    pub fn around(current: &Path) -> Self {
        let Some(worktree) = LinkedWorktree::around(current) else {
            let root = find_root(current);
            return Self { root: root.clone(), checkout: root };
        };
        let root = find_root(&worktree.in_main(current));
        let checkout = worktree.in_linked(&root);
        Self { root, checkout }
    }
}

/// The nearest folder upwards with `.shikiri` or `shikiri.toml`, not above the top of the git work
/// tree, and not of another user. Without one, the folder itself.
fn find_root(current: &Path) -> PathBuf {
    let own = rustix::process::geteuid().as_raw();
    let is_own = |folder: &&Path| folder.metadata().is_ok_and(|found| found.uid() == own);
    let above: Vec<&Path> = current.ancestors().take_while(is_own).collect();
    let has = |folder: &Path, name: &str| folder.join(name).symlink_metadata().is_ok();
    // Outside of a work tree there is no mark for the top of the project.
    let Some(top) = above.iter().position(|folder| has(folder, ".git")) else {
        return current.to_owned();
    };
    let is_root = |folder: &&&Path| has(folder, ".shikiri") || has(folder, "shikiri.toml");
    above[..=top].iter().find(is_root).map_or(current, |folder| *folder).to_owned()
}
