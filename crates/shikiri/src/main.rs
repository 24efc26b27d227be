//! Everything is in the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    // An engine starts this program again to look after what it runs.
    shikiri_engines::claude_code::supervise_if_asked().unwrap_or_else(shikiri::cli::main)
}
