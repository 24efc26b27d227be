//! A delegation: a task session asks its agent's chat session to talk to another agent.
//!
//! ```text
//! pending → processing → completed | failed
//! ```
//!
//! A chat session claims a delegation when it is shown it, and keeps the claim while it makes
//! calls. If the session dies, the next one claims the delegation, up to a limit of attempts. Of
//! several delegations that one session was shown, its death counts only against the one that it
//! worked on. Nothing is counted while the delegation's dialogue is open: a dialogue always ends,
//! and its end completes the delegation.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::ProjectMember;
use super::dialogue::{Dialogue, DialogueEndReason};
use super::team_budget::TeamBudget;
use super::team_cause::TeamCause;
use super::team_limits::TeamLimits;
use super::team_refusal::{RefusalCode, TeamRefusal};
use crate::ids::{
    AgentId, AgentSessionId, DelegationId, DialogueId, MessageId, ProjectId, TaskId, TenantId,
};
use crate::macros::{document, text_enum};
use crate::record::RecordColumns;
use crate::time::Timestamp;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Delegation {
    pub id: DelegationId,
    pub tenant: TenantId,
    pub project: ProjectId,
    /// The agent that delegates. Its chat session does the talking.
    pub agent: AgentId,
    pub target: AgentId,
    pub purpose: String,
    #[serde(default)]
    pub context: Option<String>,
    pub status: DelegationStatus,
    /// The task that the delegation belongs to.
    #[serde(default)]
    pub task: Option<TaskId>,
    /// The task session that created it.
    pub session: AgentSessionId,
    pub budget: TeamBudget,
    /// The delegation itself, as the cause of what follows from it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<TeamCause>,
    #[serde(default)]
    pub attempts: u32,
    #[serde(default)]
    pub claim: Option<DelegationClaim>,
    #[serde(default)]
    pub dialogue: Option<DialogueId>,
    #[serde(default)]
    pub processed_at: Option<Timestamp>,
    /// A JSON object: what the server observed and what the chat session reported.
    #[serde(default)]
    pub result: Option<Value>,
    /// The status that the chat session reported.
    #[serde(default)]
    pub reported: Option<DelegationStatus>,
}

text_enum! {
    pub enum DelegationStatus {
        Pending = "pending",
        Processing = "processing",
        Completed = "completed",
        Failed = "failed",
    }
}

/// The claim of a chat session on a delegation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DelegationClaim {
    pub session: AgentSessionId,
    /// The claim lapses at this time unless the session makes a call before.
    pub until: Timestamp,
}

/// How the server saw a delegation end.
#[derive(Clone, Debug, PartialEq)]
pub enum DelegationOutcome {
    /// A dialogue ended, with these messages.
    Dialogue {
        dialogue: DialogueId,
        end_reason: DialogueEndReason,
        messages: Value,
        /// Why the dialogue came to nothing: its participant never spoke.
        failure: Option<&'static str>,
    },
    Message(MessageId),
}

/// What the passing of time changes about a delegation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DelegationSweep {
    /// Nothing yet: the claiming session is alive or no deadline has passed.
    Later,
    /// The claim lapsed. The next chat session can claim it.
    GivenBack,
    Failed,
}

impl DelegationStatus {
    pub fn is_open(self) -> bool {
        matches!(self, Self::Pending | Self::Processing)
    }
}

impl Delegation {
    pub fn place(&self) -> ProjectMember {
        ProjectMember::new(&self.project, &self.agent)
    }

    /// Whether this task waits for it.
    pub fn is_awaited_by(&self, task: &TaskId) -> bool {
        self.status.is_open() && self.task.as_ref() == Some(task)
    }

    /// Refuses callers that are not chat sessions of the agent that delegated.
    pub fn check_owner(&self, agent: &AgentId) -> Result<(), TeamRefusal> {
        if self.agent == *agent {
            return Ok(());
        }
        let message = format!("delegation {} is another agent's", self.id);
        Err(RefusalCode::NotDelegationOwner.because(message))
    }

    /// Claims the delegation for a chat session that was shown it. Returns false if another session
    /// has it.
    pub fn claim(&mut self, session: &AgentSessionId, limits: &TeamLimits, now: Timestamp) -> bool {
        let is_claimed = self.claim_without_attempt(session, limits, now);
        // A session that continues the dialogue is not a new attempt.
        self.attempts += u32::from(is_claimed && self.dialogue.is_none());
        is_claimed
    }

    /// Claims a delegation that is listed behind another one. The session works on the other one
    /// first, so this does not count as an attempt yet.
    pub fn claim_without_attempt(
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
        self.claim = Some(DelegationClaim {
            session: session.clone(),
            until: now + limits.delegation_claim,
        });
        true
    }

    /// Whether a session claimed it and did nothing about it. The session may not have read the
    /// answer.
    pub fn is_untouched_by(&self, session: &AgentSessionId) -> bool {
        let is_its = self.claim.as_ref().is_some_and(|claim| claim.session == *session);
        is_its && self.dialogue.is_none()
    }

