//! Keeps the database's write-ahead log short. A hook with exclusive access reads the whole log at
//! every tool call. A checkpoint waits for the disk, so a separate process does it.

use std::ffi::OsStr;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use shikiri_sqlite::{DatabaseOptions, SqliteDatabase, SynchronousMode};

use crate::DEADLINE;

/// The argument before the database's path that starts the clean-up instead of a hook.
pub const TIDY: &str = "--tidy";

/// About eight tool calls. A longer log would slow each call, a shorter one would start a process
/// more often.
const LONG_LOG: u64 = 64 * 1024;

pub(crate) fn is_due(database: &Path) -> bool {
    let mut log = database.as_os_str().to_owned();
    log.push("-wal");
    std::fs::metadata(log).is_ok_and(|found| found.len() > LONG_LOG)
}

/// Starts the clean-up process. If that fails, the next hook tries again.
pub(crate) fn spawn_wal_cleanup(database: &Path) {
    let _ = start(database);
}

fn start(database: &Path) -> io::Result<()> {
    // Started like this process: `shikiri hook`, or the hook's own program.
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

/// Truncates the log and ends the process. There is no one to report a failure to.
pub fn truncate_wal_and_exit(database: &Path) -> ! {
    let options = DatabaseOptions {
        synchronous: SynchronousMode::Normal,
        busy_timeout: DEADLINE,
        checkpoint_on_close: false,
        brief: false,
    };
    if let Ok(mut database) = SqliteDatabase::open(database, &options) {
        let _ = database.truncate_wal();
    }
    std::process::exit(0)
}
