//! The one load client for all servers: so many callers at once on one thread, each with a
//! connection and, where there are sessions, a session of its own.

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::Args;
use futures_util::future::try_join_all;
use futures_util::stream::{self, StreamExt, TryStreamExt};
use serde::{Deserialize, Serialize};

use super::caller::{Caller, Era, Tool};
use super::servers::Server;
use crate::child::{self, Process};
use crate::figure::percentile;
use crate::machine::cpu_seconds;

/// Handshakes under way while everything is set up.
const AT_ONCE: usize = 32;

/// Echoes before any is counted: a log that is still growing on the disk is slower to sync.
const WARM_UP: usize = 3_000;

#[derive(Args)]
pub(crate) struct Arguments {
    address: SocketAddr,
    #[arg(long)]
    era: Era,
    #[arg(long)]
    tool: Tool,
    #[arg(long)]
    callers: usize,
    /// How long calls are counted, at least; a quarter of it is spent before, to warm up
    #[arg(long)]
    millis: u64,
    #[arg(long)]
    key: Option<String>,
}

/// What the client tells when it is done.
#[derive(Serialize, Deserialize)]
struct Told {
    calls_per_second: f64,
    p50_ms: f64,
    p99_ms: f64,
    /// Counted or not.
    all_calls: usize,
}

/// One turn of one server.
pub(super) struct Turn {
    pub(super) calls_per_second: f64,
    pub(super) p50_ms: f64,
    pub(super) p99_ms: f64,
    /// Of processor time, for each call.
    pub(super) server_us: f64,
    /// How busy the client's one thread was: near 1, it is the client that was measured.
    pub(super) client_busy: f64,
}

/// Loads a server for one turn.
pub(super) fn turn(
    server: &Server,
    era: Era,
    tool: Tool,
    callers: usize,
    length: Duration,
) -> Result<Turn> {
    let (address, callers) = (server.address().to_string(), callers.to_string());
    let millis = length.as_millis().to_string();
    let mut words = vec!["mcp-load", &address, "--era", era.word(), "--tool", tool.name()];
    words.extend(["--callers", &callers, "--millis", &millis]);
    words.extend(server.key().into_iter().flat_map(|key| ["--key", key]));
    let mut client = Process::role(words)?;
    client.hear_word("ready")?;
    let spent = |process| cpu_seconds(process);
    let (server_before, client_before) = (spent(server.process_id())?, spent(client.id())?);
    let began = Instant::now();
    client.say("go")?;
    let told: Told = serde_json::from_str(&client.hear_word("done")?)?;
    let lasted = began.elapsed().as_secs_f64();
    let server_spent = spent(server.process_id())? - server_before;
    let client_spent = spent(client.id())? - client_before;
    client.finish()?;
    Ok(Turn {
        calls_per_second: told.calls_per_second,
        p50_ms: told.p50_ms,
        p99_ms: told.p99_ms,
        server_us: server_spent * 1e6 / told.all_calls as f64,
        client_busy: client_spent / lasted,
    })
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let opening = (0..arguments.callers)
            .map(|_| Caller::open(arguments.address, arguments.era, arguments.key.as_deref()));
        let callers: Vec<_> = stream::iter(opening).buffer_unordered(AT_ONCE).try_collect().await?;
        child::tell("ready")?;
        child::command().await?.context("the parent went away")?;
        let told = measure(callers, arguments).await?;
        child::tell(&format!("done {}", serde_json::to_string(&told)?))
    })
}

async fn measure(callers: Vec<Caller>, arguments: &Arguments) -> Result<Told> {
    let warm_up = match arguments.tool {
        Tool::Echo => WARM_UP.max(callers.len()),
        Tool::Burst => callers.len(),
    };
    let meter = Meter::new(callers.len(), warm_up, Duration::from_millis(arguments.millis));
    let calling = callers.into_iter().map(|caller| call(caller, arguments.tool, &meter));
    try_join_all(calling).await?;
    meter.read()
}

async fn call(mut caller: Caller, tool: Tool, meter: &Meter) -> Result<()> {
    while meter.is_running() {
        let took = caller.call(tool).await?;
        meter.count(took, Instant::now());
    }
    Ok(())
}

/// Counts the calls between two moments. Both wait for a number of calls as well as for a time: a
/// slow server answers hundreds at once, or none for long.
struct Meter {
    callers: usize,
    warm_up: usize,
    length: Duration,
    started: Instant,
    /// All calls, counted or not.
    calls: Cell<usize>,
    from: Cell<Option<Instant>>,
    until: Cell<Option<Instant>>,
    /// Of the calls that ended between the two.
    times_ms: RefCell<Vec<f64>>,
}

impl Meter {
    fn new(callers: usize, warm_up: usize, length: Duration) -> Self {
        let (from, until) = (Cell::new(None), Cell::new(None));
        let (calls, times_ms) = (Cell::new(0), RefCell::new(Vec::new()));
        Self { callers, warm_up, length, started: Instant::now(), calls, from, until, times_ms }
    }

    fn is_running(&self) -> bool {
        self.until.get().is_none()
    }

    fn count(&self, took: Duration, ended: Instant) {
        let calls = self.calls.get() + 1;
        self.calls.set(calls);
        let Some(from) = self.from.get() else {
            if ended >= self.started + self.length / 4 && calls >= self.warm_up {
                self.from.set(Some(ended));
            }
            return;
        };
        if self.is_running() {
            let mut times = self.times_ms.borrow_mut();
            times.push(took.as_secs_f64() * 1e3);
            if ended >= from + self.length && times.len() >= 2 * self.callers {
                self.until.set(Some(ended));
            }
        }
    }

    fn read(&self) -> Result<Told> {
        let times = self.times_ms.borrow();
        let ends = self.from.get().zip(self.until.get());
        let (from, until) = ends.context("the callers stopped too early")?;
        Ok(Told {
            calls_per_second: times.len() as f64 / (until - from).as_secs_f64(),
            p50_ms: percentile(&times, 50),
            p99_ms: percentile(&times, 99),
            all_calls: self.calls.get(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_meter_counts_after_the_warm_up_and_until_both_time_and_calls_suffice() {
        let meter = Meter::new(2, 2, Duration::from_millis(100));
        let ms = Duration::from_millis;
        let at = |millis| meter.started + ms(millis);
        meter.count(ms(10), at(10)); // too early and too few
        meter.count(ms(30), at(30)); // ends the warm-up
        meter.count(ms(50), at(60));
        meter.count(ms(110), at(140)); // enough time, too few calls
        meter.count(ms(90), at(150));
        assert!(meter.is_running());
        meter.count(ms(90), at(230));
        assert!(!meter.is_running());
        meter.count(ms(90), at(240)); // was under way
        let told = meter.read().unwrap();
        assert_eq!((told.calls_per_second, told.all_calls), (20.0, 7));
        assert_eq!((told.p50_ms, told.p99_ms), (90.0, 110.0));
    }
}
