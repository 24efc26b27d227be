//! What `/proc` says about processes. World-readable entries only, so that root without
//! `CAP_SYS_PTRACE` (a plain container) may look at the server's account too.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The effective user of this process.
pub(crate) fn effective_uid() -> Option<u32> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let uids = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    uids.split_whitespace().nth(1)?.parse().ok()
}

/// When a process started, in ticks since boot: with the pid, the identity of a process. `None`
/// if it is gone or a zombie.
pub(crate) fn start_time(pid: u32) -> Option<u64> {
    parse_start_time(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// The pid namespace: two containers that share a temporary folder must not judge each other's
/// pids.
pub(crate) fn pid_namespace() -> String {
    fs::read_link("/proc/self/ns/pid")
        .map_or_else(|_| String::new(), |link| link.to_string_lossy().into_owned())
}

/// Whether a process was started with this path as an argument, as a server is with its data
/// folder.
pub(crate) fn has_argument(pid: u32, path: &Path) -> bool {
    let Ok(arguments) = fs::read(format!("/proc/{pid}/cmdline")) else { return false };
    arguments.split(|byte| *byte == 0).any(|argument| argument == path.as_os_str().as_bytes())
}

fn parse_start_time(stat: &str) -> Option<u64> {
    // The second field is the program's name in brackets and may hold spaces and brackets.
    let (_, after_name) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = after_name.split_whitespace().collect();
    let state = *fields.first()?;
    if matches!(state, "Z" | "X") {
        return None;
    }
    fields.get(19)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stat_line_gives_the_start_time_whatever_the_name() {
        let after_state = "1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4711 20 21";
        assert_eq!(parse_start_time(&format!("9 (a) b (c)) S {after_state}")), Some(4711));
        assert_eq!(parse_start_time(&format!("9 (zombie) Z {after_state}")), None);
        assert_eq!(parse_start_time("nonsense"), None);
    }

    #[test]
    fn this_process_is_alive_and_started_with_its_program() {
        let this = std::process::id();
        assert!(start_time(this).is_some());
        let program = std::env::args_os().next().expect("a program name");
        assert!(has_argument(this, Path::new(&program)));
        assert!(!has_argument(this, Path::new("/no/such/argument")));
    }
}
