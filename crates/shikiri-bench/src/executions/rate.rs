//! Events a second of executions with 300 events, from the request to the end of the stream.
//!
//! The peer is the bare durable path: a plain run of an agent that logs 300 texts of the same
//! length, started and then read by the same callers on the same server. It has the same stream,
//! store and readers, but no conversation, lock, engine, messages and bill.

use anyhow::{Result, ensure};

use super::callers::{Kind, Order};
use super::server::Server;
use crate::figure::{Figure, Goal};
use crate::payload;
use crate::world::World;

const EVENTS: u64 = 300;

pub(super) fn measure(world: &World) -> Result<Vec<Figure>> {
    let server = Server::start(&world.scratch().join("rate"), None)?;
    let input = format!("#offline events={EVENTS} chars={}", payload::text().len());
    let mut figures = Vec::new();
    for callers in [1, 32] {
        let order = |kind| Order {
            kind,
            callers,
            time: world.turn(),
            events: EVENTS,
            input: &input,
            model: None,
        };
        let (mut executions, mut runs) = (Vec::new(), Vec::new());
        for round in 0..=world.rounds() {
            let (run, execution) =
                (rate(&server, &order(Kind::Run))?, rate(&server, &order(Kind::Execution))?);
            // The first warms up.
            if round > 0 {
                runs.push(run);
                executions.push(execution);
            }
        }
        let at_once = if callers == 1 { "one" } else { "32" };
        figures.push(
            Figure::new(
                format!("executions of {EVENTS} events, {at_once} at once"),
                "events/s",
                executions,
            )
            .against("plain runs", &runs)
            .goal(Goal::RatioAtLeast(0.5)),
        );
    }
    Ok(figures)
}

fn rate(server: &Server, order: &Order<'_>) -> Result<f64> {
    let turns = order.carry_out(server)?;
    ensure!(turns.iter().all(|turn| turn.lost == 0 && turn.events >= EVENTS), "events are missing");
    let began = turns.iter().map(|turn| turn.asked).min().unwrap_or(0);
    let ended = turns.iter().map(|turn| turn.ended).max().unwrap_or(0);
    // What surrounds the texts is not counted: executions tell more of that.
    Ok(turns.len() as f64 * EVENTS as f64 * 1e9 / ended.saturating_sub(began) as f64)
}
