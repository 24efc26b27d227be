//! The engines as their callers meet them: `scenarios` are those that all of them have, the others
//! are what one kind has alone.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "helpers of tests stand outside #[test]"
)]

mod claude_code;
mod native;
mod outcome;
mod scenarios;
mod world;
