//! From a piece of text on the API's socket to the event at the reader, by the time that it tells.

use anyhow::{Result, ensure};

use super::api::{Api, TIMED};
use crate::executions::callers::{Kind, Order};
use crate::executions::server::Server;
use crate::figure::{Figure, Goal, median, percentile};
use crate::world::World;

/// Conversations at once.
const CALLERS: usize = 4;

pub(super) fn measure(world: &World) -> Result<Vec<Figure>> {
    let api = Api::start()?;
    let server = Server::start_native(&world.scratch().join("delta"), &api.url())?;
    let order = Order {
        kind: Kind::Execution,
        callers: CALLERS,
        time: world.turn(),
        events: 0,
        input: "go",
        model: Some(TIMED),
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
    let name = "a piece of text at the API to its reader";
    Ok(vec![
        Figure::new(format!("{name}, p50"), "ms", medians).goal(Goal::AtMost(2.0)),
        Figure::new(format!("{name}, p99"), "ms", slowest),
    ])
}
