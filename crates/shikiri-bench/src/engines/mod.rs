//! Native engines, against an API of the benchmark's own that answers at once: what a round of the
//! model costs beyond the API's own time, how much memory many turns take, and how old a piece of
//! text is when its reader has it. API, server and callers are processes of their own.

pub(crate) mod api;
mod crowd;
mod delta;
mod rounds;

use anyhow::Result;

use crate::figure::Figure;
use crate::world::World;

pub(crate) fn measure(world: &World) -> Result<Vec<Figure>> {
    let mut figures = Vec::new();
    if world.wants("rounds") {
        figures.extend(rounds::measure(world)?);
    }
    if world.wants("delta") {
        figures.extend(delta::measure(world)?);
    }
    if world.wants("crowd") {
        figures.extend(crowd::measure(world)?);
    }
    Ok(figures)
}
