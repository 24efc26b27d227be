//! The nouns and rules of Shikiri.
//!
//! Nothing here does I/O, reads a clock or awaits: time and randomness are passed in, and what
//! should happen comes back as a value. So every rule can be tested as a table, and the same rule
//! decides for the server, a hook process and a test.

pub mod audit;
pub mod confinement;
pub mod connection;
pub mod conversation;
pub mod cursor;
pub mod event;
pub mod execution;
pub mod hook;
pub mod host;
pub mod ids;
pub mod invisible;
pub mod journal;
pub mod key;
pub mod lane;
pub mod lease;
pub mod models;
pub mod native;
pub mod record;
pub mod run;
pub mod server;
pub mod skill;
pub mod team;
pub mod tenant;
pub mod time;
pub mod tool;
