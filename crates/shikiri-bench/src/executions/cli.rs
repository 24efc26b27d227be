//! What the claude-code engine adds: from a line on the CLI's output to the event at the reader,
//! by the time that the line tells. Each conversation has a CLI of its own.

use std::path::{Path, PathBuf};

use anyhow::Result;

use super::ages::Ages;
use super::fake_claude;
use super::server::{CLAUDE, Server};
use crate::figure::Figure;
use crate::world::World;

pub(super) fn measure(world: &World) -> Result<Vec<Figure>> {
    let claude = program(world.scratch())?;
    let server = Server::start(&world.scratch().join("cli"), Some(&claude))?;
    let name = "a line of the CLI to its reader";
    Ages { name, model: CLAUDE, input: "write", goal: 5.0 }.measure(world, &server)
}

/// A program that is this one, by the name that gives it the CLI's role: arguments are the engine's.
pub(super) fn program(folder: &Path) -> Result<PathBuf> {
    let path = folder.join(fake_claude::NAME);
    if !path.exists() {
        std::os::unix::fs::symlink(std::env::current_exe()?, &path)?;
    }
    Ok(path)
}
