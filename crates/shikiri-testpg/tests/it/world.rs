//! What the tests look with: `psql` on a cluster, `/proc`, and patience.

use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};
use std::{fs, thread};

use shikiri_testpg::Installed;

/// Runs one statement and gives its bare output.
pub(crate) fn query(installed: &Installed, url: &str, sql: &str) -> Result<String, String> {
    let output = psql(installed, url, sql);
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    } else {
        Err(String::from_utf8_lossy(&output.stderr).trim().to_owned())
    }
}

fn psql(installed: &Installed, url: &str, sql: &str) -> Output {
    Command::new(installed.program("psql"))
        .args(["--no-psqlrc", "--quiet", "--tuples-only", "--no-align", "--no-password"])
        .args(["--command", sql, url])
        .current_dir("/")
        .output()
        .expect("psql runs")
}

pub(crate) fn server_pid(data_dir: &Path) -> u32 {
    let pid_file = fs::read_to_string(data_dir.join("postmaster.pid")).expect("a pid file");
    pid_file.lines().next().expect("a line").parse().expect("a pid")
}

/// A process that still runs our server: not gone, not a zombie, not another program.
pub(crate) fn serves(pid: u32, data_dir: &Path) -> bool {
    let command = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&command).contains(&*data_dir.to_string_lossy())
}

pub(crate) fn wait_until(what: &str, condition: impl Fn() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < Duration::from_secs(30), "waited 30 s until {what}");
        thread::sleep(Duration::from_millis(50));
    }
}
