//! Each promise of the crate against what an agent could put in its way.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags, mkdirat, openat};

use super::*;

/// A folder of an agent, and beside it files that it must not reach.
struct TestFolder {
    place: tempfile::TempDir,
}

impl TestFolder {
    fn new() -> Self {
        let place = tempfile::tempdir().unwrap();
        fs::create_dir_all(place.path().join("outside/deep")).unwrap();
        fs::write(place.path().join("outside/secret"), "secret").unwrap();
        fs::create_dir(place.path().join("agent")).unwrap();
        Self { place }
    }

    fn inside(&self, path: &str) -> PathBuf {
        self.place.path().join("agent").join(path)
    }

    fn outside(&self, path: &str) -> PathBuf {
        self.place.path().join("outside").join(path)
    }

    fn dir(&self) -> UntrustedDir {
        UntrustedDir::open(&self.inside("")).unwrap()
    }

    fn trash(&self) -> Trash {
        Trash::create(&self.place.path().join("trash")).unwrap()
    }

    fn trash_is_empty(&self) -> bool {
        fs::read_dir(self.place.path().join("trash")).unwrap().count() == 0
    }

    fn pipe(&self, path: &str) {
        assert!(Command::new("mkfifo").arg(self.inside(path)).status().unwrap().success());
    }

    fn assert_outside_untouched(&self) {
        assert_eq!(fs::read(self.outside("secret")).unwrap(), b"secret");
        assert_eq!(fs::read_dir(self.outside("")).unwrap().count(), 2);
        assert_eq!(fs::read_dir(self.outside("deep")).unwrap().count(), 0);
    }

    /// So deep that its path is longer than any system takes.
    fn nest(&self, path: &str, depth: usize) {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        fs::create_dir_all(self.inside(path)).unwrap();
        let mut folder = rustix::fs::open(self.inside(path), flags, Mode::empty()).unwrap();
        for _ in 0..depth {
            mkdirat(&folder, "d", Mode::RWXU).unwrap();
            folder = openat(&folder, "d", flags, Mode::empty()).unwrap();
        }
        let file = openat(&folder, "leaf", OFlags::CREATE | OFlags::WRONLY, Mode::RUSR).unwrap();
        File::from(file).write_all(b"leaf").unwrap();
    }
}

fn is_link<T: std::fmt::Debug>(result: Result<T, FilesError>) -> bool {
    matches!(result, Err(FilesError::Link(_)))
}

#[test]
fn no_part_of_a_path_is_a_link() {
    let folder = TestFolder::new();
    symlink(folder.outside("secret"), folder.inside("file")).unwrap();
    symlink(folder.outside(""), folder.inside("folder")).unwrap();
    symlink("loop", folder.inside("loop")).unwrap();
    fs::create_dir(folder.inside("real")).unwrap();
    symlink("real", folder.inside("inner")).unwrap();
    fs::write(folder.inside("real/x"), "x").unwrap();
    let dir = folder.dir();
    for path in ["file", "folder/secret", "loop", "loop/x", "inner/x"] {
        assert!(is_link(dir.open_file(path)), "{path}");
        assert!(is_link(dir.read(path, 100)), "{path}");
    }
    for path in ["folder/new", "folder/deep/new", "inner/new", "loop/new"] {
        assert!(is_link(dir.write(path, b"evil")), "{path}");
        assert!(is_link(dir.create_file(path)), "{path}");
        assert!(is_link(dir.create_dir(path)), "{path}");
        assert!(is_link(dir.remove_file(path)), "{path}");
        assert!(is_link(dir.remove_empty_dir(path)), "{path}");
        assert!(is_link(dir.stat(path)), "{path}");
        assert!(is_link(folder.trash().remove(&dir, path)), "{path}");
        fs::write(folder.inside("real/scratch"), "").unwrap();
        assert!(is_link(dir.take_file(path, &dir.open_dir("real").unwrap(), "scratch")), "{path}");
    }
    assert!(is_link(dir.open_dir("folder")) && is_link(dir.open_dir("folder/deep")));
    assert!(is_link(UntrustedDir::open(&folder.inside("folder"))));
    assert!(is_link(UntrustedDir::create(&folder.inside("folder"))));
    folder.assert_outside_untouched();
}

