//! What waiting costs: sessions whose long-polls are open while nothing happens.

use std::time::{Duration, Instant};

use anyhow::Result;
use futures_util::stream::{self, StreamExt, TryStreamExt};

use super::crowd::pair;
use super::program::Server;
use super::session::LONG;
use crate::figure::{Figure, Goal};
use crate::machine::{cpu_seconds, resident_kib};
use crate::world::World;

const SESSIONS: usize = 400;
const AT_ONCE: usize = 16;
/// Until all of them wait.
const SETTLE: Duration = Duration::from_secs(2);

pub(super) fn measure(world: &World) -> Result<Vec<Figure>> {
    let sessions = if world.quick { SESSIONS / 4 } else { SESSIONS };
    let time = Duration::from_secs(if world.quick { 5 } else { 20 });
    let server = Server::start(&world.scratch().join("idle"), None)?;
    let before = resident_kib(server.process_id())?;
    let (share, after) = world.runtime.block_on(wait(&server, sessions, time))?;
    let of = |what: &str| format!("{sessions} sessions that wait: {what}");
    Ok(vec![
        // Nobody polls: what is left is the program's own pulse.
        Figure::new(of("share of a core"), "%", vec![share]).goal(Goal::AtMost(2.0)),
        Figure::new(of("memory each"), "KiB", vec![(after - before) / sessions as f64]),
    ])
}

/// The server's share of a core and its memory while all of them wait.
async fn wait(server: &Server, sessions: usize, time: Duration) -> Result<(f64, f64)> {
    server.project("p0", true).await?;
    let names: Vec<_> = (0..sessions / 2).map(|number| format!("p{number}")).collect();
    let making = names.iter().skip(1).map(|name| server.project(name, false));
    stream::iter(making).buffer_unordered(AT_ONCE).try_collect::<Vec<()>>().await?;
    let pairs = names.iter().map(|name| pair(server, name));
    let pairs: Vec<_> = stream::iter(pairs).buffered(AT_ONCE).try_collect().await?;
    let waiting = pairs.into_iter().flat_map(|(ann, ben)| [ann, ben]).map(|mut session| {
        // The time is over before the first of them comes back.
        tokio::spawn(async move { session.look(LONG).await })
    });
    let waiting: Vec<_> = waiting.collect();
    tokio::time::sleep(SETTLE).await;
    let (began, spent) = (Instant::now(), cpu_seconds(server.process_id())?);
    tokio::time::sleep(time).await;
    let share = (cpu_seconds(server.process_id())? - spent) / began.elapsed().as_secs_f64() * 100.0;
    let memory = resident_kib(server.process_id())?;
    for session in waiting {
        session.abort();
    }
    Ok((share, memory))
}
