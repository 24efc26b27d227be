//! A call from its sending to its end, or from wherever another process left it.
//!
//! ```text
//!          ┌────────── the next round ─────────┐
//! Send ────┴─ stream cut ─→ Stream ─→ answer   │
//!   ├─ became a task ─────→ Task ───→ answer   │
//!   ├─ became a run ──────→ Run ────→ answer   │
//!   └─ asks for input ──────────────→ answers ─┘
//! ```

mod answers;
mod inputs;
mod listen;
mod run;
mod send;
mod task;

use std::time::Duration;

use serde_json::{Map, Value};
use shikiri_model::host::{Bookmark, News, Outcome, Round, Way};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use self::answers::Answers;
use crate::error::ClientError;
use crate::server::Server;
use crate::witness::{LetGo, Witness};

/// Waits between two tries grow from one to the other.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// A server that is away for longer is not waited for: the call can be taken up another time.
const AWAY: Duration = Duration::from_secs(40);
/// A short request that has no answer by then is made again.
const LOOK: Duration = Duration::from_secs(60);
/// A server that is told to stop has so long to say that it did.
const STOPPING: Duration = Duration::from_secs(5);

/// What to call.
pub struct Order<'a> {
    pub tool: &'a str,
    /// Of its arguments, if it is known.
    pub schema: Option<&'a Value>,
    pub arguments: &'a Map<String, Value>,
    /// Sending it twice does no harm.
    pub repeatable: bool,
    /// The same whenever this call is sent, for servers that can tell.
    pub key: &'a str,
    /// Where another process left it.
    pub bookmark: &'a Bookmark,
    /// Nobody waits longer.
    pub deadline: Instant,
    pub cancel: &'a CancellationToken,
}

/// How following a call ended.
#[derive(Debug)]
pub enum End {
    /// The call is over, and its witness has noted how.
    Over(Outcome),
    /// The call goes on without us.
    LetGo(LetGo),
    /// The connection is of no more use: another one can take the call up from its bookmark.
    Reconnect(ClientError),
    /// The server cannot be reached for now. Whoever comes later can take the call up.
    Away(ClientError),
}

/// What comes after a part of the way.
enum Next {
    Way(Way),
    Over(Outcome),
}

/// Why a part of the way did not lead on.
enum Stop {
    LetGo(LetGo),
    Failed(ClientError),
    Reconnect(ClientError),
    Away(ClientError),
}

impl From<LetGo> for Stop {
    fn from(let_go: LetGo) -> Self {
        Self::LetGo(let_go)
    }
}

impl From<ClientError> for Stop {
    fn from(error: ClientError) -> Self {
        match error {
            // Whoever comes with the right key can still take the call up.
            ClientError::Unauthorized(_) => Self::Away(error),
            other => Self::Failed(other),
        }
    }
}

/// One call that is being followed.
struct Following<'a> {
    server: &'a Server,
    order: &'a Order<'a>,
    witness: &'a dyn Witness,
    /// Nobody waits any more: the caller has given up, or the time is over.
    stop: CancellationToken,
}

/// Follows a call to its end. May be dropped at any time: what was noted leads back to it.
pub async fn follow(server: &Server, order: &Order<'_>, witness: &dyn Witness) -> End {
    let stop = order.cancel.child_token();
    let following = Following { server, order, witness, stop: stop.clone() };
    let mut going = std::pin::pin!(following.go());
    let outcome = tokio::select! {
        outcome = &mut going => outcome,
        () = tokio::time::sleep_until(order.deadline) => {
            // The server is told, as if the caller had given up: it must not work for nobody.
            stop.cancel();
            in_time(tokio::time::timeout(2 * STOPPING, &mut going).await.ok())
        }
    };
    let outcome = match outcome {
        Ok(outcome) => outcome,
        Err(Stop::LetGo(let_go)) => return End::LetGo(let_go),
        Err(Stop::Reconnect(why)) => return End::Reconnect(why),
        Err(Stop::Away(why)) => return End::Away(why),
        Err(Stop::Failed(error)) => Outcome::Failed { reason: error.to_string() },
    };
    match witness.note(vec![News::Ended(outcome.clone())]).await {
        Ok(()) => End::Over(outcome),
        Err(let_go) => End::LetGo(let_go),
    }
}

