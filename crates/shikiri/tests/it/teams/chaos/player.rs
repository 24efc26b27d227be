//! What all players have in common: a login, calls, and accidents.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use shikiri_testkit::{Client, Rng};

use super::door::{Door, Faults, Reply};
use super::journal::{Journal, Who};
use super::plan::{Accident, Plan};

/// One run: a project, and what its players share.
#[derive(Clone, Debug)]
pub(crate) struct Stage {
    pub(crate) project: String,
    pub(crate) client: Client,
    pub(crate) faults: Faults,
    pub(crate) journal: Journal,
    /// Task players that are not gone.
    pub(crate) busy: Arc<AtomicUsize>,
}

impl Stage {
    pub(crate) fn is_busy(&self) -> bool {
        self.busy.load(Ordering::Relaxed) > 0
    }
}

/// Why a player stops in the middle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// It knows nothing any more; it may come back.
    Crashed,
    /// Its session is over; it may log in again.
    SessionOver,
    /// It left.
    Gone,
}

pub(crate) struct Player {
    pub(crate) stage: Stage,
    pub(crate) who: Who,
    pub(crate) plan: Plan,
    pub(crate) rng: Rng,
    purpose: &'static str,
    token: Option<String>,
    calls: u32,
    texts: u32,
}

pub(crate) const PASSKEY: &str = "開けゴマ";
/// How long the players' long-polls wait, in seconds.
pub(crate) const WAIT: u64 = 1;

/// Of a call whose answer is lost: more than kills can be in the way of one.
const TRIES: u32 = 50;

/// Refusals that a player who does nothing wrong meets too, because of the others.
const USUAL: [&str; 9] = [
    "sessionExpired",
    "not_your_turn",
    "conversation_ended",
    "conversation_already_active",
    "delegation_already_processed",
    "delegation_too_deep",
    "message_budget_spent",
    "too_many_delegations",
    // A task that another session reported done cannot be blocked.
    "invalid_argument",
];

impl Player {
    pub(crate) fn new(
        stage: &Stage,
        agent: &'static str,
        purpose: &'static str,
        plan: Plan,
        rng: Rng,
    ) -> Self {
        let who = Who { agent, session: 0 };
        Self { stage: stage.clone(), who, plan, rng, purpose, token: None, calls: 0, texts: 0 }
    }

    pub(crate) fn partner(&self) -> &'static str {
        if self.who.agent == "ann" { "ben" } else { "ann" }
    }

    /// Whether there is another life.
    pub(crate) fn comes_back(&mut self, stop: Stop) -> bool {
        if stop == Stop::Gone || self.plan.lives == 0 {
            return false;
        }
        self.plan.lives -= 1;
        true
    }

    /// A text that was not said before.
    pub(crate) fn text(&mut self, about: &str) -> String {
        self.texts += 1;
        format!("{about} {}{}.{}", self.who.agent, self.who.session, self.texts)
    }

    pub(crate) async fn log_in(&mut self) -> Result<(), Stop> {
        self.who.session = self.stage.journal.next_session();
        self.token = None;
        let login = json!({
            "agent_id": self.who.agent,
            "passkey": PASSKEY,
            "project_id": self.stage.project,
            "purpose": self.purpose,
        });
        let answer = self.call("authenticate", login).await?.expect("a session");
        self.token = Some(text_of(&answer, "session_token"));
        Ok(())
    }

    /// A call that is made again until its outcome is known: for what may be done twice. None if
    /// it was refused.
    pub(crate) async fn call(
        &mut self,
        tool: &str,
        arguments: Value,
    ) -> Result<Option<Value>, Stop> {
        for _ in 0..TRIES {
            match self.call_once(tool, arguments.clone()).await? {
                Reply::Done(answer) => return Ok(Some(answer)),
                Reply::Refused(_) => return Ok(None),
                Reply::Lost => {}
            }
        }
        panic!("{} {:?}: {tool} is lost each time", self.stage.project, self.who);
    }

    /// For what must not be done twice: the caller has to look when it is lost.
    pub(crate) async fn call_once(&mut self, tool: &str, arguments: Value) -> Result<Reply, Stop> {
        self.calls += 1;
        if self.plan.leaves_after.is_some_and(|calls| self.calls > calls) {
            return Err(Stop::Gone);
        }
        match self.plan.accident(&mut self.rng) {
            None => {}
            Some(Accident::CrashBefore) => return Err(Stop::Crashed),
            Some(Accident::CrashWithNews) if tool == "get_pending_messages" => {
                let _ = self.send(tool, arguments).await;
                self.lost(tool);
                return Err(Stop::Crashed);
            }
            Some(Accident::CrashAfter | Accident::CrashWithNews) => {
                let cut = Duration::from_millis(self.rng.range(0, 30));
                let _ = tokio::time::timeout(cut, self.send(tool, arguments)).await;
                self.lost(tool);
                return Err(Stop::Crashed);
            }
            Some(Accident::Silence) => {
                let pause = Duration::from_millis(self.rng.range(300, 3_500));
                tokio::time::sleep(pause).await;
            }
        }
        let reply = self.send(tool, arguments).await;
        let is_over = matches!(&reply, Reply::Refused(code) if code == "sessionExpired");
        if reply != Reply::Lost && !is_over {
            self.stage.journal.acknowledge(&self.who);
        }
        match &reply {
            Reply::Lost => self.lost(tool),
            Reply::Refused(code) if code == "sessionExpired" => return Err(Stop::SessionOver),
            Reply::Refused(code) if !USUAL.contains(&code.as_str()) => {
                let Who { agent, session } = &self.who;
                let project = &self.stage.project;
                self.stage.faults.add(format!("{project} {agent}{session} {tool}: {code}"));
            }
            Reply::Refused(_) | Reply::Done(_) => {}
        }
        Ok(reply)
    }

    async fn send(&self, tool: &str, mut arguments: Value) -> Reply {
        let Stage { client, faults, .. } = &self.stage;
        let door = match &self.token {
            Some(token) if self.plan.shows_token => Door::with_token(client, token, faults),
            Some(token) => {
                arguments["session_token"] = json!(token);
                Door::new(client, faults)
            }
            None => Door::new(client, faults),
        };
        door.call(tool, arguments).await
    }

    fn lost(&self, tool: &str) {
        if tool == "get_pending_messages" || tool == "get_next_action" {
            self.stage.journal.notes().lost_looks += 1;
        }
    }
}

/// A field that must be there.
pub(crate) fn text_of(value: &Value, field: &str) -> String {
    let text = value[field].as_str();
    text.unwrap_or_else(|| panic!("no {field} in {value}")).to_owned()
}

pub(crate) fn items<'a>(value: &'a Value, field: &str) -> &'a [Value] {
    value[field].as_array().map_or(&[], Vec::as_slice)
}
