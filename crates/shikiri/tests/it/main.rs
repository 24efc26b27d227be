//! The whole program, as its users and their accidents meet it.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stderr,
    reason = "helpers of tests stand outside #[test]"
)]

mod chaos;
