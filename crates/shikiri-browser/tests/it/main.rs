//! The bridge with a real Chromium, against pages of our own.

#![expect(clippy::unwrap_used, reason = "helpers of tests stand outside #[test]")]

mod crowd;
mod devtools;
mod endings;
mod hindrances;
mod login;
mod pages;
mod starting;
mod world;
