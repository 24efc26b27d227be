//! One turn of a conversation: the main thread, its subagents, and their budgets.

use std::collections::BTreeMap;

use serde_json::Value;

use super::execution_limits::{ExecutionLimits, LimitKind};
use super::model_thread::{ModelThread, ThreadAction, ThreadEnding};
use super::spend_budget::{RequestEstimate, ReservationId, SpendBudget, SpendGrant};
use super::turn_entry::{ModelReply, ModelToolCall, ThreadId, TurnEntry, text};
use crate::execution::{
    Cost, EngineFinish, EngineMessage, PriceList, SubagentStart, TokenSpender, TokenUsage, ToolUse,
};

/// The deepest nesting of subagents.
pub const MAX_DEPTH: u32 = 3;
/// The most subagents of one turn, at any depth.
const MAX_SUBAGENTS: usize = 100;

/// The result that the model gets for a call whose process died.
pub const UNKNOWN_OUTCOME: &str = "The outcome of this call is unknown: the process that made it \
died before there was an answer. It may have taken effect, wholly or in part. Find out before you \
make it again.";

/// Whether an entry is new to readers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplayMode {
    /// It has just happened. Text and thinking of the main thread were streamed before.
    Live,
    /// It happened in another process: everything is reported.
    Again,
}

pub struct NativeTurn {
    limits: ExecutionLimits,
    prices: PriceList,
    threads: BTreeMap<ThreadId, ModelThread>,
    budgets: BTreeMap<ThreadId, SpendBudget>,
    session_id: Option<String>,
    reserved: ReservationId,
    /// The bytes of the main thread's text so far.
    text_bytes: usize,
}

impl NativeTurn {
    pub fn new(past: Vec<Value>, prompt: &str, limits: ExecutionLimits, prices: PriceList) -> Self {
        let main = ModelThread::new(past, prompt, &limits);
        Self {
            budgets: [(None, SpendBudget::new(&limits))].into(),
            threads: [(None, main)].into(),
            limits,
            prices,
            session_id: None,
            reserved: 0,
            text_bytes: 0,
        }
    }

    pub fn session_id(&self) -> Option<&str> {
        self.session_id.as_deref()
    }

    pub fn thread(&self, id: &ThreadId) -> Option<&ModelThread> {
        self.threads.get(id)
    }

    /// The nesting depth of a thread; 0 for the main thread.
    pub fn depth(&self, id: &ThreadId) -> u32 {
        self.threads.get(id).map_or(0, |thread| thread.depth)
    }

    pub fn next(&self, id: &ThreadId) -> ThreadAction {
        let missing =
            || ThreadAction::End(ThreadEnding::Stopped("there is no such thread".to_owned()));
        self.threads.get(id).map_or_else(missing, ModelThread::next)
    }

    /// Calls without an answer, of all threads. Calls of running subagents are not included.
    pub fn open_calls(&self) -> Vec<ModelToolCall> {
        let calls = self.threads.values().flat_map(|thread| match thread.next() {
            ThreadAction::Call(calls) => calls,
            ThreadAction::Ask | ThreadAction::End(_) => Vec::new(),
        });
        calls.filter(|call| !self.threads.contains_key(&Some(call.id.clone()))).collect()
    }

    /// Whether a thread waits for the model.
    pub fn is_asking(&self) -> bool {
        self.threads.values().any(|thread| thread.next() == ThreadAction::Ask)
    }

