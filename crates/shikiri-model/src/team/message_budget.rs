//! How many messages two agents may exchange because of one cause.
//!
//! The budget belongs to the pair of agents and the cause, not to a session, so no login refills it.
//! A message counts when it is sent, read or not. A dialogue takes its turns when it begins and
//! gives back the unused ones at its end.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::team_cause::{TeamCause, TeamCauseKind};
use super::team_limits::TeamLimits;
use super::team_refusal::{RefusalCode, TeamRefusal};
use crate::ids::{AgentId, ProjectId, TenantId};
use crate::macros::document;
use crate::record::RecordColumns;
use crate::time::Timestamp;

/// How long a budget is kept after its last use.
const KEPT: Duration = Duration::from_secs(90 * 24 * 3_600);

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MessageBudget {
    /// Derived from the pair and the cause, so that there is one record for both.
    pub id: String,
    pub tenant: TenantId,
    pub project: ProjectId,
    /// The two agents, the smaller id first.
    pub agents: (AgentId, AgentId),
    pub cause: TeamCause,
    /// Messages that were sent, and those that open dialogues may still have.
    pub used: u32,
    pub used_at: Timestamp,
    /// Both agents and a person were told that it is used up.
    #[serde(default)]
    pub is_told: bool,
}

impl MessageBudget {
    pub fn new(
        tenant: &TenantId,
        project: &ProjectId,
        agents: (&AgentId, &AgentId),
        cause: &TeamCause,
        now: Timestamp,
    ) -> Self {
        let (first, second) = in_order(agents);
        Self {
            id: Self::id_of(project, agents, cause),
            tenant: tenant.clone(),
            project: project.clone(),
            agents: (first.clone(), second.clone()),
            cause: cause.clone(),
            used: cause.own_messages(),
            used_at: now,
            is_told: false,
        }
    }

    pub fn id_of(project: &ProjectId, agents: (&AgentId, &AgentId), cause: &TeamCause) -> String {
        let (first, second) = in_order(agents);
        let at = cause.at.as_millis();
        let text = format!("{project}/{first}/{second}/{}/{at}", cause.id);
        format!("mbg_{}", hex::encode(&Sha256::digest(text.as_bytes())[..20]))
    }

    /// Takes up to `wanted` messages and returns how many; fewer than `least` are refused.
    pub fn take(
        &mut self,
        wanted: u32,
        least: u32,
        limits: &TeamLimits,
        now: Timestamp,
    ) -> Result<u32, TeamRefusal> {
        let granted = wanted.min(limits.messages_per_cause.saturating_sub(self.used));
        if granted < least {
            return Err(RefusalCode::MessageBudgetSpent.because(self.explanation(limits)));
        }
        self.used += granted;
        self.used_at = now;
        Ok(granted)
    }

    /// Returns messages that were taken and not sent.
    pub fn give_back(&mut self, unused: u32) {
        self.used = self.used.saturating_sub(unused);
    }

    /// Why no more messages are taken, and what helps.
    pub fn explanation(&self, limits: &TeamLimits) -> String {
        let (first, second) = &self.agents;
        let TeamCause { kind, id, person, .. } = &self.cause;
        let cause = match (kind, person) {
            (TeamCauseKind::Posted, Some(person)) => format!("message {id} of {person}"),
            (TeamCauseKind::Posted | TeamCauseKind::Message, _) => format!("message {id}"),
            (TeamCauseKind::Task, _) => format!("task {id}"),
            (TeamCauseKind::Delegation, _) => format!("delegation {id}"),
            (TeamCauseKind::Dialogue, _) => format!("conversation {id}"),
        };
        format!(
            "{first} and {second} have no message left of the {} that may follow from {cause}: \
             finish without another one; a new message or task of a person sets new ones off",
            limits.messages_per_cause
        )
    }
}

fn in_order<'a>((a, b): (&'a AgentId, &'a AgentId)) -> (&'a AgentId, &'a AgentId) {
    if a <= b { (a, b) } else { (b, a) }
}

document!(MessageBudget, "message_budget", tenant, id, |budget| RecordColumns {
    parent: Some(budget.project.to_string()),
    due_at: Some(budget.used_at + KEPT),
    ..RecordColumns::default()
});

#[cfg(test)]
mod tests {
    use super::*;

    fn agent(name: &str) -> AgentId {
        name.parse().unwrap()
    }

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_millis(seconds * 1_000)
    }

    fn budget(kind: TeamCauseKind) -> MessageBudget {
        let cause = TeamCause::new(kind, "msg_1", at(0));
        let project = "p".parse().unwrap();
        let agents = (&agent("b"), &agent("a"));
        MessageBudget::new(&TenantId::local(), &project, agents, &cause, at(0))
    }

    #[test]
    fn it_is_the_same_in_both_directions_and_another_for_each_cause() {
        let (project, a, b) = ("p".parse().unwrap(), agent("a"), agent("b"));
        let id = |pair, cause: &TeamCause| MessageBudget::id_of(&project, pair, cause);
        let cause = TeamCause::new(TeamCauseKind::Task, "tsk_1", at(0));
        assert_eq!(id((&a, &b), &cause), id((&b, &a), &cause));
        // A task that a person opens again is set off again.
        let again = TeamCause { at: at(1), ..cause.clone() };
        let other = TeamCause { id: "tsk_2".to_owned(), ..cause.clone() };
        assert_ne!(id((&a, &b), &cause), id((&a, &b), &again));
        assert_ne!(id((&a, &b), &cause), id((&a, &b), &other));
        assert_ne!(id((&a, &b), &cause), id((&a, &agent("c")), &cause));
    }

    #[test]
    fn forty_are_taken_and_what_a_dialogue_did_not_use_comes_back() {
        let limits = TeamLimits::default();
        let mut one = budget(TeamCauseKind::Posted);
        assert_eq!(one.take(20, 2, &limits, at(1)), Ok(20));
        assert_eq!(one.take(30, 2, &limits, at(2)), Ok(20), "what is left");
        let refused = one.take(1, 1, &limits, at(3)).unwrap_err();
        assert_eq!(refused.code, RefusalCode::MessageBudgetSpent);
        assert!(refused.message.contains("message msg_1"), "{}", refused.message);
        one.give_back(1);
        assert!(one.take(4, 2, &limits, at(4)).is_err(), "a talk has two messages");
        assert_eq!(one.take(1, 1, &limits, at(5)), Ok(1));
        assert_eq!((one.used, one.used_at), (40, at(5)));
    }

    #[test]
    fn an_agents_own_message_is_the_first_that_counts() {
        let limits = TeamLimits { messages_per_cause: 2, ..TeamLimits::default() };
        let mut one = budget(TeamCauseKind::Message);
        assert_eq!(one.take(1, 1, &limits, at(1)), Ok(1));
        assert!(one.take(1, 1, &limits, at(1)).is_err());
    }
}