#[test]
fn no_path_leaves_its_folder() {
    let folder = TestFolder::new();
    let dir = folder.dir();
    let absolute = folder.outside("secret").display().to_string();
    for path in ["..", "../outside/secret", "a/../../outside/secret", "/", &absolute, "a\0b"] {
        let refused = dir.read(path, 100);
        assert!(matches!(refused, Err(FilesError::InvalidPath(_))), "{path:?}: {refused:?}");
        assert!(matches!(dir.write(path, b"x"), Err(FilesError::InvalidPath(_))), "{path:?}");
        assert!(matches!(dir.open_dir(path), Err(FilesError::InvalidPath(_))), "{path:?}");
        assert!(matches!(dir.replace_dir(path), Err(FilesError::InvalidPath(_))), "{path:?}");
    }
    assert!(matches!(dir.read("", 1), Err(FilesError::InvalidPath(_))));
    folder.assert_outside_untouched();
}

#[test]
fn what_is_written_replaces_and_is_private() {
    let folder = TestFolder::new();
    symlink(folder.outside("secret"), folder.inside("link")).unwrap();
    fs::hard_link(folder.outside("secret"), folder.inside("hard")).unwrap();
    folder.pipe("pipe");
    let dir = folder.dir();
    for name in ["link", "hard", "pipe", "new"] {
        dir.write(name, b"mine").unwrap();
        assert_eq!(dir.read(name, 4).unwrap(), b"mine", "{name}");
        assert_eq!(fs::metadata(folder.inside(name)).unwrap().mode() & 0o777, 0o600);
    }
    let made = dir.create_dir("a/b").unwrap();
    made.write("c", b"1").unwrap();
    assert_eq!(fs::metadata(folder.inside("a/b")).unwrap().mode() & 0o777, 0o700);
    let in_the_way = dir.write("a/b", b"x").unwrap_err();
    assert_eq!(in_the_way.io_kind(), Some(io::ErrorKind::IsADirectory));
    let drafts = fs::read_dir(folder.inside("a")).unwrap().count();
    assert_eq!(drafts, 1, "a draft was left");
    folder.assert_outside_untouched();
}

#[test]
fn only_regular_files_are_opened_and_nothing_is_waited_for() {
    let folder = TestFolder::new();
    folder.pipe("pipe");
    let _socket = UnixListener::bind(folder.inside("socket")).unwrap();
    fs::create_dir(folder.inside("folder")).unwrap();
    let dir = folder.dir();
    let begun = Instant::now();
    for name in ["pipe", "socket", "folder"] {
        assert!(matches!(dir.read(name, 100), Err(FilesError::NotRegular(_))), "{name}");
    }
    assert!(begun.elapsed() < Duration::from_secs(10));
    assert!(dir.read("missing", 1).unwrap_err().is_not_found());
    assert_eq!(dir.stat("pipe").unwrap().kind, EntryKind::Other);
    dir.remove_file("pipe").unwrap();
    assert!(matches!(dir.remove_file("folder"), Err(FilesError::NotRegular(_))));
}

/// Between the look at a name and its opening, a pipe takes the place of a file.
#[test]
fn a_pipe_that_comes_and_goes_is_never_waited_for() {
    let folder = TestFolder::new();
    fs::write(folder.outside("deep/file"), "mine").unwrap();
    let pipe = folder.outside("deep/pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let stop = std::sync::atomic::AtomicBool::new(false);
    let dir = folder.dir();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let files = [folder.outside("deep/file"), pipe.clone(), folder.outside("secret")];
            for file in files.iter().cycle() {
                if stop.load(std::sync::atomic::Ordering::Relaxed) {
                    break;
                }
                let new = folder.outside("deep/new");
                match file.ends_with("secret") {
                    true => symlink(file, &new).unwrap(),
                    false => fs::hard_link(file, &new).unwrap(),
                }
                fs::rename(&new, folder.inside("turn")).unwrap();
            }
        });
        for round in 0..20_000 {
            let read = dir.read("turn", 100).unwrap_or_default();
            assert!(read.is_empty() || read == b"mine", "{round}: {read:?}");
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
}

