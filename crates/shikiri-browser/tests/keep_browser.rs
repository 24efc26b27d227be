//! The keeper of a started browser, as a program of its own.

fn main() -> std::process::ExitCode {
    shikiri_browser::run_keeper_if_requested().unwrap_or(std::process::ExitCode::FAILURE)
}
