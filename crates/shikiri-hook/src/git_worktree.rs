//! Finds the main worktree for a linked worktree of git, by git's own files: git itself can be made
//! to start programs by a repository's configuration.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use crate::allowed_files;

/// Git's files with one path are smaller.
const MOST_BYTES: u64 = 8 * 1024;

/// A linked worktree and the main one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkedWorktree {
    pub top: PathBuf,
    pub main: PathBuf,
}

impl LinkedWorktree {
    /// The linked worktree that contains this folder. None in a main worktree, in a submodule,
    /// outside of a repository, and where the main worktree is not this user's.
    pub fn around(folder: &Path) -> Option<Self> {
        // The usual case, quickly.
        if folder.join(".git").symlink_metadata().is_ok_and(|found| found.is_dir()) {
            return None;
        }
        let folder = folder.canonicalize().ok()?;
        let found = |top: &&Path| top.join(".git").symlink_metadata().is_ok();
        let top = folder.ancestors().find(found)?;
        let mark = top.join(".git");
        if !mark.symlink_metadata().ok()?.is_file() {
            return None;
        }
        let own = path_in(&mark, "gitdir:", top)?.canonicalize().ok()?;
        // A submodule's folder has no such file.
        let common = path_in(&own.join("commondir"), "", &own)?.canonicalize().ok()?;
        // Only git writes into its folder, so the file there proves that the worktree is its own.
        let back = path_in(&own.join("gitdir"), "", &own)?.canonicalize().ok()?;
        let is_linked = back == mark && own.parent()? == common.join("worktrees");
        let main = common.parent().filter(|_| common.ends_with(".git"))?;
        let user = rustix::process::geteuid().as_raw();
        let is_own = |path: &Path| path.metadata().is_ok_and(|found| found.uid() == user);
        (is_linked && is_own(main) && is_own(&common))
            .then(|| Self { top: top.to_owned(), main: main.to_owned() })
    }

    /// The folder of the main worktree that corresponds to one of the linked worktree.
    pub fn in_main(&self, folder: &Path) -> PathBuf {
        self.moved(folder, &self.top, &self.main)
    }

    /// The folder of the linked worktree that corresponds to one of the main worktree.
    pub fn in_linked(&self, folder: &Path) -> PathBuf {
        self.moved(folder, &self.main, &self.top)
    }

    /// The top, where there is no such folder.
    fn moved(&self, folder: &Path, from: &Path, to: &Path) -> PathBuf {
        let folder = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
        let there = folder.strip_prefix(from).ok().filter(|inside| inside.parent().is_some());
        let there = there.map(|inside| to.join(inside)).filter(|there| there.is_dir());
        there.unwrap_or_else(|| to.to_owned())
    }
}

/// The path in one of git's files; a relative one starts from `base`.
fn path_in(file: &Path, label: &str, base: &Path) -> Option<PathBuf> {
    let text = allowed_files::read_start(file, MOST_BYTES).ok()?;
    let text = String::from_utf8(text).ok()?;
    Some(base.join(text.strip_prefix(label)?.trim()))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::process::{Command, Stdio};

    use super::*;

    fn git(folder: &Path, words: &[&str]) {
        let mut command = Command::new("git");
        command.current_dir(folder).args(words).stdout(Stdio::null()).stderr(Stdio::null());
        command.env("HOME", folder).env("GIT_CONFIG_NOSYSTEM", "1");
        command.envs([("GIT_AUTHOR_NAME", "a"), ("GIT_AUTHOR_EMAIL", "a@example.com")]);
        command.envs([("GIT_COMMITTER_NAME", "a"), ("GIT_COMMITTER_EMAIL", "a@example.com")]);
        assert!(command.status().unwrap().success(), "git {words:?}");
    }

    /// A repository with one commit and a worktree beside it.
    fn worktree() -> (tempfile::TempDir, PathBuf, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let base = folder.path().canonicalize().unwrap();
        let (main, linked) = (base.join("main"), base.join("linked"));
        fs::create_dir_all(main.join("sub/deep")).unwrap();
        fs::write(main.join("sub/deep/file"), "x").unwrap();
        git(&main, &["init", "-q"]);
        git(&main, &["add", "-A"]);
        git(&main, &["commit", "-q", "-m", "one"]);
        git(&main, &["worktree", "add", "-q", "../linked"]);
        (folder, main, linked)
    }

    #[test]
    fn a_linked_worktree_leads_to_the_main_one_and_back() {
        let (_folder, main, linked) = worktree();
        assert_eq!(LinkedWorktree::around(&main), None);
        assert_eq!(LinkedWorktree::around(&main.join("sub")), None);
        let deep = linked.join("sub/deep");
        let found = LinkedWorktree::around(&deep).unwrap();
        assert_eq!(found, LinkedWorktree { top: linked.clone(), main: main.clone() });
        assert_eq!(found.in_main(&deep), main.join("sub/deep"));
        assert_eq!(found.in_linked(&main.join("sub")), linked.join("sub"));
        assert_eq!(found.in_main(&linked), main);
        // What only one of them has belongs to the top of the other.
        fs::create_dir(linked.join("new")).unwrap();
        assert_eq!(found.in_main(&linked.join("new")), main);
    }

    /// An archive could bring such a file; only git's own files make it a worktree.
    #[test]
    fn a_file_that_names_anothers_repository_leads_nowhere() {
        let (folder, main, linked) = worktree();
        let stranger = folder.path().join("stranger");
        fs::create_dir(&stranger).unwrap();
        fs::copy(linked.join(".git"), stranger.join(".git")).unwrap();
        assert_eq!(LinkedWorktree::around(&stranger), None, "the worktree is another folder");
        for text in [String::new(), "gitdir:".into(), format!("gitdir: {}", main.display())] {
            fs::write(stranger.join(".git"), &text).unwrap();
            assert_eq!(LinkedWorktree::around(&stranger), None, "{text:?}");
        }
    }
}
