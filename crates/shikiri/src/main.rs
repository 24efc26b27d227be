//! Everything is in the library.

use std::process::ExitCode;

/// A turn is hundreds of small allocations, made and freed on different threads; musl's allocator,
/// which a static build would have, takes a lock for each.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    // An engine starts this program again to look after what it runs.
    shikiri_engines::claude_code::supervise_if_asked().unwrap_or_else(shikiri::cli::main)
}
