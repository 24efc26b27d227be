//! Many dialogues at once, each with two sides that do nothing but wait and answer: all come to
//! their end, nothing is lost, no request is refused by a lock.

use std::time::Instant;

use anyhow::{Context, Result};
use futures_util::stream::{self, StreamExt, TryStreamExt};
use serde_json::Value;

use super::door::Door;
use super::program::Server;
use super::session::{LONG, Session};
use crate::figure::{Figure, Goal};
use crate::report::number;
use crate::world::World;

const DIALOGUES: usize = 200;
const TURNS: usize = 20;
/// Requests under way while everything is set up.
const AT_ONCE: usize = 16;

pub(super) fn measure(world: &World) -> Result<Vec<Figure>> {
    let dialogues = if world.quick { DIALOGUES / 4 } else { DIALOGUES };
    let mut rounds = Vec::new();
    for round in 0..world.rounds().min(3) {
        let folder = world.scratch().join(format!("crowd-{round}"));
        let server = Server::start(&folder, None)?;
        rounds.push(world.runtime.block_on(play(&server, dialogues))?);
    }
    let of = |what: &str| format!("{dialogues} dialogues of {TURNS} messages: {what}");
    let samples = |value: fn(&Round) -> f64| rounds.iter().map(value).collect();
    let said = (dialogues * TURNS) as f64;
    let rate = rounds.iter().map(|round| said / round.seconds).collect();
    for complaint in rounds.iter().flat_map(|round| &round.failures).take(3) {
        eprintln!("a side failed: {complaint}");
    }
    println!("{} messages said in each round", number(said));
    Ok(vec![
        Figure::new(of("lost or out of turn"), "", samples(|round| round.lost as f64))
            .goal(Goal::AtMost(0.0)),
        Figure::new(of("sides that failed"), "", samples(|round| round.failures.len() as f64))
            .goal(Goal::AtMost(0.0)),
        Figure::new(of("locks and faults logged"), "", samples(|round| round.complaints as f64))
            .goal(Goal::AtMost(0.0)),
        Figure::new(of("done after"), "s", samples(|round| round.seconds)),
        Figure::new(of("rate"), "messages/s", rate),
    ])
}

struct Round {
    seconds: f64,
    lost: usize,
    failures: Vec<String>,
    complaints: usize,
}

async fn play(server: &Server, dialogues: usize) -> Result<Round> {
    server.project("p0", true).await?;
    let names: Vec<_> = (0..dialogues).map(|number| format!("p{number}")).collect();
    let making = names.iter().skip(1).map(|name| server.project(name, false));
    stream::iter(making).buffer_unordered(AT_ONCE).try_collect::<Vec<()>>().await?;
    let pairs = names.iter().map(|name| pair(server, name));
    let pairs: Vec<_> = stream::iter(pairs).buffered(AT_ONCE).try_collect().await?;
    let began = Instant::now();
    let mut sides = Vec::new();
    for (ann, ben) in pairs {
        sides.push(tokio::spawn(begin(ann)));
        sides.push(tokio::spawn(answer(ben)));
    }
    let mut failures = Vec::new();
    for side in sides {
        if let Err(error) = side.await? {
            failures.push(format!("{error:#}"));
        }
    }
    let seconds = began.elapsed().as_secs_f64();
    let mut lost = 0;
    for name in &names {
        lost += missing(server, name).await?;
    }
    Ok(Round { seconds, lost, failures, complaints: server.complaints()? })
}

pub(super) async fn pair(server: &Server, project: &str) -> Result<(Session, Session)> {
    let open = async |agent| {
        Session::open(Door::http(server.address, &server.key).await?, project, agent).await
    };
    Ok((open("ann").await?, open("ben").await?))
}

async fn begin(mut ann: Session) -> Result<()> {
    ann.start("ben", "しりとり", TURNS).await?;
    answer(ann).await
}

/// Answers all messages until the conversation has ended.
async fn answer(mut session: Session) -> Result<()> {
    loop {
        let news = session.look(LONG).await?;
        if news["ended_conversations"].as_array().is_some_and(|ended| !ended.is_empty()) {
            return Ok(());
        }
        for what in ["invitations", "pending_messages"] {
            for turn in news[what].as_array().into_iter().flatten() {
                let conversation = turn["conversation_id"].as_str().context("no conversation")?;
                session.say(conversation, "りんご").await?;
            }
        }
    }
}

/// How many messages of a project's dialogue are missing or out of turn.
async fn missing(server: &Server, project: &str) -> Result<usize> {
    let all = server.get(&format!("/projects/{project}/dialogues")).await?;
    let id = all["items"][0]["id"].as_str().context("no dialogue")?;
    let path = format!("/projects/{project}/dialogues/{id}/messages?limit=100");
    let messages = server.get(&path).await?;
    let from = messages["items"].as_array().context("no messages")?.iter();
    let from: Vec<&Value> = from.map(|message| &message["from_agent_id"]).collect();
    let in_turn = from.iter().enumerate().filter(|(at, from)| ***from == ["ann", "ben"][at % 2]);
    Ok(TURNS.abs_diff(from.len()) + from.len() - in_turn.count())
}
