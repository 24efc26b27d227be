//! The door over a real store: what is asked over HTTP, what is answered.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "the helpers of tests fail like tests"
)]

mod access;
mod audit;
mod bad_input;
mod docs;
mod events;
mod fuzz;
mod health;
mod hooks;
mod limits;
mod openapi;
mod resources;
mod serving;
mod teams;
mod world;