    /// The part of the streamed text that the entries do not hold.
    pub fn unsaved_text<'a>(&self, told: &'a str) -> &'a str {
        told.get(self.text_bytes..).unwrap_or_default()
    }

    /// Applies an entry and returns the messages to report.
    pub fn apply(&mut self, entry: &TurnEntry, telling: ReplayMode) -> Vec<EngineMessage> {
        match entry {
            TurnEntry::Opened { session_id, model } => {
                self.session_id = Some(session_id.clone());
                let (session_id, model) = (session_id.clone(), model.clone());
                vec![EngineMessage::Started { session_id, model }]
            }
            TurnEntry::Reply { thread, reply } => self.replied(thread, reply, telling),
            TurnEntry::Cut { thread, text } => {
                if let Some(known) = self.threads.get_mut(thread) {
                    known.cut(text);
                }
                self.wrote(thread, text, telling)
            }
            TurnEntry::Answer { thread, tool_use_id, content, is_error } => {
                self.answered(thread, tool_use_id, content, *is_error)
            }
        }
    }

    fn replied(
        &mut self,
        id: &ThreadId,
        reply: &ModelReply,
        telling: ReplayMode,
    ) -> Vec<EngineMessage> {
        let Some(thread) = self.threads.get_mut(id) else { return Vec::new() };
        thread.replied(reply);
        let depth = thread.depth;
        self.spend(id, &reply.model, &reply.usage);
        let mut told = vec![EngineMessage::Spent {
            who: spender(id),
            request: reply.id.clone(),
            model: reply.model.clone(),
            usage: reply.usage,
        }];
        for block in &reply.content {
            if let Some(text) = text(block) {
                told.extend(self.wrote(id, text, telling));
            }
            let is_news = id.is_some() || telling == ReplayMode::Again;
            if let Some(thought) = block["thinking"].as_str().filter(|_| is_news) {
                let (text, parent) = (thought.to_owned(), id.clone());
                told.push(EngineMessage::Thinking { text, parent });
            }
        }
        for call in reply.calls() {
            let ModelToolCall { id: call_id, name, input } = call.clone();
            told.push(EngineMessage::ToolUse(ToolUse {
                id: call_id,
                name,
                input,
                parent: id.clone(),
            }));
            told.extend(self.spawned(id, depth, &call));
        }
        told
    }

    fn spawned(
        &mut self,
        parent: &ThreadId,
        depth: u32,
        call: &ModelToolCall,
    ) -> Option<EngineMessage> {
        let spawn = call.spawn()?;
        let thread = Some(call.id.clone());
        if self.refusal(depth).is_some() || self.threads.contains_key(&thread) {
            return None;
        }
        let limits = self.limits.of_subagent();
        let mut new = ModelThread::new(Vec::new(), &spawn.prompt, &limits);
        (new.depth, new.parent) = (depth + 1, parent.clone());
        self.threads.insert(thread.clone(), new);
        self.budgets.insert(thread, SpendBudget::new(&limits));
        Some(EngineMessage::SubagentStarted(SubagentStart {
            tool_use_id: call.id.clone(),
            agent_id: Some(call.id.clone()),
            subagent_type: spawn.subagent_type,
            model: spawn.model,
        }))
    }

    /// Why a thread of this depth cannot spawn more subagents.
    pub fn refusal(&self, depth: u32) -> Option<String> {
        if depth >= MAX_DEPTH {
            return Some(format!("subagents go {MAX_DEPTH} deep, and no deeper"));
        }
        (self.threads.len() > MAX_SUBAGENTS)
            .then(|| format!("a turn has at most {MAX_SUBAGENTS} subagents"))
    }

    /// A text of the thread, as streamed before or as a whole.
    fn wrote(&mut self, id: &ThreadId, text: &str, telling: ReplayMode) -> Vec<EngineMessage> {
        let (text, parent) = (text.to_owned(), id.clone());
        if id.is_some() {
            return vec![EngineMessage::Text { text, parent, streamed: false }];
        }
        self.text_bytes += text.len();
        let pieces = (telling == ReplayMode::Again && !text.is_empty())
            .then(|| EngineMessage::TextDelta { text: text.clone() });
        let whole = EngineMessage::Text { text, parent, streamed: true };
        pieces.into_iter().chain([whole]).collect()
    }

    fn answered(
        &mut self,
        id: &ThreadId,
        tool_use_id: &str,
        content: &Value,
        is_error: bool,
    ) -> Vec<EngineMessage> {
        if let Some(thread) = self.threads.get_mut(id) {
            thread.answered(tool_use_id, content, is_error);
        }
        let tool_use_id = tool_use_id.to_owned();
        let ended = self.threads.get_mut(&Some(tool_use_id.clone())).map(|subagent| {
            subagent.is_over = true;
            EngineMessage::SubagentEnded { tool_use_id: tool_use_id.clone(), is_error }
        });
        let (content, parent) = (content.clone(), id.clone());
        let result = EngineMessage::ToolResult { tool_use_id, content, is_error, parent };
        ended.into_iter().chain([result]).collect()
    }

    /// Reserves the next request's maximum in the thread's budget and in those of its ancestors.
    /// `base` is the number of bytes around the messages.
    pub fn reserve(
        &mut self,
        id: &ThreadId,
        model: &str,
        base: u64,
        max_output: u64,
    ) -> Result<(ReservationId, SpendGrant), LimitKind> {
        let input_tokens = self.threads.get(id).map_or(0, |thread| thread.input_tokens(base));
        let prices = self.prices.of(model).copied().unwrap_or_default();
        let mut wanted = RequestEstimate { input_tokens, max_output, prices };
        let mut capped = None;
        for thread in self.line(id) {
            let grant =
                self.budgets.get(&thread).map_or(Ok(None), |p| p.grant(&wanted).map(Some))?;
            if let Some(SpendGrant { max_output, capped: Some(limit) }) = grant {
                (wanted.max_output, capped) = (max_output, Some(limit));
            }
        }
        self.reserved += 1;
        for id in self.line(id) {
            if let Some(budget) = self.budgets.get_mut(&id) {
                budget.set_aside(self.reserved, &wanted, wanted.max_output);
            }
        }
        Ok((self.reserved, SpendGrant { max_output: wanted.max_output, capped }))
    }

    /// Releases the reservation of a request that ended. Its actual use is reported separately.
    pub fn release(&mut self, reservation: ReservationId) {
        for budget in self.budgets.values_mut() {
            budget.give_back(reservation);
        }
    }

    /// Counts the use of a request, whatever its outcome.
    pub fn spend(&mut self, id: &ThreadId, model: &str, usage: &TokenUsage) {
        let cost = self.prices.cost(model, usage);
        for id in self.line(id) {
            if let Some(budget) = self.budgets.get_mut(&id) {
                budget.spend(usage, cost);
            }
        }
    }

    /// Restores the spending before this process resumed the turn.
    pub fn restore_spent(&mut self, usage: &TokenUsage, cost: Cost) {
        if let Some(budget) = self.budgets.get_mut(&None) {
            budget.at_least(usage, cost);
        }
    }

    /// The thread and its ancestors, up to the main thread.
    fn line(&self, id: &ThreadId) -> Vec<ThreadId> {
        let mut line = vec![id.clone()];
        let mut next = id.clone();
        while next.is_some() {
            next = self.threads.get(&next).and_then(|thread| thread.parent.clone());
            line.push(next.clone());
        }
        line
    }

    /// The end of the turn as its terminal event describes it.
    pub fn finish(&self, ending: &ThreadEnding) -> EngineFinish {
        let main = self.threads.get(&None);
        let (errors, limit) = match ending {
            ThreadEnding::Done => (Vec::new(), None),
            ThreadEnding::Stopped(why) => (vec![why.clone()], None),
            ThreadEnding::Limit(limit) => {
                (vec![self.reached(*limit, &self.limits)], Some(limit.as_str()))
            }
        };
        EngineFinish {
            result: main.map(ModelThread::answer).unwrap_or_default(),
            is_error: !errors.is_empty(),
            errors,
            num_turns: main.map_or(0, ModelThread::turns),
            session_id: self.session_id.clone(),
            limit,
        }
    }

    /// The report to a subagent's spawner, and whether it is an error.
    pub fn report(&self, id: &ThreadId, ending: &ThreadEnding) -> (String, bool) {
        let answer = self.threads.get(id).map(ModelThread::answer).unwrap_or_default();
        let why = match ending {
            ThreadEnding::Done if answer.trim().is_empty() => {
                return ("The subagent ended without an answer.".to_owned(), false);
            }
            ThreadEnding::Done => return (answer, false),
            ThreadEnding::Stopped(why) => why.clone(),
            ThreadEnding::Limit(limit) => self.reached(*limit, &self.limits.of_subagent()),
        };
        let so_far = match answer.trim() {
            "" => String::new(),
            said => format!(" What it said last: {said}"),
        };
        (format!("The subagent did not come to its end: {why}.{so_far}"), true)
    }

    fn reached(&self, limit: LimitKind, limits: &ExecutionLimits) -> String {
        let name = limit.as_str();
        let amount = match limit {
            LimitKind::MaxTurns => limits.max_turns.map(|max| max.to_string()),
            LimitKind::MaxTokens => limits.max_tokens.map(|max| max.to_string()),
            LimitKind::MaxCostUsd => limits.max_cost_usd.map(|max| max.dollars().to_string()),
        };
        match amount {
            Some(amount) => format!("stopped by the limit {name} of {amount}"),
            // A limit of the whole execution.
            None => format!("stopped by the execution's limit {name}"),
        }
    }
}

fn spender(id: &ThreadId) -> TokenSpender {
    id.clone().map_or(TokenSpender::Main, TokenSpender::Subagent)
}

#[cfg(test)]
#[path = "native_turn_tests.rs"]
mod tests;
