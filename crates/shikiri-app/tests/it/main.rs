//! Use cases on a real SQLite store with a clock that the test moves.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test stops at the first surprise")]
mod flaky;
mod journal;
mod outage;
mod runs;
mod samples;
mod tenants;
mod watch;
mod world;
