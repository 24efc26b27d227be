//! What a legacy session costs while its client does nothing.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Result;

use super::hold;
use super::servers::{Kind, Server, Servers};
use crate::figure::{Figure, Goal};
use crate::machine::resident_kib;
use crate::report::number;
use crate::world::World;

const SESSIONS: usize = 1_000;

/// For connections to be cleared away and sessions to be put to sleep.
const SETTLE: Duration = Duration::from_secs(2);

pub(super) fn measure(world: &World, servers: &Servers) -> Result<Vec<Figure>> {
    let mut samples = BTreeMap::<_, Vec<f64>>::new();
    for round in 0..if world.quick { 1 } else { 3 } {
        for streams in [true, false] {
            for (kind, server) in servers.start_all(&format!("idle-{streams}-{round}"))? {
                samples.entry((kind, streams)).or_default().push(cost(&server, streams)?);
            }
        }
    }
    let of = |kind, streams| samples.get(&(kind, streams)).cloned().unwrap_or_default();
    let mut figures = Vec::new();
    for streams in [true, false] {
        let figure = Figure::new(named(streams), "KiB", of(Kind::Ours, streams));
        let figure = figure.against(Kind::Rmcp.name(), &of(Kind::Rmcp, streams));
        // Nearly nothing is a tenth of what rmcp keeps in memory.
        let goal = Goal::RatioAtMost(if streams { 1.2 } else { 0.1 });
        figures.push(match servers.missing(Kind::Ours) {
            Some(reason) => figure.goal(goal).missing(reason),
            None => figure.goal(goal),
        });
        for peer in [Kind::TypeScript, Kind::Python] {
            let figure = Figure::new(
                format!("{}, {}", peer.name(), named(streams)),
                "KiB",
                of(peer, streams),
            );
            figures.push(match servers.missing(peer) {
                Some(reason) => figure.missing(reason),
                None => figure,
            });
        }
    }
    Ok(figures)
}

fn named(streams: bool) -> String {
    let streams = if streams { "with a stream" } else { "without a stream" };
    format!("each of {} idle sessions {streams}", number(SESSIONS as f64))
}

/// Resident memory for each session.
fn cost(server: &Server, streams: bool) -> Result<f64> {
    // What the first sessions need is not the others'.
    hold::start(server, 10, streams)?.finish()?;
    std::thread::sleep(SETTLE);
    let before = resident_kib(server.process_id())?;
    let clients = hold::start(server, SESSIONS, streams)?;
    std::thread::sleep(SETTLE);
    let after = resident_kib(server.process_id())?;
    clients.finish()?;
    Ok((after - before) / SESSIONS as f64)
}
