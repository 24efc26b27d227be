//! What the claude-code engine adds: from a line on the CLI's output to the event at the reader,
//! by the time that the line tells.

use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};

use super::callers::{Kind, Order};
use super::fake_claude;
use super::server::{CLAUDE, Server};
use crate::figure::{Figure, Goal, median, percentile};
use crate::world::World;

/// Conversations at once, each with a CLI of its own.
const CALLERS: usize = 4;

pub(super) fn measure(world: &World) -> Result<Vec<Figure>> {
    let claude = program(world.scratch())?;
    let server = Server::start(&world.scratch().join("cli"), Some(&claude))?;
    let order = Order {
        kind: Kind::Execution,
        callers: CALLERS,
        time: world.turn(),
        events: 0,
        input: "write",
        model: Some(CLAUDE),
    };
    order.carry_out(&server)?;
    let (mut medians, mut slowest) = (Vec::new(), Vec::new());
    for _ in 0..world.rounds() {
        let turns = order.carry_out(&server)?;
        let ages: Vec<_> =
            turns.iter().flat_map(|turn| &turn.ages).map(|age| *age as f64 / 1e6).collect();
        ensure!(!ages.is_empty(), "no text told its time");
        medians.push(median(&ages));
        slowest.push(percentile(&ages, 99));
    }
    let name = "a line of the CLI to its reader";
    Ok(vec![
        Figure::new(format!("{name}, p50"), "ms", medians).goal(Goal::AtMost(5.0)),
        Figure::new(format!("{name}, p99"), "ms", slowest),
    ])
}

/// A program that is this one, by the name that gives it the CLI's role: arguments are the engine's.
fn program(folder: &Path) -> Result<PathBuf> {
    let path = folder.join(fake_claude::NAME);
    std::os::unix::fs::symlink(std::env::current_exe()?, &path)?;
    Ok(path)
}
