//! Teams as their agents meet them: the program itself, its MCP door, and clients that do nothing
//! but wait and answer. From one side's message to the other side's returned long-poll; many
//! dialogues at once; and what it costs to wait.

mod crowd;
mod door;
mod idle;
mod program;
mod session;
mod wake;

use anyhow::Result;

use crate::figure::Figure;
use crate::world::World;

pub(crate) fn measure(world: &World) -> Result<Vec<Figure>> {
    let mut figures = Vec::new();
    if world.wants("wake") {
        figures.extend(wake::measure(world)?);
    }
    if world.wants("crowd") {
        figures.extend(crowd::measure(world)?);
    }
    if world.wants("idle") {
        figures.extend(idle::measure(world)?);
    }
    Ok(figures)
}
