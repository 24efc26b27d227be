//! Starts this test binary again as other processes.

use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use tempfile::TempDir;

const PART: &str = "SHIKIRI_TEST_PART";
const NUMBER: &str = "SHIKIRI_TEST_NUMBER";
const FILE: &str = "SHIKIRI_TEST_FILE";
const SIGNALS: &str = "SHIKIRI_TEST_SIGNALS";

const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) fn place() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state.db");
    (folder, path)
}

/// Processes that play the same part on one file.
pub(crate) struct Crew {
    children: Mutex<Vec<std::process::Child>>,
    /// Where they and we say things to each other, as files.
    signals: TempDir,
}

impl Crew {
    pub(crate) fn start(count: usize, part: &str, path: &Path) -> Self {
        Self::start_with(count, part, path, std::env::current_exe().unwrap(), |_| {})
    }

    /// One child that is not root: root may write everywhere.
    pub(crate) fn start_without_rights(part: &str, path: &Path) -> Self {
        let readable = tempfile::tempdir().unwrap();
        std::fs::set_permissions(readable.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        let program = readable.path().join("it");
        // Another process copies: a descriptor open for writing here would be inherited by any
        // child that another test starts just now, and running the copy would find it busy.
        let copied =
            Command::new("cp").arg(std::env::current_exe().unwrap()).arg(&program).status();
        assert!(copied.unwrap().success());
        let crew = Self::start_with(1, part, path, program, |command| {
            if rustix::process::geteuid().is_root() {
                command.uid(65_534).gid(65_534);
            }
        });
        crew.all_end();
        crew
    }

    fn start_with(
        count: usize,
        part: &str,
        path: &Path,
        program: PathBuf,
        adjust: impl Fn(&mut Command),
    ) -> Self {
        let signals = tempfile::tempdir().unwrap();
        let children = (0..count).map(|number| {
            let mut command = Command::new(&program);
            command
                .args(["--exact", "child", "--nocapture", "--test-threads=1"])
                .env(PART, part)
                .env(NUMBER, number.to_string())
                .env(FILE, path)
                .env(SIGNALS, signals.path())
                .stdout(Stdio::null());
            adjust(&mut command);
            command.spawn().unwrap()
        });
        Self { children: Mutex::new(children.collect()), signals }
    }

    /// Lets all of them begin at the same moment.
    pub(crate) fn go(&self) {
        // Long enough for the processes to be there; without it the test is only weaker.
        std::thread::sleep(Duration::from_millis(150));
        std::fs::write(self.signals.path().join("go"), "").unwrap();
    }

    pub(crate) fn wait_for(&self, word: &str) {
        wait_for_file(&self.signals.path().join(word));
    }

    pub(crate) fn all_succeed(&self) {
        for child in self.children.lock().unwrap().iter_mut() {
            assert!(child.wait().unwrap().success());
        }
    }

    pub(crate) fn all_end(&self) {
        for child in self.children.lock().unwrap().iter_mut() {
            child.wait().unwrap();
        }
    }

    pub(crate) fn kill(&self) {
        for child in self.children.lock().unwrap().iter_mut() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        for child in self.children.lock().unwrap().iter_mut() {
            // It has ended already unless the test failed.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// What a child was told.
pub(crate) struct Child {
    pub(crate) part: String,
    pub(crate) number: usize,
    pub(crate) path: PathBuf,
    signals: PathBuf,
}

impl Child {
    pub(crate) fn from_environment() -> Option<Self> {
        Some(Self {
            part: std::env::var(PART).ok()?,
            number: std::env::var(NUMBER).ok()?.parse().ok()?,
            path: std::env::var_os(FILE)?.into(),
            signals: std::env::var_os(SIGNALS)?.into(),
        })
    }

    pub(crate) fn wait_for_go(&self) {
        wait_for_file(&self.signals.join("go"));
    }

    pub(crate) fn say(&self, word: &str) {
        std::fs::write(self.signals.join(word), "").unwrap();
    }
}

fn wait_for_file(path: &Path) {
    let started = Instant::now();
    while !path.exists() {
        assert!(started.elapsed() < PATIENCE, "no process said {}", path.display());
        std::thread::sleep(Duration::from_micros(200));
    }
}
