//! Hooks, as Claude Code starts them: a process for each event, from its start to its end. Ours are
//! the programs that users install, against a process that does nothing, a small hook in Python and
//! claude-nagger; variants take turns, one after another and sixteen at once.

mod cold;
mod programs;
mod project;
mod speed;
mod transcripts;

use anyhow::Result;
use programs::Programs;

use crate::figure::Figure;
use crate::world::World;

/// So many hooks of one project at the same time: parallel subagents, each with parallel calls.
const CROWD: usize = 16;

pub(crate) fn measure(world: &World) -> Result<Vec<Figure>> {
    let mut figures = Vec::new();
    if world.wants("speed") {
        figures.extend(speed::measure(world, &Programs::find()?)?);
    }
    if world.wants("cold") {
        figures.push(cold::measure(world, &Programs::find()?)?);
    }
    if world.wants("transcripts") {
        figures.extend(transcripts::measure(world)?);
    }
    Ok(figures)
}
