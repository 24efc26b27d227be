//! A delegation: a task session's request that its agent's chat session talk to someone.
//!
//! ```text
//! pending → processing → completed | failed
//! ```
//!
//! A chat session takes it on by seeing it, and has it as long as it gives signs of life. If it
//! dies, the next one takes it on, up to a number of times. Of several that a session was shown, its
//! death counts against the one that it turned to: what was listed beside that is not to blame. While
//! its dialogue lives nobody counts: a dialogue ends by itself, and completes it.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::Place;
use super::budget::Budget;
use super::dialogue::{Dialogue, EndReason};
use super::limits::TeamLimits;
use super::refusal::{Refusal, RefusalCode};
use crate::ids::{
    AgentId, AgentSessionId, DelegationId, DialogueId, MessageId, ProjectId, TaskId, TenantId,
};
use crate::record::{Columns, Document};
use crate::time::Timestamp;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Delegation {
    pub id: DelegationId,
    pub tenant: TenantId,
    pub project: ProjectId,
    /// Who delegates, and whose chat session talks.
    pub agent: AgentId,
    pub target: AgentId,
    pub purpose: String,
    #[serde(default)]
    pub context: Option<String>,
    pub status: DelegationStatus,
    /// The task that it is for.
    #[serde(default)]
    pub task: Option<TaskId>,
    /// The task session that asked.
    pub session: AgentSessionId,
    pub budget: Budget,
    #[serde(default)]
    pub attempts: u32,
    #[serde(default)]
    pub claim: Option<Claim>,
    #[serde(default)]
    pub dialogue: Option<DialogueId>,
    #[serde(default)]
    pub processed_at: Option<Timestamp>,
    /// A JSON object: what the server saw, and what the chat session reported.
    #[serde(default)]
    pub result: Option<Value>,
    /// What the chat session said of it.
    #[serde(default)]
    pub reported: Option<DelegationStatus>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DelegationStatus {
    Pending,
    Processing,
    Completed,
    Failed,
}

/// That a chat session has taken it on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claim {
    pub session: AgentSessionId,
    /// It lapses then, unless the session has called something since.
    pub until: Timestamp,
}

/// What the server saw of its end.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// With the dialogue's end and messages.
    Dialogue {
        dialogue: DialogueId,
        end_reason: EndReason,
        messages: Value,
        /// What the reason does not say.
        remark: Option<&'static str>,
    },
    Message(MessageId),
}

/// What the passing of time does to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sweep {
    /// Whoever has it is alive, or there is nothing to decide yet.
    Later,
    /// It is up for the next chat session.
    GivenBack,
    Failed,
}

impl DelegationStatus {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Processing => "processing",
            Self::Completed => "completed",
            Self::Failed => "failed",
        }
    }

    pub fn is_open(self) -> bool {
        matches!(self, Self::Pending | Self::Processing)
    }
}

impl Delegation {
    pub fn place(&self) -> Place {
        Place::new(&self.project, &self.agent)
    }

    /// Refuses everybody but the chat sessions of the agent that delegated.
    pub fn check_owner(&self, agent: &AgentId) -> Result<(), Refusal> {
        if self.agent == *agent {
            return Ok(());
        }
        let message = format!("delegation {} is another agent's", self.id);
        Err(RefusalCode::NotDelegationOwner.because(message))
    }

    /// A chat session has seen it, and so takes it on. False if another one has it.
    pub fn claim(&mut self, session: &AgentSessionId, limits: &TeamLimits, now: Timestamp) -> bool {
        let is_claimed = self.claim_beside(session, limits, now);
        // Whoever goes on with its dialogue does not try anew.
        self.attempts += u32::from(is_claimed && self.dialogue.is_none());
        is_claimed
    }

    /// The same for one that is listed beside another, which the session turns to first: that is no
    /// attempt at this one yet.
    pub fn claim_beside(
        &mut self,
        session: &AgentSessionId,
        limits: &TeamLimits,
        now: Timestamp,
    ) -> bool {
        if !self.status.is_open() || self.claim.is_some() {
            return false;
        }
        self.status = DelegationStatus::Processing;
        self.processed_at.get_or_insert(now);
        self.claim = Some(Claim { session: session.clone(), until: now + limits.claim });
        true
    }

    /// Whether a session has taken it on and done nothing about it: it may not have heard of it.
    pub fn is_untouched_by(&self, session: &AgentSessionId) -> bool {
        let is_its = self.claim.as_ref().is_some_and(|claim| claim.session == *session);
        is_its && self.dialogue.is_none()
    }

    /// Whether it was taken on while its two agents talked about something else: two of them have
    /// one talk at a time.
    pub fn is_held_up_by(&self, talk: &Dialogue) -> bool {
        self.status == DelegationStatus::Processing && self.is_barred_by(talk)
    }

    /// Whether it cannot be begun while this talk lives.
    pub fn is_barred_by(&self, talk: &Dialogue) -> bool {
        let is_between = [&self.agent, &self.target].iter().all(|one| talk.side_of(one).is_ok());
        self.dialogue.is_none() && is_between
    }

