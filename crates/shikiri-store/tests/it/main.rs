//! The store's stories, each told on SQLite and on PostgreSQL. Without `SHIKIRI_TEST_POSTGRES`
//! the second half is skipped, loudly; with `CI=true` that is a failure.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stderr,
    reason = "helpers of tests stand outside #[test]"
)]

mod agreement;
mod claims;
mod due;
mod following;
mod hooks;
mod lease_waits;
mod leases;
mod listing;
mod model;
mod pages;
mod parity;
mod postgres_cut;
mod postgres_order;
mod postgres_races;
mod postgres_restart;
mod postgres_start;
mod postgres_wake;
mod postgres_world;
mod records;
mod retention;
mod sharing;
mod steps;
mod streams;
mod table_columns;
mod teams_view;
mod totals;
mod whole;
mod words;
mod world;
