//! Real clusters. Without PostgreSQL the tests say that they are skipped; with `CI=true` they
//! fail instead.

#![expect(clippy::expect_used, reason = "helpers of tests stand outside #[test]")]

mod abandoned;
mod lifecycle;
mod world;
