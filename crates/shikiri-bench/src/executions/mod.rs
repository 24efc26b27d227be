//! Executions, from the request to the last event at its reader, with the offline engine at full
//! speed; and what the claude-code engine and its sandbox add, with a CLI that does nothing but write
//! lines.
//! Server, callers and CLI are processes of their own.

pub(crate) mod ages;
pub(crate) mod callers;
mod cli;
mod crowd;
pub(crate) mod fake_claude;
mod first;
mod rate;
mod sandbox;
pub(crate) mod server;
mod stream;

use anyhow::Result;

use crate::figure::Figure;
use crate::world::World;

pub(crate) fn measure(world: &World) -> Result<Vec<Figure>> {
    let mut figures = Vec::new();
    if world.wants("first") {
        figures.extend(first::measure(world)?);
    }
    if world.wants("rate") {
        figures.extend(rate::measure(world)?);
    }
    if world.wants("crowd") {
        figures.extend(crowd::measure(world)?);
    }
    if world.wants("cli") {
        figures.extend(cli::measure(world)?);
    }
    if world.wants("sandbox") {
        figures.extend(sandbox::measure(world)?);
    }
    Ok(figures)
}