    /// What a chat session uses it for: a talk or a message to its target.
    pub fn check_use(&self, by: &AgentId, target: &AgentId) -> Result<(), Refusal> {
        self.check_owner(by)?;
        if !self.status.is_open() || self.dialogue.is_some() {
            let message = format!("delegation {} has been dealt with already", self.id);
            return Err(RefusalCode::DelegationProcessed.because(message));
        }
        if self.target != *target {
            let message = format!("delegation {} is for {}, not {target}", self.id, self.target);
            return Err(RefusalCode::InvalidArgument.because(message));
        }
        Ok(())
    }

    /// It is being talked about.
    pub fn begin_dialogue(
        &mut self,
        dialogue: &DialogueId,
        session: &AgentSessionId,
        limits: &TeamLimits,
        now: Timestamp,
    ) {
        // A session that knows of it by other means has not seen it in its list.
        self.claim(session, limits, now);
        self.turn_to();
        self.dialogue = Some(dialogue.clone());
    }

    /// The server saw what became of it. What was reported before stays.
    pub fn complete(&mut self, outcome: &Outcome, now: Timestamp) {
        let seen = match outcome {
            Outcome::Dialogue { dialogue, end_reason, messages, remark } => {
                if let Some(remark) = remark {
                    self.add_to_result(json!({ "reason": remark }));
                }
                json!({ "conversation_id": dialogue, "end_reason": end_reason, "messages": messages })
            }
            Outcome::Message(id) => json!({ "message_id": id }),
        };
        self.add_to_result(seen);
        self.turn_to();
        if self.status.is_open() {
            self.close(self.reported.unwrap_or(DelegationStatus::Completed), now);
        }
    }

    /// The chat session says what became of it: once, before or after the server saw it. While its
    /// dialogue lives that is noted only: the end of the dialogue closes it.
    pub fn report(
        &mut self,
        by: &AgentId,
        status: DelegationStatus,
        text: Option<&Value>,
        has_living_dialogue: bool,
        now: Timestamp,
    ) -> Result<(), Refusal> {
        self.check_owner(by)?;
        // The server's own end without a word of the agent leaves room for one.
        if self.reported.is_some() || self.status == DelegationStatus::Failed {
            let message = format!("delegation {} has been dealt with already", self.id);
            return Err(RefusalCode::DelegationProcessed.because(message));
        }
        self.turn_to();
        self.add_to_result(json!({ "report": text.cloned().unwrap_or(Value::Null) }));
        self.reported = Some(status);
        if self.status.is_open() && !has_living_dialogue {
            self.close(status, now);
        }
        Ok(())
    }

    /// Nobody will deal with it any more.
    pub fn fail(&mut self, reason: &str, now: Timestamp) {
        self.add_to_result(json!({ "reason": reason }));
        self.close(DelegationStatus::Failed, now);
    }

    /// What the time decides. `last_call` is when the session that has it last called something,
    /// if it is alive.
    pub fn sweep(
        &mut self,
        last_call: Option<Timestamp>,
        has_living_dialogue: bool,
        limits: &TeamLimits,
        now: Timestamp,
    ) -> Sweep {
        if !has_living_dialogue && now >= self.budget.ends_at {
            let reason = match self.claim {
                Some(_) => "the chat session that took it on did not deal with it in time",
                None => "no chat session took it on in time",
            };
            self.fail(reason, now);
            return Sweep::Failed;
        }
        let Some(claim) = &mut self.claim else { return Sweep::Later };
        let until = last_call.map_or(claim.until, |last| claim.until.max(last + limits.claim));
        if last_call.is_some() && now < until {
            claim.until = until;
            return Sweep::Later;
        }
        self.claim = None;
        if !has_living_dialogue && self.attempts >= limits.attempts {
            let reason = format!("{} chat sessions took it on and died", self.attempts);
            self.fail(&reason, now);
            return Sweep::Failed;
        }
        Sweep::GivenBack
    }

    /// Something was done about it: if it was listed beside another before, this is the attempt.
    fn turn_to(&mut self) {
        self.attempts = self.attempts.max(1);
    }

    fn close(&mut self, status: DelegationStatus, now: Timestamp) {
        self.status = status;
        self.claim = None;
        self.processed_at = Some(now);
    }

    fn add_to_result(&mut self, more: Value) {
        let result = self.result.get_or_insert_with(|| json!({}));
        if let (Value::Object(result), Value::Object(more)) = (result, more) {
            result.extend(more);
        }
    }
}

impl Document for Delegation {
    const KIND: &'static str = "delegation";

    fn tenant(&self) -> TenantId {
        self.tenant.clone()
    }

    fn id(&self) -> &str {
        self.id.as_str()
    }

    fn columns(&self) -> Columns {
        let is_open = self.status.is_open();
        let ends_at = self.budget.ends_at;
        let due = self.claim.as_ref().map_or(ends_at, |claim| claim.until.min(ends_at));
        Columns {
            state: self.status.as_str().to_owned(),
            parent: Some(self.project.to_string()),
            // Those of a project that are open are found together.
            owner: is_open.then(|| self.project.to_string()),
            due_at: is_open.then_some(due),
            ..Columns::default()
        }
    }
}

#[cfg(test)]
#[path = "delegation_tests.rs"]
mod tests;
