//! What agents spent, read from their transcripts. Claude Code writes a transcript some time after it
//! sends the event that the agent has stopped. So a usage is marked until the transcript shows the
//! last answer, and is read again with later events of the session.

use std::time::Duration;

use crate::time::Timestamp;

use super::decide::{EvaluationResult, HookEvaluation};
use super::hook_evidence::{EvidenceRequest, TranscriptUsage, UsageRequest};
use super::hook_reports::HookUsageUpdate;
use super::hook_rows::{HookRowChange, SubagentRecord};
use super::hook_session::HookSession;

/// This long after its end, nothing more is written about an agent: one that was interrupted has no
/// last answer.
const WRITTEN_WITHIN: Duration = Duration::from_secs(60);

impl HookEvaluation<'_> {
    /// The usage of a subagent that has ended, if it can be found in time.
    pub(super) fn read_usage(&self, agent: &mut SubagentRecord) -> EvaluationResult {
        if agent.usage_complete {
            return Ok(());
        }
        match self.evidence.usage_of(Some(&agent.agent_id)) {
            Some(found) => agent.take_usage(found),
            None if self.evidence.is_late => {
                let path = || self.payload.subagent_file(&agent.agent_id, ".jsonl");
                agent.transcript_path = agent.transcript_path.take().or_else(path);
            }
            None => return Err(EvidenceRequest::Usage(vec![agent.usage_request()])),
        }
        Ok(())
    }

    /// Reads again what was not complete when it was read last.
    pub(super) fn read_missing_usage(&mut self) -> EvaluationResult {
        let is_decided = |agent: &&SubagentRecord| {
            let is_it = |change: &HookRowChange| match change {
                HookRowChange::Subagent(changed) => changed.agent_id == agent.agent_id,
                _ => false,
            };
            self.done.changes.iter().any(is_it)
        };
        let unread: Vec<_> =
            self.known.unread.iter().filter(|agent| !is_decided(agent)).cloned().collect();
        let is_missing =
            |agent: &&SubagentRecord| self.evidence.usage_of(Some(&agent.agent_id)).is_none();
        let missing: Vec<_> =
            unread.iter().filter(is_missing).map(SubagentRecord::usage_request).collect();
        if !missing.is_empty() && !self.evidence.is_late {
            return Err(EvidenceRequest::Usage(missing));
        }
        for old in unread {
            let Some(found) = self.evidence.usage_of(Some(&old.agent_id)) else { continue };
            let mut agent = old.clone();
            agent.take_usage(found);
            agent.usage_complete |= agent.is_written(self.now);
            if agent != old {
                self.change(HookRowChange::Subagent(agent));
            }
        }
        Ok(())
    }

    /// The session of the event. Its row is new with the first event that shows it.
    pub(super) fn session(&self) -> HookSession {
        let fresh = || HookSession {
            session_id: self.payload.session_id.clone(),
            created_at: self.now,
            ..HookSession::default()
        };
        let mut session = self.known.session.clone().unwrap_or_else(fresh);
        if self.payload.transcript_path.is_some() {
            session.transcript_path.clone_from(&self.payload.transcript_path);
        }
        if self.payload.agent_type.is_some() {
            session.agent_type.clone_from(&self.payload.agent_type);
        }
        session
    }

    /// `Stop`, `StopFailure` and `SessionEnd` of the main agent.
    pub(super) fn read_session_usage(&mut self) -> EvaluationResult {
        let mut session = self.session();
        let is_end = self.payload.event == "SessionEnd";
        if !(is_end && session.usage_complete) {
            match self.evidence.usage_of(None) {
                Some(found) => session.take_usage(found),
                None if self.evidence.is_late => session.usage_complete = false,
                None => return Err(EvidenceRequest::Usage(vec![session.usage_request()])),
            }
        }
        session.ended_at = is_end.then_some(self.now);
        self.change(HookRowChange::Session(session));
        Ok(())
    }
}

impl SubagentRecord {
    /// What to read to know its usage.
    pub fn usage_request(&self) -> UsageRequest {
        UsageRequest {
            agent_id: Some(self.agent_id.clone()),
            path: self.transcript_path.clone(),
            answered_after: self.resumed_at,
            counted_from: None,
        }
    }

    /// A transcript that cannot be read any more does not take away what was read before.
    pub fn take_usage(&mut self, found: &TranscriptUsage) {
        self.usage = found.usage.clone().or(self.usage.take());
        self.usage_complete = found.is_complete;
        self.transcript_path = found.path.clone().or(self.transcript_path.take());
    }

    /// What a later look at its transcript found.
    pub fn usage_update(&self, found: &TranscriptUsage, now: Timestamp) -> HookUsageUpdate {
        let mut agent = self.clone();
        agent.take_usage(found);
        HookUsageUpdate {
            session_id: agent.session_id.clone(),
            agent_id: Some(agent.agent_id.clone()),
            since: agent.resumed_at,
            usage_complete: agent.usage_complete || agent.is_written(now),
            usage: agent.usage,
        }
    }

    /// Whether it ended so long ago that its transcript is not written any more.
    fn is_written(&self, now: Timestamp) -> bool {
        self.ended_at.max(self.resumed_at).is_some_and(|then| then + WRITTEN_WITHIN <= now)
    }
}

impl HookSession {
    /// What to read to know its usage.
    pub fn usage_request(&self) -> UsageRequest {
        UsageRequest {
            agent_id: None,
            path: self.transcript_path.clone(),
            answered_after: self.prompted_at,
            counted_from: self.counted_from,
        }
    }

    pub fn take_usage(&mut self, found: &TranscriptUsage) {
        self.usage = found.usage.clone().or(self.usage.take());
        self.usage_complete = found.is_complete;
    }

    /// What a later look at its transcript found.
    pub fn usage_update(&self, found: &TranscriptUsage, now: Timestamp) -> HookUsageUpdate {
        let mut session = self.clone();
        session.take_usage(found);
        let is_written = session.ended_at.is_some_and(|then| then + WRITTEN_WITHIN <= now);
        HookUsageUpdate {
            session_id: session.session_id.clone(),
            agent_id: None,
            since: session.prompted_at,
            usage_complete: session.usage_complete || is_written,
            usage: session.usage,
        }
    }
}
