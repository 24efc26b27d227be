//! How soon a short reply has left. With Nagle's algorithm on, small writes that follow each
//! other wait for the reader's acknowledgement, which takes 40 ms: a figure that shows at once.

use std::net::SocketAddr;
use std::time::Instant;

use anyhow::Result;

use super::client::start_run;
use super::http::Connection;
use super::server::Server;
use crate::figure::{Figure, Goal, median};
use crate::machine::monotonic_ns;
use crate::world::World;

/// The end of a chunked body.
const END: &[u8] = b"\r\n0\r\n\r\n";

pub(super) fn measure(world: &World) -> Result<Vec<Figure>> {
    let replies = if world.quick { 50 } else { 200 };
    let mut server = Server::product(&world.scratch().join("reply.db"))?;
    let (mut replays, mut lives) = (Vec::new(), Vec::new());
    for _ in 0..world.rounds() {
        let key = server.key().unwrap_or_default().to_owned();
        let address = server.address();
        let run = world.runtime.block_on(start_run(address, &key, 1))?;
        server.go(1)?;
        replays.push(world.runtime.block_on(replay(address, &key, &run, replies))?);
        let mut times = Vec::new();
        for _ in 0..replies {
            times.push(live(world, &mut server, &key)?);
        }
        lives.push(median(&times));
    }
    Ok(vec![
        Figure::new("SSE replay of an ended run with one event, p50", "ms", replays)
            .goal(Goal::AtMost(5.0)),
        Figure::new("one live event to its reader, commits included, p50", "ms", lives)
            .goal(Goal::AtMost(10.0)),
    ])
}

/// From the request to the end of the reply, on one connection.
async fn replay(address: SocketAddr, key: &str, run: &str, replies: usize) -> Result<f64> {
    let mut connection = Connection::open(address).await?;
    let path = format!("/v1/tenants/local/runs/{run}/events");
    let mut times = Vec::new();
    for _ in 0..replies {
        let started = Instant::now();
        connection.send("GET", &path, Some(key), "").await?;
        connection.head().await?;
        connection.skip_past(END).await?;
        times.push(started.elapsed().as_secs_f64() * 1e3);
    }
    Ok(median(&times))
}

/// From letting the producer go to the end of the run's stream: three small writes in a row.
fn live(world: &World, server: &mut Server, key: &str) -> Result<f64> {
    let address = server.address();
    let mut connection = world.runtime.block_on(async {
        let run = start_run(address, key, 1).await?;
        let mut connection = Connection::open(address).await?;
        let path = format!("/v1/tenants/local/runs/{run}/events");
        connection.send("GET", &path, Some(key), "").await?;
        connection.head().await?;
        anyhow::Ok(connection)
    })?;
    let went = server.go(1)?;
    world.runtime.block_on(connection.skip_past(END))?;
    Ok(monotonic_ns().saturating_sub(went) as f64 / 1e6)
}
