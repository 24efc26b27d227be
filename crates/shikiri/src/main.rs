//! Everything is in the library.

use std::path::Path;
use std::process::ExitCode;

/// A turn is hundreds of small allocations, made and freed on different threads; musl's allocator,
/// which a static build would have, takes a lock for each.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    // Before anything else: Claude Code waits for a hook at every tool call.
    let mut words = std::env::args_os().skip(1);
    if words.next().is_some_and(|word| word == "hook") {
        match (words.next(), words.next()) {
            (None, _) => shikiri_hook::answer_and_exit(),
            (Some(word), Some(database)) if word == shikiri_hook::TIDY => {
                shikiri_hook::tidy_and_exit(Path::new(&database))
            }
            _ => {}
        }
    }
    // An engine and the browser bridge start this program again to look after what they run.
    shikiri_engines::claude_code::supervise_if_asked()
        .or_else(shikiri_browser::keep_if_asked)
        .unwrap_or_else(shikiri::cli::main)
}
