//! The supervisor of the claude-code engine, as a program of its own.

fn main() -> std::process::ExitCode {
    shikiri_engines::claude_code::run_supervisor_if_requested()
        .unwrap_or(std::process::ExitCode::FAILURE)
}
