//! Everything is in the library.

fn main() -> std::process::ExitCode {
    shikiri::cli::main()
}
