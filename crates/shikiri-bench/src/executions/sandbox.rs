//! What confinement adds to the start of a run: from the request to the first text that the CLI
//! writes, by the time that the text tells. A server that confines its CLI and one that does not take
//! turns.

use anyhow::{Context as _, Result};

use super::callers::{Kind, Order};
use super::cli;
use super::fake_claude::SHORT;
use super::server::{CLAUDE, Server};
use crate::figure::{Figure, Goal, median};
use crate::world::World;

/// What a person would not notice beside the start of the CLI itself.
const GOAL_MS: f64 = 30.0;

pub(super) fn measure(world: &World) -> Result<Vec<Figure>> {
    let claude = cli::program(world.scratch())?;
    let confined = Server::start(&world.scratch().join("confined"), Some(&claude))?;
    let unconfined = Server::start_unconfined(&world.scratch().join("unconfined"), &claude)?;
    // Which confinement works here is found out at the first request.
    start_ms(world, &confined)?;
    start_ms(world, &unconfined)?;
    let (mut with, mut without) = (Vec::new(), Vec::new());
    for _ in 0..world.rounds() {
        with.push(start_ms(world, &confined)?);
        without.push(start_ms(world, &unconfined)?);
    }
    let added = with.iter().zip(&without).map(|(with, without)| with - without).collect();
    Ok(vec![
        Figure::new("start of a confined run, p50", "ms", with).against("unconfined", &without),
        Figure::new("what confinement adds to a start, p50", "ms", added)
            .goal(Goal::AtMost(GOAL_MS)),
    ])
}

/// The median of a round of starts, one after the other.
fn start_ms(world: &World, server: &Server) -> Result<f64> {
    let order = Order {
        kind: Kind::Execution,
        callers: 1,
        time: world.turn(),
        events: 0,
        input: SHORT,
        model: Some(CLAUDE),
    };
    let turns = order.carry_out(server)?;
    let starts = turns.iter().map(|turn| {
        let written = turn.written.context("no text told its time")?;
        Ok(written.saturating_sub(turn.asked) as f64 / 1e6)
    });
    Ok(median(&starts.collect::<Result<Vec<_>>>()?))
}