/// What counts of a call that was stopped because its time was over.
fn in_time(ended: Option<Result<Outcome, Stop>>) -> Result<Outcome, Stop> {
    match ended {
        // It crossed what we said.
        Some(Ok(answered @ Outcome::Answered(_))) => Ok(answered),
        Some(Err(let_go @ Stop::LetGo(_))) => Err(let_go),
        _ => Ok(Outcome::Failed { reason: "it had no answer by its time limit".to_owned() }),
    }
}

impl Following<'_> {
    async fn go(&self) -> Result<Outcome, Stop> {
        let mut way = self.order.bookmark.way(self.order.repeatable);
        // Questions that were asked before the other process went.
        let mut waiting: Vec<_> = self.order.bookmark.questions.values().cloned().collect();
        loop {
            let next = match way {
                Way::Send(round) => self.send(round.unwrap_or_default()).await?,
                Way::Stream { request_id, cursor, .. } => {
                    let answers = Answers::to(self, std::mem::take(&mut waiting));
                    self.read_on(&request_id, cursor, answers).await?
                }
                Way::Task(task) => self.follow_task(task).await?,
                Way::Run(run) => self.follow_run(&run).await?,
                Way::Lost(reason) => Next::Over(Outcome::Lost { reason: reason.to_owned() }),
            };
            way = match next {
                Next::Way(way) => way,
                Next::Over(outcome) => return Ok(outcome),
            };
        }
    }

    async fn note(&self, news: Vec<News>) -> Result<(), Stop> {
        if news.is_empty() {
            return Ok(());
        }
        Ok(self.witness.note(news).await?)
    }

    /// What leads on after a stream that broke where nothing can be read on.
    fn after_loss(&self, round: &Round, why: ClientError) -> Result<Next, Stop> {
        if self.order.repeatable || round.state.is_some() {
            return Err(Stop::Reconnect(why));
        }
        Ok(lost(&why))
    }

    /// What to do about a look that failed at a call which the server knows by a name: waits where
    /// that helps. On another connection the name still means the same.
    async fn wait_out(&self, error: ClientError, pauses: &mut Pauses) -> Result<(), Stop> {
        match error {
            error if error.is_passing() && self.server.can_return() => {
                pauses.pause_after(error, &self.stop).await
            }
            error @ ClientError::SessionGone => Err(Stop::Reconnect(error)),
            error if error.is_passing() => Err(Stop::Reconnect(error)),
            error => Err(error.into()),
        }
    }

    /// A short request about the call.
    async fn look(&self, method: &str, params: Value) -> Result<Value, ClientError> {
        let asked = tokio::time::timeout(LOOK, self.server.ask(method, params)).await;
        asked.unwrap_or(Err(ClientError::Slow(LOOK.as_secs())))
    }

    fn is_cancelled(&self) -> bool {
        self.stop.is_cancelled()
    }
}

/// Nothing leads back to it.
fn lost(why: &ClientError) -> Next {
    let reason = format!("{why}; whether the tool did its work is not known");
    Next::Over(Outcome::Lost { reason })
}

/// Longer each time, up to a bound.
struct Pauses {
    next: Duration,
    /// Since when the server is away.
    away: Option<Instant>,
}

impl Pauses {
    fn new() -> Self {
        Self { next: FIRST_PAUSE, away: None }
    }

    async fn pause(&mut self, stop: &CancellationToken) {
        if stop.is_cancelled() {
            // Whoever still waits, waits for the server to say that it stopped.
            return tokio::time::sleep(FIRST_PAUSE).await;
        }
        tokio::select! {
            () = tokio::time::sleep(self.next) => {}
            () = stop.cancelled() => {}
        }
        self.next = (self.next * 2).min(LONGEST_PAUSE);
    }

    /// Waits for a server that is away, but not for ever.
    async fn pause_after(
        &mut self,
        error: ClientError,
        stop: &CancellationToken,
    ) -> Result<(), Stop> {
        match self.away {
            None => self.away = Some(Instant::now()),
            Some(since) if since.elapsed() > AWAY => return Err(Stop::Away(error)),
            Some(_) => {}
        }
        self.pause(stop).await;
        Ok(())
    }

    /// It is there again.
    fn found(&mut self) {
        self.away = None;
    }

    /// It has said something.
    fn reset(&mut self) {
        *self = Self::new();
    }
}
