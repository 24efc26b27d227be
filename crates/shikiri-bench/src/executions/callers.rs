//! Callers, each with a connection and a conversation of its own: they ask for turn after turn and
//! read each to its end. All on one thread, so that they leave the server a core.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::{Args, ValueEnum};
use futures_util::stream::{self, StreamExt, TryStreamExt};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::server::Server;
use super::stream::Stream;
use crate::child::{self, Process};
use crate::machine::monotonic_ns;
use crate::sse::http::Connection;

const TENANT: &str = "/v1/tenants/local";
/// Requests under way while everything is set up.
const AT_ONCE: usize = 32;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    /// A turn of a conversation; the answer is its stream
    Execution,
    /// A plain run, and then its stream
    Run,
}

#[derive(Args)]
pub(crate) struct Arguments {
    address: SocketAddr,
    key: String,
    #[arg(long)]
    kind: Kind,
    #[arg(long)]
    callers: usize,
    /// Until then they begin new turns; each makes at least one
    #[arg(long, default_value_t = 0)]
    milliseconds: u64,
    /// Events of a run
    #[arg(long, default_value_t = 0)]
    events: u64,
    /// What an execution is asked
    #[arg(long, default_value = "hello")]
    input: String,
    /// In place of the tenant's
    #[arg(long)]
    model: Option<String>,
}

/// One turn as its caller saw it; times are in nanoseconds.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Turn {
    pub(crate) asked: u64,
    pub(crate) first: u64,
    pub(crate) ended: u64,
    pub(crate) events: u64,
    pub(crate) lost: u64,
    pub(crate) ages: Vec<u64>,
    /// When the first text that tells its time was written.
    pub(crate) written: Option<u64>,
}

/// What callers are to do.
pub(crate) struct Order<'a> {
    pub(crate) kind: Kind,
    pub(crate) callers: usize,
    pub(crate) time: Duration,
    pub(crate) events: u64,
    pub(crate) input: &'a str,
    pub(crate) model: Option<&'a str>,
}

impl Order<'_> {
    /// All the turns of a process of callers, which is over then.
    pub(crate) fn carry_out(&self, server: &Server) -> Result<Vec<Turn>> {
        let kind = match self.kind {
            Kind::Execution => "execution",
            Kind::Run => "run",
        };
        let numbers = [
            server.address.to_string(),
            self.callers.to_string(),
            self.time.as_millis().to_string(),
            self.events.to_string(),
        ];
        let [address, callers, time, events] = &numbers;
        let mut words = vec!["callers", address, &server.key, "--kind", kind];
        words.extend(["--callers", callers, "--milliseconds", time, "--events", events]);
        words.extend(["--input", self.input]);
        words.extend(self.model.into_iter().flat_map(|model| ["--model", model]));
        let mut process = Process::role(words)?;
        process.hear_word("ready")?;
        process.say("go")?;
        let turns = serde_json::from_str(&process.hear_word("turns")?)?;
        process.finish()?;
        Ok(turns)
    }
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let opening = (0..arguments.callers).map(|_| Caller::open(arguments));
        let callers: Vec<_> = stream::iter(opening).buffer_unordered(AT_ONCE).try_collect().await?;
        child::tell("ready")?;
        child::command().await?;
        let end = monotonic_ns() + arguments.milliseconds * 1_000_000;
        let working = callers.into_iter().map(|caller| caller.work(end));
        let turns = futures_util::future::try_join_all(working).await?;
        let turns: Vec<Turn> = turns.into_iter().flatten().collect();
        child::tell(&format!("turns {}", serde_json::to_string(&turns)?))
    })
}

struct Caller<'a> {
    arguments: &'a Arguments,
    connection: Connection,
    /// Of executions.
    conversation: String,
}

impl<'a> Caller<'a> {
    async fn open(arguments: &'a Arguments) -> Result<Self> {
        let mut connection = Connection::open(arguments.address).await?;
        // With a title, so that no title is generated.
        let body = json!({ "title": "bench", "model_id": arguments.model }).to_string();
        let path = format!("{TENANT}/conversations");
        let made = connection.post(&path, Some(&arguments.key), &body).await?;
        Ok(Self { arguments, connection, conversation: id_of(&made)? })
    }

    async fn work(mut self, end: u64) -> Result<Vec<Turn>> {
        let mut turns = Vec::new();
        while turns.is_empty() || monotonic_ns() < end {
            turns.push(self.turn().await?);
        }
        Ok(turns)
    }

    async fn turn(&mut self) -> Result<Turn> {
        let asked = monotonic_ns();
        match self.arguments.kind {
            Kind::Execution => self.ask().await?,
            Kind::Run => self.start_and_follow().await?,
        }
        let head = self.connection.head().await?;
        ensure!(head.status == 200, "a stream has status {}", head.status);
        let stream = Stream::read(&mut self.connection).await?;
        ensure!(stream.kind == "result", "a stream ended with {}: {}", stream.kind, stream.data);
        let Stream { first, ended, lost, seq, ages, written, .. } = stream;
        Ok(Turn { asked, first, ended, events: seq, lost, ages, written })
    }

    async fn ask(&mut self) -> Result<()> {
        let path = format!("{TENANT}/conversations/{}/executions", self.conversation);
        let executor = json!({ "user_id": "bench" });
        let body = json!({ "user_input": self.arguments.input, "executor": executor }).to_string();
        self.connection.send("POST", &path, Some(&self.arguments.key), &body).await
    }

    async fn start_and_follow(&mut self) -> Result<()> {
        let key = Some(self.arguments.key.as_str());
        let input = json!({ "events": self.arguments.events });
        let body = json!({ "agent": "bench", "input": input }).to_string();
        let run = self.connection.post(&format!("{TENANT}/runs"), key, &body).await?;
        let path = format!("{TENANT}/runs/{}/events", id_of(&run)?);
        self.connection.send("GET", &path, key, "").await
    }
}

fn id_of(answer: &[u8]) -> Result<String> {
    let answer: Value = serde_json::from_slice(answer)?;
    Ok(answer["id"].as_str().context("an answer without an id")?.to_owned())
}
