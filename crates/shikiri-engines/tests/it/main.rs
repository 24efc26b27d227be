//! The engines as their callers meet them.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "helpers of tests stand outside #[test]"
)]

mod claude_code;
mod native;