#[test]
fn a_file_is_read_up_to_a_bound() {
    let folder = TestFolder::new();
    File::create(folder.inside("sparse")).unwrap().set_len(50 << 30).unwrap();
    fs::write(folder.inside("ten"), "0123456789").unwrap();
    let dir = folder.dir();
    for (name, max_bytes) in [("sparse", 1 << 20), ("ten", 9)] {
        let refused = dir.read(name, max_bytes);
        assert!(matches!(refused, Err(FilesError::TooLarge { .. })), "{name}: {refused:?}");
    }
    assert_eq!(dir.read("ten", 10).unwrap(), b"0123456789");
    // The system reports the size 0 for this file.
    let system = UntrustedDir::open(Path::new("/proc/self")).err();
    assert!(matches!(system, Some(FilesError::Link(_))), "{system:?}");
    let memory = UntrustedDir::open(Path::new("/proc/sys")).unwrap().read("kernel/version", 3);
    assert!(matches!(memory, Err(FilesError::TooLarge { .. })), "{memory:?}");
}

#[test]
fn replace_dir_removes_entries_that_are_no_folders() {
    let folder = TestFolder::new();
    let dir = folder.dir();
    for what in ["link", "file link", "loop", "pipe", "file"] {
        let _ = fs::remove_dir_all(folder.inside("a"));
        match what {
            "link" => symlink(folder.outside(""), folder.inside("a")).unwrap(),
            "file link" => symlink(folder.outside("secret"), folder.inside("a")).unwrap(),
            "loop" => symlink("a", folder.inside("a")).unwrap(),
            "pipe" => folder.pipe("a"),
            _ => fs::write(folder.inside("a"), "").unwrap(),
        }
        assert!(dir.create_dir("a/b").is_err(), "{what}");
        dir.replace_dir("a/b").unwrap().write("c", b"1").unwrap();
        assert_eq!(fs::read(folder.inside("a/b/c")).unwrap(), b"1", "{what}");
        dir.replace_dir("a/b").unwrap();
        assert!(folder.inside("a/b/c").exists(), "{what}: a folder stays");
    }
    folder.assert_outside_untouched();
}

#[test]
fn a_deep_tree_is_walked_and_removed_with_little() {
    const DEPTH: usize = 20_000;
    let folder = TestFolder::new();
    folder.nest("a/deep", DEPTH);
    folder.nest("b", 100);
    fs::write(folder.inside("a/file"), "12").unwrap();
    let dir = folder.dir();
    let (mut bytes, mut told) = (0, 0);
    let summary = dir.walk(100_000, |entry| {
        bytes += if entry.stat.kind == EntryKind::File { entry.stat.size } else { 0 };
        told += usize::from(entry.path.is_some());
    });
    let expected = DEPTH + 100 + 6;
    assert_eq!(summary, WalkSummary { entries: expected, unreadable: 0, is_complete: true });
    assert_eq!(bytes, 4 + 4 + 2);
    assert!(told > 2_000 && told < 2_500, "{told} paths");
    assert!(!dir.walk(1_000, |_| {}).is_complete);
    // A small stack, and fewer descriptors than levels.
    let small = std::thread::Builder::new().stack_size(256 * 1024);
    let removing = small.spawn(move || {
        folder.trash().remove(&folder.dir(), "a").unwrap();
        folder
    });
    let folder = removing.unwrap().join().unwrap();
    assert!(!folder.inside("a").exists() && folder.inside("b").exists());
    assert!(folder.trash_is_empty());
}

#[test]
fn a_walk_names_what_it_finds_and_follows_nothing() {
    let folder = TestFolder::new();
    for path in ["a/b/c", "a/d", "e", "z/y/x/w"] {
        fs::create_dir_all(folder.inside(path).parent().unwrap()).unwrap();
        fs::write(folder.inside(path), path).unwrap();
    }
    symlink(folder.outside(""), folder.inside("a/link")).unwrap();
    symlink("..", folder.inside("a/b/up")).unwrap();
    folder.pipe("pipe");
    let mut found = Vec::new();
    let summary = folder.dir().walk(1_000, |entry| {
        if entry.stat.kind == EntryKind::File {
            found.push((entry.path.unwrap().display().to_string(), entry.stat.size));
        }
    });
    found.sort();
    let expected = [("a/b/c", 5), ("a/d", 3), ("e", 1), ("z/y/x/w", 7)];
    assert_eq!(found, expected.map(|(path, size)| (path.to_owned(), size)));
    assert!(summary.is_complete);
    let mut names: Vec<_> =
        folder.dir().entries(100).unwrap().into_iter().map(|e| e.name).collect();
    names.sort();
    assert_eq!(names, ["a", "e", "pipe", "z"]);
    assert_eq!(folder.dir().entries(2).unwrap().len(), 2);
}

