//! Everything is in the library.

use std::path::Path;
use std::process::ExitCode;

/// A turn makes hundreds of small allocations, freed on different threads. The allocator of musl,
/// which static builds would use, takes a lock for each.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    // First of all, because Claude Code waits for a hook at every tool call.
    let mut words = std::env::args_os().skip(1);
    if words.next().is_some_and(|word| word == "hook") {
        match (words.next(), words.next()) {
            (None, _) => shikiri_hook::answer_and_exit(),
            (Some(word), Some(database)) if word == shikiri_hook::TIDY => {
                shikiri_hook::truncate_wal_and_exit(Path::new(&database))
            }
            _ => {}
        }
    }
    // An engine and the browser bridge start this program again to supervise their child processes.
    shikiri_engines::claude_code::run_supervisor_if_requested()
        .or_else(shikiri_browser::run_keeper_if_requested)
        .unwrap_or_else(shikiri::cli::main)
}
