//! Shikiri's SQLite file: opened, built, migrated, checked, copied and put back here, and nowhere
//! else. Everything blocks and nothing needs a runtime, so the server's store and a hook process
//! that lives for a millisecond use the same code.

mod busy;
mod create;
mod error;
mod files;
pub mod hooks;
mod lock;
pub mod maintenance;
pub mod migrate;
mod open;
mod set_aside;
pub mod version;

pub use error::OpenError;
pub use migrate::{MIGRATIONS, Migration};
pub use open::{Database, OpenOptions, Synchronous, Wait};
pub use set_aside::set_aside_torn;
