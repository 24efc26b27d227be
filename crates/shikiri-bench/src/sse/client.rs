//! The one client for all servers: opens SSE streams over plain sockets and counts their `log`
//! events, without parsing more than that. One thread, so that it leaves the servers a core.

use std::cell::RefCell;
use std::net::SocketAddr;

use anyhow::{Context, Result, ensure};
use clap::Args;
use futures_util::stream::{self, StreamExt, TryStreamExt};
use memchr::memmem::Finder;
use serde_json::{Value, json};
use tokio::net::TcpStream;

use super::http::Connection;
use super::server::Server;
use crate::child::{self, Process};
use crate::machine::monotonic_ns;

const NEEDLE: &[u8] = b"\nevent: log\n";
const READ_BYTES: usize = 256 * 1024;

/// Connections and requests under way while everything is set up.
const AT_ONCE: usize = 32;

#[derive(Clone, Args)]
pub(crate) struct Arguments {
    address: SocketAddr,
    /// Open at once
    #[arg(long)]
    streams: usize,
    /// Sources of events; the streams share them evenly
    #[arg(long)]
    sources: usize,
    /// That each stream must give; 0: only hold them open
    #[arg(long)]
    events: u64,
    /// Of Shikiri, whose sources are runs
    #[arg(long)]
    key: Option<String>,
}

/// Starts a client and waits until its streams are open.
pub(super) fn start(
    server: &Server,
    streams: usize,
    sources: usize,
    events: u64,
) -> Result<Process> {
    let arguments = [
        server.address().to_string(),
        streams.to_string(),
        sources.to_string(),
        events.to_string(),
    ];
    let [address, streams, sources, events] = &arguments;
    let mut words = vec!["client", address, "--streams", streams];
    words.extend(["--sources", sources, "--events", events]);
    words.extend(server.key().into_iter().flat_map(|key| ["--key", key]));
    let mut client = Process::role(words)?;
    client.hear_word("ready")?;
    Ok(client)
}

/// When the last event had come, in nanoseconds.
pub(super) fn end(mut client: Process) -> Result<u64> {
    let done = client.hear_word("done")?.parse()?;
    client.finish()?;
    Ok(done)
}

pub(crate) fn run(arguments: Arguments) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let paths = paths(&arguments).await?;
        let opening = (0..arguments.streams).map(|number| {
            open(arguments.address, &paths[number % paths.len()], arguments.key.as_deref())
        });
        let open: Vec<_> = stream::iter(opening).buffer_unordered(AT_ONCE).try_collect().await?;
        child::tell("ready")?;
        if arguments.events > 0 {
            // On this thread: the counters share one buffer.
            let counting = open.into_iter().map(|connection| count(connection, arguments.events));
            futures_util::future::try_join_all(counting).await?;
            child::tell(&format!("done {}", monotonic_ns()))?;
        } else {
            // Held until the parent is done.
            let _held = open;
            child::command().await?;
        }
        Ok(())
    })
}

async fn paths(arguments: &Arguments) -> Result<Vec<String>> {
    let Some(key) = &arguments.key else {
        return Ok(vec![format!("/events?count={}", arguments.events)]);
    };
    let starting =
        (0..arguments.sources).map(|_| start_run(arguments.address, key, arguments.events));
    let runs: Vec<_> = stream::iter(starting).buffer_unordered(AT_ONCE).try_collect().await?;
    Ok(runs.iter().map(|run| format!("{RUNS}/{run}/events")).collect())
}

const RUNS: &str = "/v1/tenants/local/runs";

pub(super) async fn start_run(address: SocketAddr, key: &str, events: u64) -> Result<String> {
    let mut connection = Connection::open(address).await?;
    let body = json!({ "agent": "bench", "input": { "events": events } }).to_string();
    let answer = connection.post(RUNS, Some(key), &body).await?;
    let run: Value = serde_json::from_slice(&answer)?;
    Ok(run["id"].as_str().context("a run without an id")?.to_owned())
}

async fn open(address: SocketAddr, path: &str, key: Option<&str>) -> Result<Connection> {
    let mut connection = Connection::open(address).await?;
    connection.send("GET", path, key, "").await?;
    let head = connection.head().await?;
    ensure!(head.status == 200, "status {} for {path}", head.status);
    Ok(connection)
}

thread_local! {
    static BUFFER: RefCell<Vec<u8>> = RefCell::new(vec![0; READ_BYTES]);
}

/// Reads until `events` have come.
async fn count(connection: Connection, events: u64) -> Result<()> {
    let (stream, early) = connection.into_parts();
    let finder = Finder::new(NEEDLE);
    let mut counter = Counter { found: 0, tail: Vec::new() };
    counter.feed(&finder, &early);
    while counter.found < events {
        stream.readable().await?;
        BUFFER.with_borrow_mut(|buffer| counter.read(&stream, &finder, buffer))?;
    }
    ensure!(counter.found == events, "{} events instead of {events}", counter.found);
    Ok(())
}

/// Finds needles that may be cut in two by the reads.
struct Counter {
    found: u64,
    tail: Vec<u8>,
}

impl Counter {
    fn read(&mut self, stream: &TcpStream, finder: &Finder<'_>, buffer: &mut [u8]) -> Result<()> {
        let kept = self.tail.len();
        let count = match stream.try_read(&mut buffer[kept..]) {
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return Ok(()),
            outcome => outcome?,
        };
        ensure!(count > 0, "the stream ended after {} events", self.found);
        buffer[..kept].copy_from_slice(&self.tail);
        self.tail.clear();
        self.feed(finder, &buffer[..kept + count]);
        Ok(())
    }

    fn feed(&mut self, finder: &Finder<'_>, bytes: &[u8]) {
        self.found += finder.find_iter(bytes).count() as u64;
        let kept = bytes.len().min(NEEDLE.len() - 1);
        self.tail.extend_from_slice(&bytes[bytes.len() - kept..]);
    }
}
