//! From the request to the first event of its answer, for callers at once.

use anyhow::Result;

use super::callers::{Kind, Order};
use super::server::Server;
use crate::figure::{Figure, Goal, median};
use crate::world::World;

const CALLERS: usize = 32;

pub(super) fn measure(world: &World) -> Result<Vec<Figure>> {
    let server = Server::start(&world.scratch().join("first"), None)?;
    let order = Order {
        kind: Kind::Execution,
        callers: CALLERS,
        time: world.turn(),
        events: 0,
        input: "#offline events=1",
        model: None,
    };
    // What the first requests need is not theirs.
    order.carry_out(&server)?;
    let mut samples = Vec::new();
    for _ in 0..world.rounds() {
        let turns = order.carry_out(&server)?;
        let times: Vec<_> =
            turns.iter().map(|turn| (turn.first - turn.asked) as f64 / 1e6).collect();
        samples.push(median(&times));
    }
    let name = format!("POST to the first event, {CALLERS} at once, p50");
    Ok(vec![Figure::new(name, "ms", samples).goal(Goal::AtMost(10.0))])
}
