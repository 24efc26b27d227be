//! Creators that die without dropping their cluster. The creator is this test program itself,
//! run again with only the ignored test `creator` below.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use std::{env, fs, thread};

use shikiri_testpg::{Cluster, Installed};

use crate::world::{server_pid, serves, wait_until};

#[test]
fn a_killed_creator_takes_its_cluster_with_it() {
    let Some(_) = Installed::find_or_skip("a_killed_creator") else { return };
    let mut creator = Creator::start_in(&env::temp_dir());
    let server = server_pid(&creator.data_dir);
    assert!(serves(server, &creator.data_dir));

    creator.kill();

    wait_until("the guard ends the server", || !serves(server, &creator.data_dir));
    wait_until("the guard removes the folder", || !creator.folder().exists());
}

#[test]
fn a_later_start_sweeps_what_creator_and_guard_left() {
    let Some(_) = Installed::find_or_skip("a_later_start_sweeps") else { return };
    // A temporary folder of their own: the other tests' starts sweep the common one.
    let root = OwnRoot::new();
    let mut creator = Creator::start_in(&root.0);
    let server = server_pid(&creator.data_dir);
    let guard = fs::read_to_string(creator.folder().join("guard")).expect("the guard's pid");

    let status = Command::new("/bin/sh").args(["-c", "kill -9 \"$1\"", "sh", &guard]).status();
    assert!(status.expect("kill runs").success());
    // The guard is the creator's child and stays a zombie while the creator lives.
    wait_until("the guard is dead", || {
        fs::read(format!("/proc/{guard}/cmdline")).unwrap_or_default().is_empty()
    });
    creator.kill();
    assert!(serves(server, &creator.data_dir), "no process is left that would end it");

    let mut later = Creator::start_in(&root.0);

    assert!(!serves(server, &creator.data_dir));
    assert!(!creator.folder().exists());
    later.kill();
    wait_until("the later guard removes its folder", || !later.folder().exists());
}

/// Not a test: starts a cluster, tells where, and waits to be killed.
#[test]
#[ignore = "run by the tests above as a process of its own"]
fn creator() {
    if env::var_os("SHIKIRI_TESTPG_CREATOR").is_none() {
        return;
    }
    let installed = Installed::find().expect("PostgreSQL");
    let cluster = Cluster::start(&installed).expect("a cluster");
    let mut out = std::io::stdout();
    writeln!(out, "\ndata_dir={}", cluster.data_dir().display()).expect("a reader");
    thread::sleep(Duration::from_secs(120));
}

struct Creator {
    process: Child,
    data_dir: PathBuf,
}

impl Creator {
    fn start_in(temporary_root: &Path) -> Creator {
        let mut process = Command::new(env::current_exe().expect("this program"))
            .args(["--ignored", "--exact", "abandoned::creator", "--nocapture"])
            .env("SHIKIRI_TESTPG_CREATOR", "1")
            .env("TMPDIR", temporary_root)
            .stdout(Stdio::piped())
            .spawn()
            .expect("a creator");
        let out = BufReader::new(process.stdout.take().expect("its output"));
        let data_dir = out
            .lines()
            .map_while(Result::ok)
            .find_map(|line| line.strip_prefix("data_dir=").map(PathBuf::from))
            .expect("the creator tells its data folder");
        Creator { process, data_dir }
    }

    fn folder(&self) -> PathBuf {
        self.data_dir.parent().expect("a folder").to_path_buf()
    }

    /// As `kill -9` does: no destructor runs.
    fn kill(&mut self) {
        self.process.kill().expect("a kill");
        self.process.wait().expect("an end");
    }
}

struct OwnRoot(PathBuf);

impl OwnRoot {
    fn new() -> OwnRoot {
        let root = env::temp_dir().join(format!("shikiri-sweep-{}", std::process::id()));
        fs::create_dir_all(&root).expect("a folder");
        // The server's account must be able to pass through.
        fs::set_permissions(&root, fs::Permissions::from_mode(0o755)).expect("its mode");
        OwnRoot(root)
    }
}

impl Drop for OwnRoot {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
