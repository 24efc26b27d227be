//! Delivers the text of a session's own agent: the main agent, or a session that is an agent itself.
//! It is told at the session's start or with the first prompt, so that it is there before any tool
//! call, and with a tool call where no hook was called before.

use super::convention_delivery::STARTUP;
use super::conventions::{ConventionDelivery, SelectedConvention};
use super::decide::{EvaluationResult, HookEvaluation};
use super::hook_evidence::{EvidenceRequest, PromptRole};
use super::hook_rows::HookRowChange;
use super::role_source::parse_role_tag;
use super::tool_rules::RuleSubject;

/// The status of a mark in a session that was forked from another one, which may have been told.
const FORKED: &str = "forked";
/// The mark of a session that was told with a tool call. Older versions of Claude Code drop that when
/// the session is resumed.
const TOLD_AT_TOOL: &str = "told_at_tool";
/// The mark of a compaction that the start of the session reported.
const COMPACTION: &str = "compaction";

impl HookEvaluation<'_> {
    /// `SessionStart`.
    pub(super) fn begin_session(&mut self) -> EvaluationResult {
        let source = self.payload.source.as_deref();
        if let Some(source) = source {
            self.detail("source", source);
        }
        if self.payload.agent_id.is_some() {
            return Ok(());
        }
        self.record_start(source == Some("fork"));
        match source {
            Some("compact") => {
                self.expire_main_marks();
                self.mark(COMPACTION, "active", 0);
                self.tell_session(true)?;
                self.done.log.hook_name = COMPACT_DETECTED.to_owned();
                return Ok(());
            }
            Some("clear") => {
                self.expire_main_marks();
                self.tell_session(true)?;
            }
            // What the old session was told is in the context of the new one.
            Some("fork") => self.mark(STARTUP, FORKED, self.payload.context_tokens.unwrap_or(0)),
            Some("resume") => self.tell_session(self.has_mark(TOLD_AT_TOOL))?,
            _ => self.tell_session(false)?,
        }
        // Calls of an earlier process of this session are over.
        self.end_calls(|_| true);
        Ok(())
    }

    /// `UserPromptSubmit`, in a session whose start was not reported.
    pub(super) fn on_prompt(&mut self) -> EvaluationResult {
        if self.payload.agent_id.is_none() {
            let is_new = self.known.session.is_none();
            let mut session = self.session();
            (session.prompted_at, session.ended_at) = (Some(self.now), None);
            session.usage_complete = false;
            if is_new {
                session.counted_from = Some(self.now);
            }
            self.change(HookRowChange::Session(session));
            self.tell_session(false)?;
        }
        self.read_missing_usage()
    }

    fn record_start(&mut self, is_fork: bool) {
        let is_new = self.known.session.is_none();
        let mut session = self.session();
        session.ended_at = None;
        if is_new && is_fork {
            session.counted_from = Some(self.now);
        }
        if self.known.session.as_ref() != Some(&session) {
            self.change(HookRowChange::Session(session));
        }
    }

    /// `PostCompact`. The start of the session reports a compaction too, and tells the text; to a
    /// server only this is posted.
    pub(super) fn after_compaction(&mut self) -> EvaluationResult {
        self.done.log.hook_name = COMPACT_DETECTED.to_owned();
        if self.has_mark(COMPACTION) {
            self.mark(COMPACTION, "expired", 0);
        } else {
            self.expire_main_marks();
        }
        Ok(())
    }

    /// After a compaction the texts are not in the context any more.
    fn expire_main_marks(&mut self) {
        let session_id = self.payload.session_id.clone();
        let status = "compact_expired";
        self.change(HookRowChange::ExpireMainMarks { session_id, status, at: self.now });
    }

    /// Tells the text of the session if it was not told before, or was `forgotten`.
    fn tell_session(&mut self, forgotten: bool) -> EvaluationResult {
        let Some(chosen) = self.text_of_session().filter(SelectedConvention::has_text) else {
            return Ok(());
        };
        let is_told_later = chosen.convention.delivery == ConventionDelivery::Block
            || (!forgotten && self.is_told_by_origin());
        if is_told_later || !(forgotten || self.due(STARTUP, None)?.is_some()) {
            return Ok(());
        }
        self.claim_mark(STARTUP, self.payload.context_tokens.unwrap_or(0));
        if self.has_mark(TOLD_AT_TOOL) {
            self.mark(TOLD_AT_TOOL, "expired", 0);
        }
        self.deliver_convention(&chosen);
        Ok(())
    }

    /// Whether the session was forked from one that may have been told. The next tool call shows it.
    fn is_told_by_origin(&self) -> bool {
        let mut marks = self.known.marks.iter();
        marks.any(|mark| mark.key.hook_name == STARTUP && mark.status == FORKED)
    }

    /// For a teammate in its own pane, or a session that was started as an agent.
    pub(super) fn before_own_sessions_tool(&mut self, kind: &str) -> EvaluationResult {
        let role = match self.conventions.role_named(kind) {
            Some(role) => Some(role.to_owned()),
            None => match &self.evidence.prompt_role {
                None => return Err(EvidenceRequest::PromptRole { agent_id: None }),
                Some(PromptRole::Named(role)) => Some(role.clone()),
                Some(PromptRole::Unread | PromptRole::NoTag) => None,
            },
        };
        let chosen = self.conventions.for_subagent(role.as_deref(), kind);
        self.before_sessions_tool(&RuleSubject::session(role, kind), chosen)
    }

    pub(super) fn before_main_agents_tool(&mut self) -> EvaluationResult {
        self.before_sessions_tool(&RuleSubject::main(), self.conventions.for_main())
    }

    fn before_sessions_tool(
        &mut self,
        who: &RuleSubject,
        chosen: Option<SelectedConvention<'_>>,
    ) -> EvaluationResult {
        if self.is_refused(who)? {
            return Ok(());
        }
        if let Some(chosen) = chosen.filter(SelectedConvention::has_text)
            && let Some(tokens) = self.due(STARTUP, chosen.convention.token_threshold)?
        {
            self.tell_at_tool(&chosen, tokens)?;
        }
        self.say_rules(who)?;
        self.record_spawn()
    }

    /// Tells the text with a tool call, unless it is in the session's transcript: in the prompt of a
    /// teammate, or from the session that this one was forked from.
    fn tell_at_tool(&mut self, chosen: &SelectedConvention<'_>, tokens: u64) -> EvaluationResult {
        let is_known = self.known.marks.iter().any(|mark| mark.key.hook_name == STARTUP);
        let is_new = !is_known || self.is_told_by_origin();
        if is_new && chosen.convention.delivery != ConventionDelivery::Block {
            let text = chosen.convention.text.trim();
            match self.evidence.is_heard {
                None => return Err(EvidenceRequest::Heard { text: text.to_owned() }),
                Some(true) => {
                    self.mark(STARTUP, "active", tokens);
                    return Ok(());
                }
                Some(false) => {}
            }
        }
        self.claim_mark(STARTUP, tokens);
        if is_new {
            self.mark(TOLD_AT_TOOL, "active", 0);
        }
        self.deliver_convention(chosen);
        Ok(())
    }

    pub(super) fn has_mark(&self, name: &str) -> bool {
        let is_it = |mark: &&super::SessionMark| mark.key.hook_name == name;
        self.known.marks.iter().find(is_it).is_some_and(|mark| mark.status == "active")
    }
}

impl<'a> HookEvaluation<'a> {
    /// The text of the session's own agent, as far as it is known before its first tool call.
    fn text_of_session(&self) -> Option<SelectedConvention<'a>> {
        let Some(kind) = &self.payload.agent_type else { return self.conventions.for_main() };
        let in_prompt = self.payload.prompt.as_deref().and_then(parse_role_tag);
        let role = self.conventions.role_named(kind).or(in_prompt)?;
        self.conventions.for_subagent(Some(role), kind)
    }
}

/// The log's name for compactions.
const COMPACT_DETECTED: &str = "compact_detected";
