//! Finds where the paths of a tool call lead. Only the names are read: no file is opened, except the
//! small file by which a worktree names its repository.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::path::{Component, Path, PathBuf};

use shikiri_model::hook::PathFacts;

use crate::allowed_files;

/// As many as Linux follows.
const MOST_LINKS: usize = 40;
/// A `.git` file has one line.
const MOST_GIT_FILE: u64 = 8 * 1024;

/// Follows links on the way to paths, and finds the worktrees of the project that they or `cwd` are
/// in.
pub fn resolve(project: &Path, cwd: Option<&str>, paths: &[String]) -> PathFacts {
    if paths.is_empty() {
        return PathFacts::default();
    }
    let project = follow_links(project);
    let real: Vec<_> =
        paths.iter().map(|path| (path.clone(), follow_links(Path::new(path)))).collect();
    let mut roots = vec![project.clone()];
    let top = project.ancestors().find(|folder| folder.join(".git").exists());
    let inside = top.and_then(|top| project.strip_prefix(top).ok()).unwrap_or(Path::new(""));
    let repository = top.and_then(repository);
    let mut add = |worktree: Worktree| {
        // Without the slash at the end that an empty path adds.
        let same_place = worktree.top.join(inside).components().collect();
        for root in [same_place, worktree.top] {
            if !roots.contains(&root) {
                roots.push(root);
            }
        }
    };
    let cwd = cwd.and_then(|cwd| Worktree::around(&follow_links(Path::new(cwd))));
    cwd.into_iter().for_each(&mut add);
    for (_, path) in &real {
        let found = path.parent().and_then(Worktree::around);
        // A worktree of another repository is another project.
        let is_ours = |found: &Worktree| Some(&found.repository) == repository.as_ref();
        found.filter(is_ours).into_iter().for_each(&mut add);
    }
    let text = |path: PathBuf| path.to_string_lossy().into_owned();
    PathFacts {
        roots: roots.into_iter().map(text).collect(),
        real: real.into_iter().map(|(path, real)| (path, text(real))).collect(),
    }
}

/// The path without links, `.` and `..`, also if its end does not exist. A path through too many
/// links is left as it is from there on.
pub fn follow_links(path: &Path) -> PathBuf {
    let mut todo: VecDeque<OsString> = parts(path);
    let (mut found, mut links) = (PathBuf::from("/"), 0);
    while let Some(part) = todo.pop_front() {
        if part == ".." {
            found.pop();
            continue;
        }
        found.push(&part);
        let Ok(target) = found.read_link() else { continue };
        links += 1;
        if links > MOST_LINKS {
            continue;
        }
        found.pop();
        if target.is_absolute() {
            found = PathBuf::from("/");
        }
        let mut next = parts(&target);
        next.append(&mut todo);
        todo = next;
    }
    found
}

fn parts(path: &Path) -> VecDeque<OsString> {
    let kept = |part: Component<'_>| match part {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    };
    path.components().filter_map(kept).collect()
}

/// A folder that `git worktree add` made.
struct Worktree {
    top: PathBuf,
    /// The git folder of its repository.
    repository: PathBuf,
}

impl Worktree {
    /// The worktree that contains a folder; None in a repository's own folder.
    fn around(folder: &Path) -> Option<Self> {
        let top =
            folder.ancestors().find(|folder| folder.join(".git").symlink_metadata().is_ok())?;
        let repository = repository_of_worktree(top)?;
        Some(Self { top: top.to_owned(), repository })
    }
}

/// The git folder of the repository whose files are in this folder.
fn repository(top: &Path) -> Option<PathBuf> {
    let git = top.join(".git");
    if git.is_dir() { Some(follow_links(&git)) } else { repository_of_worktree(top) }
}

/// The `.git` file of a worktree names `REPOSITORY/worktrees/NAME`; that of a submodule, another
/// folder.
fn repository_of_worktree(top: &Path) -> Option<PathBuf> {
    let text = allowed_files::read_start(&top.join(".git"), MOST_GIT_FILE).ok()?;
    let text = String::from_utf8(text).ok()?;
    let named = text.strip_prefix("gitdir:")?.trim();
    let named = follow_links(&top.join(named));
    let worktrees = named.parent().filter(|folder| folder.ends_with("worktrees"))?;
    worktrees.parent().map(Path::to_owned)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    fn place() -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        for name in ["p/src/deep", "p/.git/worktrees/w", "w/src"] {
            fs::create_dir_all(root.join(name)).unwrap();
        }
        (folder, root)
    }

    #[test]
    fn links_are_followed_to_files_that_do_not_exist_yet() {
        let (_folder, root) = place();
        let link = |target: &str, name: &str| symlink(target, root.join("p").join(name)).unwrap();
        link("src", "link");
        link("link/deep", "again");
        link("src/new", "dangling");
        link("loop", "loop");
        symlink(root.join("p"), root.join("q")).unwrap();
        for (path, expected) in [
            ("p/link/a", "p/src/a"),
            ("p/again/x/../y", "p/src/deep/y"),
            ("p/again/../y", "p/src/y"),
            ("p/dangling", "p/src/new"),
            ("q/dangling/./z", "p/src/new/z"),
            ("p/missing/a/../b", "p/missing/b"),
            ("p/loop/a", "p/loop/a"),
        ] {
            assert_eq!(follow_links(&root.join(path)), root.join(expected), "{path}");
        }
        assert_eq!(follow_links(Path::new("/../..")), Path::new("/"));
    }

    #[test]
    fn worktrees_of_the_project_are_roots() {
        let (_folder, root) = place();
        let git = |name: &str, text: String| fs::write(root.join(name).join(".git"), text).unwrap();
        git("w", format!("gitdir: {}\n", root.join("p/.git/worktrees/w").display()));
        let text = |path: &str| root.join(path).to_string_lossy().into_owned();
        let roots = |project: &str, cwd: &str, path: &str| {
            resolve(&root.join(project), Some(&text(cwd)), &[text(path)]).roots
        };
        assert_eq!(roots("p", "p", "p/src/a"), [text("p")]);
        assert_eq!(roots("p", "w/src", "w/src/a"), [text("p"), text("w")]);
        assert_eq!(roots("p", "p", "w/src/a"), [text("p"), text("w")], "by the path alone");
        let inner = [text("p/src"), text("w/src"), text("w")];
        assert_eq!(roots("p/src", "w", "w/a"), inner, "the project is a folder of the repository");
        git("w", "gitdir: ../p/.git/modules/w".to_owned());
        assert_eq!(roots("p", "w", "w/src/a"), [text("p")], "a submodule");
        git("w", format!("gitdir: {}", root.join("other/.git/worktrees/w").display()));
        assert_eq!(roots("p", "p", "w/src/a"), [text("p")], "of another repository");
        assert_eq!(resolve(&root, None, &[]), PathFacts::default());
    }
}
