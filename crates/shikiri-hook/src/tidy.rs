//! Keeps the database's log of writes short. A hook that has the database for itself reads that log
//! first, all of it, at every tool call. Moving it into the database means waiting for the disk, so
//! a process of its own does that, which nobody waits for.

use std::ffi::OsStr;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use shikiri_sqlite::{Database, OpenOptions, Synchronous};

use crate::DEADLINE;

/// The word before the database's path that makes a hook program tidy up instead.
pub const TIDY: &str = "--tidy";

/// Sixteen calls of tools. More would cost each of them more to read, less would have more of them
/// start a process.
const LONG_LOG: u64 = 64 * 1024;

pub(crate) fn is_due(database: &Path) -> bool {
    let mut log = database.as_os_str().to_owned();
    log.push("-wal");
    std::fs::metadata(log).is_ok_and(|found| found.len() > LONG_LOG)
}

/// Starts the process. If that fails, the next hook tries again.
pub(crate) fn begin(database: &Path) {
    let _ = start(database);
}

fn start(database: &Path) -> io::Result<()> {
    // As this one was started: `shikiri hook`, or the hook's own program.
    let words = std::env::args_os().skip(1);
    Command::new(std::env::current_exe()?)
        .args(words)
        .args([OsStr::new(TIDY), database.as_os_str()])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()
        .map(drop)
}

/// Shortens the log, and ends the process. Nobody is there to hear of a failure.
pub fn tidy_and_exit(database: &Path) -> ! {
    let options = OpenOptions {
        synchronous: Synchronous::Normal,
        busy_timeout: DEADLINE,
        checkpoint_on_close: false,
        brief: false,
    };
    if let Ok(mut database) = Database::open(database, &options) {
        let _ = database.shorten_log();
    }
    std::process::exit(0)
}
