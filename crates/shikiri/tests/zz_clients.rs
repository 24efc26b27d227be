#![allow(clippy::all, dead_code)]
mod it {
    pub mod mcp {
        pub mod clients;
        pub mod heartbeats;
        pub mod served;
    }
}
const PROGRAM: &str = env!("CARGO_BIN_EXE_shikiri");