#[test]
fn everything_can_be_removed_and_nothing_else_is() {
    let folder = TestFolder::new();
    let (dir, trash) = (folder.dir(), folder.trash());
    fs::create_dir_all(folder.inside("a/b/c")).unwrap();
    for number in 0..3_000 {
        fs::write(folder.inside(&format!("a/{number}")), "").unwrap();
        fs::create_dir_all(folder.inside(&format!("a/b/{number}/x"))).unwrap();
    }
    symlink(folder.outside(""), folder.inside("a/b/link")).unwrap();
    fs::hard_link(folder.outside("secret"), folder.inside("a/hard")).unwrap();
    folder.pipe("a/b/c/pipe");
    for closed in ["a/b/c", "a/b", "a"] {
        fs::set_permissions(folder.inside(closed), fs::Permissions::from_mode(0o000)).unwrap();
    }
    symlink(folder.outside(""), folder.inside("link")).unwrap();
    fs::create_dir(folder.inside("empty")).unwrap();
    for name in ["a", "link", "empty", "missing", "missing/too"] {
        trash.remove(&dir, name).unwrap();
    }
    assert_eq!(fs::read_dir(folder.inside("")).unwrap().count(), 0);
    assert!(folder.trash_is_empty());
    folder.assert_outside_untouched();
}

#[test]
fn what_a_killed_process_left_in_the_trash_is_removed() {
    let folder = TestFolder::new();
    let trash = folder.trash();
    let left = folder.place.path().join("trash");
    fs::create_dir_all(left.join("old/0/a/b")).unwrap();
    fs::create_dir_all(left.join("old/7")).unwrap();
    fs::write(left.join("old/7/file"), "").unwrap();
    symlink(folder.outside(""), left.join("old/7/link")).unwrap();
    fs::write(left.join("file"), "").unwrap();
    // One that another process is at work on.
    fs::create_dir_all(left.join("busy/0")).unwrap();
    let busy = File::open(left.join("busy")).unwrap();
    busy.lock().unwrap();
    trash.empty().unwrap();
    let names: Vec<_> = fs::read_dir(&left).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(names, ["busy"]);
    drop(busy);
    trash.empty().unwrap();
    assert!(folder.trash_is_empty());
    folder.assert_outside_untouched();
}

#[test]
fn handing_over_a_folder_skips_files_of_other_users() {
    const AGENT: FileOwner = FileOwner { uid: 4_711, gid: 4_712 };
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root gives files away");
        return;
    }
    let folder = TestFolder::new();
    fs::create_dir_all(folder.inside("a/b")).unwrap();
    fs::write(folder.inside("a/file"), "").unwrap();
    fs::hard_link(folder.outside("secret"), folder.inside("a/hard")).unwrap();
    symlink(folder.outside("secret"), folder.inside("a/link")).unwrap();
    symlink(folder.outside(""), folder.inside("a/folder")).unwrap();
    folder.pipe("pipe");
    folder.nest("deep", 5_000);
    let dir = folder.dir();
    let done = dir.hand_over(AGENT, 100_000).unwrap();
    // agent, a, a/b, a/file, deep, its 5,000 folders and the leaf
    assert_eq!(done, HandOver { changed: 5_006, refused: 1, is_complete: true });
    let owner = |path: PathBuf| {
        let found = fs::symlink_metadata(path).unwrap();
        (found.uid(), found.gid())
    };
    for path in ["", "a", "a/b", "a/file", "deep/d/d"] {
        assert_eq!(owner(folder.inside(path)), (AGENT.uid, AGENT.gid), "{path}");
    }
    for path in ["", "secret", "deep"] {
        assert_eq!(owner(folder.outside(path)), (0, 0), "{path}");
    }
    assert_eq!(owner(folder.inside("a/link")), (0, 0));
    // What another user's file is behind a second name is not read, either.
    assert!(matches!(dir.read("a/hard", 100), Err(FilesError::ForeignHardLink(_))));
    assert_eq!(dir.hand_over(AGENT, 100_000).unwrap().changed, 0);
    assert!(!dir.hand_over(AGENT, 100).unwrap().is_complete);

    let dir = dir.with_owner(Some(AGENT));
    dir.create_dir("new/er").unwrap().write("file", b"1").unwrap();
    dir.replace_dir("pipe/x").unwrap();
    for path in ["new", "new/er", "new/er/file", "pipe", "pipe/x"] {
        assert_eq!(owner(folder.inside(path)), (AGENT.uid, AGENT.gid), "{path}");
    }
}
