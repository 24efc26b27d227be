//! What waiting costs: sessions whose long-polls are open while nothing happens.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use futures_util::stream::{self, StreamExt, TryStreamExt};
use tokio::task::JoinHandle;

use super::crowd::pair;
use super::program::Server;
use super::session::LONG;
use crate::figure::{Figure, Goal};
use crate::machine::cpu_seconds;
use crate::world::World;

const SESSIONS: usize = 400;
const AT_ONCE: usize = 16;
/// Until all of them wait.
const SETTLE: Duration = Duration::from_secs(2);

pub(super) fn measure(world: &World) -> Result<Vec<Figure>> {
    let sessions = if world.quick { SESSIONS / 4 } else { SESSIONS };
    let time = Duration::from_secs(if world.quick { 5 } else { 20 });
    let server = Server::start(&world.scratch().join("idle"), None)?;
    let share = world.runtime.block_on(wait(&server, sessions, time))?;
    let name = format!("{sessions} sessions that wait: the server's share of a core");
    // Without polling agents, only the program's own background work is left.
    Ok(vec![Figure::new(name, "%", vec![share]).goal(Goal::AtMost(2.0))])
}

/// The server's share of a core while all of them wait, in percent.
async fn wait(server: &Server, sessions: usize, time: Duration) -> Result<f64> {
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
    ensure!(!waiting.iter().any(JoinHandle::is_finished), "a session did not wait");
    waiting.iter().for_each(JoinHandle::abort);
    Ok(share)
}
