//! The supervisor of the claude-code engine, as a program of its own.

fn main() -> std::process::ExitCode {
    shikiri_engines::claude_code::supervise_if_asked().unwrap_or(std::process::ExitCode::FAILURE)
}
