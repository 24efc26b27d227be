//! The event log: how much of the disk's speed is left when every caller waits for its own
//! durable commit, how soon readers see it, and whether size matters.

mod append;
mod lease;
pub(crate) mod postgres;
pub(crate) mod reader;
mod replay;
mod wake;

use std::path::Path;
use std::sync::Arc;

use anyhow::Result;
use shikiri_store::sqlite::{SqliteOptions, SqliteStore};

use crate::figure::Figure;
use crate::world::World;

pub(crate) fn measure(world: &World) -> Result<Vec<Figure>> {
    let mut figures = Vec::new();
    if world.wants("append") {
        figures.extend(append::measure(world)?);
    }
    if world.wants("wake") {
        figures.extend(wake::measure(world)?);
    }
    if world.wants("replay") {
        figures.extend(replay::measure(world)?);
    }
    if world.wants("lease") {
        figures.extend(lease::measure(world)?);
    }
    Ok(figures)
}

/// A store as a server has it: every commit on the disk.
fn open(path: &Path) -> Result<Arc<SqliteStore>> {
    Ok(Arc::new(SqliteStore::open(path, SqliteOptions::default())?))
}
