//! From the moment at which one side sends its message until the other side's long-poll has come
//! back with it: through one server, through two processes on one file, through two nodes.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use super::door::Door;
use super::program::Server;
use super::session::{LONG, Session};
use crate::figure::{Figure, Goal, median, percentile};
use crate::log::postgres::ScratchDatabase;
use crate::world::World;

const TURNS: usize = 40;
/// The other side waits before anything is said: what is measured is the waking.
const PAUSE: Duration = Duration::from_millis(5);
const PROJECT: &str = "talk";

const ONE: (&str, f64) = ("a message to its waiting partner, one server", 10.0);
const PIPES: (&str, f64) = ("the same, two `shikiri mcp` on one file", 50.0);
const NODES: (&str, f64) = ("the same, two nodes on PostgreSQL", 30.0);

pub(super) fn measure(world: &World) -> Result<Vec<Figure>> {
    let database = std::env::var("SHIKIRI_TEST_POSTGRES").ok();
    let (mut one, mut pipes, mut nodes) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..world.rounds() {
        let folder = |name: &str| world.scratch().join(format!("wake-{name}-{round}"));
        one.push(world.runtime.block_on(one_server(&folder("one")))?);
        pipes.push(world.runtime.block_on(two_processes(&folder("pipes")))?);
        if let Some(database) = &database {
            nodes.push(world.runtime.block_on(two_nodes(&folder("nodes"), database))?);
        }
    }
    let mut figures = figures(ONE, &one);
    figures.extend(self::figures(PIPES, &pipes));
    if database.is_some() {
        figures.extend(self::figures(NODES, &nodes));
    } else {
        let reason = "SHIKIRI_TEST_POSTGRES is not set (`cargo xtask bench` sets it)";
        let figure = Figure::new(NODES.0, "ms", Vec::new()).goal(Goal::AtMost(NODES.1));
        figures.push(figure.missing(reason));
    }
    Ok(figures)
}

fn figures((name, most_ms): (&str, f64), rounds: &[Vec<f64>]) -> Vec<Figure> {
    let middle = rounds.iter().map(|times| median(times)).collect();
    let slow = rounds.iter().map(|times| percentile(times, 99)).collect();
    vec![
        Figure::new(format!("{name}, p50"), "ms", middle).goal(Goal::AtMost(most_ms)),
        Figure::new(format!("{name}, p99"), "ms", slow),
    ]
}

async fn one_server(folder: &Path) -> Result<Vec<f64>> {
    let server = Server::start(folder, None)?;
    server.project(PROJECT, true).await?;
    talk(over_http(&server, "ann").await?, over_http(&server, "ben").await?).await
}

async fn two_processes(folder: &Path) -> Result<Vec<f64>> {
    let server = Server::start(folder, None)?;
    server.project(PROJECT, true).await?;
    drop(server);
    let ann = Session::open(Door::pipes(folder)?, PROJECT, "ann").await?;
    let ben = Session::open(Door::pipes(folder)?, PROJECT, "ben").await?;
    talk(ann, ben).await
}

async fn two_nodes(folder: &Path, database: &str) -> Result<Vec<f64>> {
    let database = ScratchDatabase::create(database).await?;
    let times = async {
        let here = Server::start(&folder.join("here"), Some(database.url()))?;
        let there = Server::start(&folder.join("there"), Some(database.url()))?;
        here.project(PROJECT, true).await?;
        talk(over_http(&here, "ann").await?, over_http(&there, "ben").await?).await
    };
    let times = times.await;
    database.remove().await?;
    times
}

async fn over_http(server: &Server, agent: &str) -> Result<Session> {
    Session::open(Door::http(server.address, &server.key).await?, PROJECT, agent).await
}

/// A whole conversation; milliseconds of each of its messages after the invitation.
async fn talk(mut ann: Session, mut ben: Session) -> Result<Vec<f64>> {
    let conversation = ann.start("ben", "0", TURNS).await?;
    ben.look(LONG).await?;
    let mut times = Vec::new();
    for turn in 1..TURNS {
        let (speaker, hearer) =
            if turn % 2 == 1 { (&mut ben, &mut ann) } else { (&mut ann, &mut ben) };
        let text = turn.to_string();
        let speaking = async {
            tokio::time::sleep(PAUSE).await;
            let sent = Instant::now();
            speaker.say(&conversation, &text).await.map(|()| sent)
        };
        let hearing = async {
            let news = hearer.look(LONG).await?;
            let heard = Instant::now();
            let is_last = turn == TURNS - 1;
            let is_it = if is_last {
                news["ended_conversations"][0]["reason"] == "max_turns"
            } else {
                news["pending_messages"][0]["content"] == *text
            };
            ensure!(is_it, "waited for {turn}, heard {news}");
            Ok(heard)
        };
        let (sent, heard) = tokio::try_join!(speaking, hearing)?;
        times.push((heard - sent).as_secs_f64() * 1e3);
    }
    Ok(times)
}
