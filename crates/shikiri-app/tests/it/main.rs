//! Use cases on a real store with a clock that the test moves: SQLite, and lanes on PostgreSQL too.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test stops at the first surprise")]
mod connections;
mod conversations;
mod executions;
mod flaky;
mod gate;
mod hooks;
mod journal;
mod lanes;
mod outage;
mod redirects;
mod runs;
mod sample_schemas;
mod samples;
mod starts;
mod steps;
mod team;
mod tenants;
mod updates;
mod usage;
mod vault;
mod watch;
mod world;
