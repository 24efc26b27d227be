//! Teams, through the real server and its doors.

mod bad_input;
mod chaos;
mod cli;
mod coordinator;
mod door;
mod message_budget;
mod permissions;
mod places;
mod real_cli;
mod sibling;
mod use_cases;
pub(crate) mod world;