    /// Whether it was claimed while its two agents had another dialogue: two agents have one
    /// dialogue at a time.
    pub fn is_blocked_by(&self, talk: &Dialogue) -> bool {
        self.status == DelegationStatus::Processing && self.conflicts_with(talk)
    }

    /// Whether this open dialogue keeps the delegation from starting.
    pub fn conflicts_with(&self, talk: &Dialogue) -> bool {
        let is_between = [&self.agent, &self.target].iter().all(|one| talk.side_of(one).is_ok());
        self.dialogue.is_none() && is_between
    }

    /// Checks that a chat session may use it for a dialogue with or a message to its target.
    pub fn check_use(&self, by: &AgentId, target: &AgentId) -> Result<(), TeamRefusal> {
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

    /// Records the dialogue that was started for it.
    pub fn begin_dialogue(
        &mut self,
        dialogue: &DialogueId,
        session: &AgentSessionId,
        limits: &TeamLimits,
        now: Timestamp,
    ) {
        // A session can know the delegation without having been shown it.
        self.claim(session, limits, now);
        self.turn_to();
        self.dialogue = Some(dialogue.clone());
    }

    /// Records the outcome that the server saw. An earlier report of the chat session is kept, but
    /// nothing is completed by a dialogue in which the partner never spoke.
    pub fn complete(&mut self, outcome: &DelegationOutcome, now: Timestamp) {
        let mut status = self.reported.unwrap_or(DelegationStatus::Completed);
        let seen = match outcome {
            DelegationOutcome::Dialogue { dialogue, end_reason, messages, failure } => {
                if let Some(reason) = failure {
                    self.add_to_result(json!({ "reason": reason }));
                    status = DelegationStatus::Failed;
                }
                json!({ "conversation_id": dialogue, "end_reason": end_reason, "messages": messages })
            }
            DelegationOutcome::Message(id) => json!({ "message_id": id }),
        };
        self.add_to_result(seen);
        self.turn_to();
        if self.status.is_open() {
            self.close(status, now);
        }
    }

    /// Records the chat session's report: once, before or after the outcome that the server saw.
    /// While its dialogue is open the report is only noted, and the end of the dialogue closes the
    /// delegation.
    pub fn report(
        &mut self,
        by: &AgentId,
        status: DelegationStatus,
        text: Option<&Value>,
        has_living_dialogue: bool,
        now: Timestamp,
    ) -> Result<(), TeamRefusal> {
        self.check_owner(by)?;
        // If a dialogue or a message closed it without a report, one report may still follow.
        let was_given_up = self.status == DelegationStatus::Failed && self.dialogue.is_none();
        if self.reported.is_some() || was_given_up {
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

    /// Closes the delegation as failed.
    pub fn fail(&mut self, reason: &str, now: Timestamp) {
        self.add_to_result(json!({ "reason": reason }));
        self.close(DelegationStatus::Failed, now);
    }

    /// Applies the passing of time. `last_call` is the last call of the claiming session, if that
    /// session is alive.
    pub fn sweep(
        &mut self,
        last_call: Option<Timestamp>,
        has_living_dialogue: bool,
        limits: &TeamLimits,
        now: Timestamp,
    ) -> DelegationSweep {
        if !has_living_dialogue && now >= self.budget.ends_at {
            let reason = match self.claim {
                Some(_) => "the chat session that took it on did not deal with it in time",
                None => "no chat session took it on in time",
            };
            self.fail(reason, now);
            return DelegationSweep::Failed;
        }
        let Some(claim) = &mut self.claim else { return DelegationSweep::Later };
        let until =
            last_call.map_or(claim.until, |last| claim.until.max(last + limits.delegation_claim));
        if last_call.is_some() && now < until {
            claim.until = until;
            return DelegationSweep::Later;
        }
        self.claim = None;
        if !has_living_dialogue && self.attempts >= limits.attempts {
            let reason = format!("{} chat sessions took it on and died", self.attempts);
            self.fail(&reason, now);
            return DelegationSweep::Failed;
        }
        DelegationSweep::GivenBack
    }

    /// Counts the attempt of a session that works on it after it was listed behind another one.
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

document!(Delegation, "delegation", tenant, id, |delegation| {
    let is_open = delegation.status.is_open();
    let ends_at = delegation.budget.ends_at;
    let due = delegation.claim.as_ref().map_or(ends_at, |claim| claim.until.min(ends_at));
    RecordColumns {
        state: delegation.status.as_str().to_owned(),
        parent: Some(delegation.project.to_string()),
        // The column that finds the open delegations of a project.
        owner: is_open.then(|| delegation.project.to_string()),
        due_at: is_open.then_some(due),
        ..RecordColumns::default()
    }
});

#[cfg(test)]
#[path = "delegation_tests.rs"]
mod tests;
