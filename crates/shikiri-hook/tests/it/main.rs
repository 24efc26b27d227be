//! The hook from outside, and a turn of it in this process: replays of what Claude Code sent, crowds
//! of hooks on one database, and everything that can be wrong around them.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stderr,
    reason = "helpers of tests stand outside #[test]"
)]

mod bad_ground;
mod bad_input;
mod capture;
mod crowd;
mod delivery;
mod faults;
mod guardrails;
mod process;
mod replay;
mod rows;
mod store;
mod tidy;
mod world;
