//! A project's own files start, open, redirect and receive nothing before the person agreed. Each
//! attack is a cloned repository, and the real program in it.

mod audited;
mod data_folder;
mod keys;
mod programs;
mod servers;
mod terminal;

use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use shikiri_testkit::{Cli, until_blocking};
use tempfile::TempDir;

use crate::PROGRAM;

/// A repository that a stranger wrote, freshly cloned, and a person's home folder beside it.
struct ClonedRepository {
    folder: TempDir,
}

impl ClonedRepository {
    fn with(files: &[(&str, &str)]) -> Self {
        Self::made_by(|root| {
            for (name, text) in files {
                let path = root.join(name);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(&path, text).unwrap();
                make_executable(&path, name.ends_with(".sh"));
            }
        })
    }

    fn made_by(fill: impl FnOnce(&Path)) -> Self {
        let folder = TempDir::new().unwrap();
        let origin = folder.path().join("origin");
        fs::create_dir(&origin).unwrap();
        fill(&origin);
        git(&origin, &["init", "-q"]);
        git(&origin, &["add", "-A", "-f"]);
        let person = ["-c", "user.name=stranger", "-c", "user.email=s@stranger.example"];
        git(&origin, &[&person[..], &["commit", "-q", "-m", "all"]].concat());
        git(folder.path(), &["clone", "-q", "origin", "project"]);
        fs::create_dir(folder.path().join("home")).unwrap();
        Self { folder }
    }

    fn root(&self) -> PathBuf {
        self.folder.path().join("project").canonicalize().unwrap()
    }

    fn home(&self) -> PathBuf {
        self.folder.path().join("home")
    }

    /// The agreements of this person.
    fn trust_file(&self) -> PathBuf {
        self.home().join(".local/state/shikiri/trust.json")
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.root().join(name), text).unwrap();
    }

    /// The program as a script calls it: without a terminal.
    fn cli(&self) -> Cli {
        Cli::new(PROGRAM, self.root()).env("HOME", self.home())
    }

    /// `shikiri trust FOLDER`, as refusals have to name it.
    fn trust_command(&self) -> String {
        format!("`shikiri trust {}`", self.root().display())
    }

    #[track_caller]
    fn assert_untouched(&self, what: &str) {
        assert!(!self.root().join(".shikiri").exists(), "{what} made a data folder");
    }
}

fn make_executable(path: &Path, is_executable: bool) {
    use std::os::unix::fs::PermissionsExt as _;
    if is_executable {
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }
}

fn git(folder: &Path, words: &[&str]) {
    let mut command = Command::new("git");
    command.current_dir(folder).env_clear().env("HOME", folder).stdout(Stdio::null());
    command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
    assert!(command.args(words).status().unwrap().success(), "git {words:?}");
}

/// A stranger's address: it counts who came.
struct Listener {
    address: SocketAddr,
    visits: Arc<AtomicUsize>,
}

impl Listener {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (address, visits) = (listener.local_addr().unwrap(), Arc::new(AtomicUsize::new(0)));
        let counted = Arc::clone(&visits);
        // Ends with the test's process.
        std::thread::spawn(move || {
            for visitor in listener.incoming() {
                counted.fetch_add(1, Ordering::SeqCst);
                drop(visitor);
            }
        });
        Self { address, visits }
    }

    /// A program that comes to this address.
    fn caller(&self) -> String {
        let SocketAddr::V4(address) = self.address else { panic!("{}", self.address) };
        format!("#!/bin/bash\n: > /dev/tcp/{}/{}\n", address.ip(), address.port())
    }

    #[track_caller]
    fn assert_unvisited(&self) {
        // A connection that was made is accepted at once, also by a slow machine.
        std::thread::sleep(std::time::Duration::from_millis(50));
        assert_eq!(self.visits.load(Ordering::SeqCst), 0, "a request came");
    }

    #[track_caller]
    fn assert_visited(&self) {
        until_blocking("a connection comes", || self.visits.load(Ordering::SeqCst) > 0);
    }
}
