//! What a round of the model costs: ask, hear the reply, keep it, call a tool, keep its answer; less
//! what the API takes for the same replies when they are not processed.

use anyhow::{Result, ensure};
use serde_json::json;

use super::api::{Api, BUSY, ROUNDS};
use crate::executions::callers::{Kind, Order, Turn};
use crate::executions::server::Server;
use crate::figure::{Figure, Goal, median};
use crate::machine::monotonic_ns;
use crate::sse::http::Connection;
use crate::world::World;

pub(super) fn measure(world: &World) -> Result<Vec<Figure>> {
    let api = Api::start()?;
    let server = Server::start_native(&world.scratch().join("rounds"), &api.url())?;
    let order = Order {
        kind: Kind::Execution,
        callers: 1,
        time: world.turn(),
        events: 0,
        input: "go",
        model: Some(BUSY),
    };
    order.carry_out(&server)?;
    let (mut over, mut whole, mut alone) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..world.rounds() {
        let bare = world.runtime.block_on(bare(&api))?;
        let turns = order.carry_out(&server)?;
        // Two events for each round, and a beginning, a text and an end.
        let is_whole = |turn: &Turn| turn.events >= 2 * ROUNDS as u64 + 3;
        ensure!(turns.iter().all(is_whole), "a turn was shorter than it should be");
        let each = |turn: &Turn| (turn.ended - turn.asked) as f64 / 1e6 / (ROUNDS + 1) as f64;
        let round = median(&turns.iter().map(each).collect::<Vec<_>>());
        over.push(round - bare);
        whole.push(round);
        alone.push(bare);
    }
    Ok(vec![
        Figure::new("a round of the model, over the API's own time, p50", "ms", over)
            .goal(Goal::AtMost(3.0)),
        Figure::new("a round of the model", "ms", whole).against("the API alone", &alone),
    ])
}

/// Milliseconds that the API takes for a round, asked one after the other.
async fn bare(api: &Api) -> Result<f64> {
    let mut connection = Connection::open(api.address).await?;
    let mut times = Vec::new();
    for round in 0..10 * ROUNDS {
        let calls = vec![json!({ "type": "tool_use" }); round % (ROUNDS + 1)];
        let body = json!({ "model": BUSY, "messages": calls }).to_string();
        let begun = monotonic_ns();
        connection.post("/v1/messages", None, &body).await?;
        times.push((monotonic_ns() - begun) as f64 / 1e6);
    }
    Ok(median(&times))
}
