//! Measures the memory and tasks of a run's processes from `/proc`.

use std::fs;

/// What the processes of a run use together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryUse {
    /// Pages of their own and shared ones in memory. Programs and libraries do not count: the kernel
    /// can drop those.
    pub bytes: u64,
    /// Processes and threads.
    pub tasks: u64,
}

/// Processes that are counted: more than any limit allows.
const MOST: usize = 100_000;

/// The use of all descendants of this process.
pub fn tree_use(root: u32) -> MemoryUse {
    let mut total = MemoryUse::default();
    let mut left = vec![root];
    let mut seen = 0;
    while let Some(process) = left.pop() {
        seen += 1;
        if seen > MOST {
            break;
        }
        let children = fs::read_to_string(format!("/proc/{process}/task/{process}/children"));
        let children = children.unwrap_or_default();
        left.extend(children.split_ascii_whitespace().filter_map(|pid| pid.parse::<u32>().ok()));
        left.extend(children_of_threads(process));
        if process != root {
            let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
            total.bytes += kib(&status, "RssAnon:").saturating_add(kib(&status, "RssShmem:")) << 10;
            total.tasks += kib(&status, "Threads:").max(1);
        }
    }
    total
}

/// Children that another thread than the first has started.
fn children_of_threads(process: u32) -> Vec<u32> {
    let threads = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    let mut found = Vec::new();
    for thread in threads.filter(|thread| thread.file_name() != *process.to_string()) {
        let children = fs::read_to_string(thread.path().join("children")).unwrap_or_default();
        found.extend(children.split_ascii_whitespace().filter_map(|pid| pid.parse::<u32>().ok()));
    }
    found
}

/// The number after a name in `/proc/PID/status`.
fn kib(status: &str, name: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}
