//! Events a second from producers that run ahead to readers, on one stream and on a thousand.

use anyhow::Result;

use super::client;
use super::server::Server;
use super::starlette::Starlette;
use crate::figure::{Figure, Goal};
use crate::report::number;
use crate::world::World;

/// Streams, and events on each: for a compiled server, and for Python, which needs longer.
const SHAPES: [(usize, u64, u64); 2] = [(1, 300_000, 20_000), (1_000, 300, 20)];

pub(super) fn measure(world: &World) -> Result<Vec<Figure>> {
    let starlette = Starlette::provide(world.scratch());
    let mut figures = Vec::new();
    for (streams, events, events_of_python) in SHAPES {
        let events = if world.quick { events / 3 } else { events };
        let (mut product, mut bare, mut python) = (Vec::new(), Vec::new(), Vec::new());
        for round in 0..world.rounds() {
            let path = |name: &str| world.scratch().join(format!("{name}-{streams}-{round}.db"));
            bare.push(rate(Server::bare()?, streams, events)?);
            product.push(rate(Server::product(&path("product"))?, streams, events)?);
            if let Ok(starlette) = &starlette {
                let server = Server::starlette(starlette, &path("starlette"))?;
                python.push(rate(server, streams, events_of_python)?);
            }
        }
        let plural = if streams == 1 { "" } else { "s" };
        let name = format!("durable SSE, {} stream{plural}", number(streams as f64));
        figures.push(
            Figure::new(&name, "events/s", product.clone())
                .against("axum, stores nothing", &bare)
                .goal(Goal::RatioAtLeast(0.35)),
        );
        let durable = Figure::new(&name, "events/s", product).goal(Goal::RatioAtLeast(10.0));
        figures.push(match &starlette {
            Ok(_) => durable.against("Starlette, inline SQLite", &python),
            Err(error) => durable.missing(format!("no Starlette: {error:#}")),
        });
    }
    Ok(figures)
}

/// Of a fresh server, after a turn that warms it up.
fn rate(mut server: Server, streams: usize, events: u64) -> Result<f64> {
    turn(&mut server, streams, events.div_ceil(10))?;
    turn(&mut server, streams, events)
}

fn turn(server: &mut Server, streams: usize, events: u64) -> Result<f64> {
    let client = client::start(server, streams, streams, events)?;
    let began = server.go(streams)?;
    let ended = client::end(client)?;
    Ok(streams as f64 * events as f64 * 1e9 / ended.saturating_sub(began) as f64)
}
