#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stderr)]
#[path = "it/mcp"]
mod mcp {
    mod claude_code;
}
const PROGRAM: &str = env!("CARGO_BIN_EXE_shikiri");
