//! The keeper of a started browser, as a program of its own.

fn main() -> std::process::ExitCode {
    shikiri_browser::keep_if_asked().unwrap_or(std::process::ExitCode::FAILURE)
}
