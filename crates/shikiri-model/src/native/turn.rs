//! One turn of a conversation: the main thread, its subagents, and what they may spend.

use std::collections::BTreeMap;

use serde_json::Value;

use super::entry::{Call, Entry, Reply, ThreadId, text};
use super::limits::{Limit, Limits};
use super::purse::{Estimate, Grant, Purse, Reservation};
use super::thread::{Ending, Next, Thread};
use crate::execution::{
    Cost, EngineMessage, Finish, PriceList, Spender, SubagentStart, ToolUse, Usage,
};

/// Subagents of subagents end here.
pub const MAX_DEPTH: u32 = 3;
/// Subagents of one turn, however deep.
const MAX_SUBAGENTS: usize = 100;

/// What the model is told of a call that was under way when its process died.
pub const UNKNOWN_OUTCOME: &str = "The outcome of this call is unknown: the process that made it \
died before there was an answer. It may have taken effect, wholly or in part. Find out before you \
make it again.";

/// Whether what an entry says is news.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Telling {
    /// It has just happened. The main thread's pieces of text and its thoughts were told before.
    Live,
    /// It happened in another process: all of it is told.
    Again,
}

pub struct Turn {
    limits: Limits,
    prices: PriceList,
    threads: BTreeMap<ThreadId, Thread>,
    purses: BTreeMap<ThreadId, Purse>,
    session_id: Option<String>,
    reserved: Reservation,
    /// Bytes of the main thread's text so far.
    text_bytes: usize,
}

impl Turn {
    pub fn new(past: Vec<Value>, prompt: &str, limits: Limits, prices: PriceList) -> Self {
        let main = Thread::new(past, prompt, &limits);
        Self {
            purses: [(None, Purse::new(&limits))].into(),
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

    pub fn thread(&self, id: &ThreadId) -> Option<&Thread> {
        self.threads.get(id)
    }

    /// How deep a thread is; 0 for the main one.
    pub fn depth(&self, id: &ThreadId) -> u32 {
        self.threads.get(id).map_or(0, |thread| thread.depth)
    }

    pub fn next(&self, id: &ThreadId) -> Next {
        let missing = || Next::End(Ending::Stopped("there is no such thread".to_owned()));
        self.threads.get(id).map_or_else(missing, Thread::next)
    }

    /// Calls without an answer, of all threads. Those of living subagents are not among them.
    pub fn open_calls(&self) -> Vec<Call> {
        let calls = self.threads.values().flat_map(|thread| match thread.next() {
            Next::Call(calls) => calls,
            Next::Ask | Next::End(_) => Vec::new(),
        });
        calls.filter(|call| !self.threads.contains_key(&Some(call.id.clone()))).collect()
    }

    /// Whether any thread waits for the model.
    pub fn is_asking(&self) -> bool {
        self.threads.values().any(|thread| thread.next() == Next::Ask)
    }

    /// The rest of the main thread's text that readers have seen, beyond what the entries hold.
    pub fn unkept<'a>(&self, told: &'a str) -> &'a str {
        told.get(self.text_bytes..).unwrap_or_default()
    }

    /// Takes in what has happened, and says what is to be told of it.
    pub fn apply(&mut self, entry: &Entry, telling: Telling) -> Vec<EngineMessage> {
        match entry {
            Entry::Opened { session_id, model } => {
                self.session_id = Some(session_id.clone());
                let (session_id, model) = (session_id.clone(), model.clone());
                vec![EngineMessage::Started { session_id, model }]
            }
            Entry::Reply { thread, reply } => self.replied(thread, reply, telling),
            Entry::Cut { thread, text } => {
                if let Some(known) = self.threads.get_mut(thread) {
                    known.cut(text);
                }
                self.wrote(thread, text, telling)
            }
            Entry::Answer { thread, tool_use_id, content, is_error } => {
                self.answered(thread, tool_use_id, content, *is_error)
            }
        }
    }

    fn replied(&mut self, id: &ThreadId, reply: &Reply, telling: Telling) -> Vec<EngineMessage> {
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
            let is_news = id.is_some() || telling == Telling::Again;
            if let Some(thought) = block["thinking"].as_str().filter(|_| is_news) {
                let (text, parent) = (thought.to_owned(), id.clone());
                told.push(EngineMessage::Thinking { text, parent });
            }
        }
        for call in reply.calls() {
            let Call { id: call_id, name, input } = call.clone();
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

    fn spawned(&mut self, parent: &ThreadId, depth: u32, call: &Call) -> Option<EngineMessage> {
        let spawn = call.spawn()?;
        let thread = Some(call.id.clone());
        if self.refusal(depth).is_some() || self.threads.contains_key(&thread) {
            return None;
        }
        let limits = self.limits.of_subagent();
        let mut new = Thread::new(Vec::new(), &spawn.prompt, &limits);
        (new.depth, new.parent) = (depth + 1, parent.clone());
        self.threads.insert(thread.clone(), new);
        self.purses.insert(thread, Purse::new(&limits));
        Some(EngineMessage::SubagentStarted(SubagentStart {
            tool_use_id: call.id.clone(),
            agent_id: Some(call.id.clone()),
            subagent_type: spawn.subagent_type,
            model: spawn.model,
        }))
    }

    /// Why a thread of this depth can have no more subagents.
    pub fn refusal(&self, depth: u32) -> Option<String> {
        if depth >= MAX_DEPTH {
            return Some(format!("subagents go {MAX_DEPTH} deep, and no deeper"));
        }
        (self.threads.len() > MAX_SUBAGENTS)
            .then(|| format!("a turn has at most {MAX_SUBAGENTS} subagents"))
    }

    /// A text of the thread: pieces that were told before, or a whole that is told now.
    fn wrote(&mut self, id: &ThreadId, text: &str, telling: Telling) -> Vec<EngineMessage> {
        let (text, parent) = (text.to_owned(), id.clone());
        if id.is_some() {
            return vec![EngineMessage::Text { text, parent, streamed: false }];
        }
        self.text_bytes += text.len();
        let pieces = (telling == Telling::Again && !text.is_empty())
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

    /// Sets aside what the thread's next request may use, in its own purse and in those of all above
    /// it. `base` is how many bytes go with the messages.
    pub fn reserve(
        &mut self,
        id: &ThreadId,
        model: &str,
        base: u64,
        max_output: u64,
    ) -> Result<(Reservation, Grant), Limit> {
        let input_tokens = self.threads.get(id).map_or(0, |thread| thread.input_tokens(base));
        let prices = self.prices.of(model).copied().unwrap_or_default();
        let mut wanted = Estimate { input_tokens, max_output, prices };
        let mut capped = None;
        for purse in self.line(id) {
            let grant = self.purses.get(&purse).map_or(Ok(None), |p| p.grant(&wanted).map(Some))?;
            if let Some(Grant { max_output, capped: Some(limit) }) = grant {
                (wanted.max_output, capped) = (max_output, Some(limit));
            }
        }
        self.reserved += 1;
        for id in self.line(id) {
            if let Some(purse) = self.purses.get_mut(&id) {
                purse.set_aside(self.reserved, &wanted, wanted.max_output);
            }
        }
        Ok((self.reserved, Grant { max_output: wanted.max_output, capped }))
    }

    /// The request has ended: what it really used is told otherwise.
    pub fn release(&mut self, reservation: Reservation) {
        for purse in self.purses.values_mut() {
            purse.give_back(reservation);
        }
    }

    /// Counts what a request used, whatever became of it.
    pub fn spend(&mut self, id: &ThreadId, model: &str, usage: &Usage) {
        let cost = self.prices.cost(model, usage);
        for id in self.line(id) {
            if let Some(purse) = self.purses.get_mut(&id) {
                purse.spend(usage, cost);
            }
        }
    }

    /// So much was told to be spent before this process took the turn up.
    pub fn has_spent(&mut self, usage: &Usage, cost: Cost) {
        if let Some(purse) = self.purses.get_mut(&None) {
            purse.at_least(usage, cost);
        }
    }

    /// The thread and all above it, up to the main one.
    fn line(&self, id: &ThreadId) -> Vec<ThreadId> {
        let mut line = vec![id.clone()];
        let mut next = id.clone();
        while next.is_some() {
            next = self.threads.get(&next).and_then(|thread| thread.parent.clone());
            line.push(next.clone());
        }
        line
    }

    /// How the turn ended, in the words of its terminal event.
    pub fn finish(&self, ending: &Ending) -> Finish {
        let main = self.threads.get(&None);
        let (errors, limit) = match ending {
            Ending::Done => (Vec::new(), None),
            Ending::Stopped(why) => (vec![why.clone()], None),
            Ending::Limit(limit) => {
                (vec![self.reached(*limit, &self.limits)], Some(limit.as_str()))
            }
        };
        Finish {
            result: main.map(Thread::answer).unwrap_or_default(),
            is_error: !errors.is_empty(),
            errors,
            num_turns: main.map_or(0, Thread::turns),
            session_id: self.session_id.clone(),
            limit,
        }
    }

    /// What a subagent's spawner is told, and whether that is an error.
    pub fn report(&self, id: &ThreadId, ending: &Ending) -> (String, bool) {
        let answer = self.threads.get(id).map(Thread::answer).unwrap_or_default();
        let why = match ending {
            Ending::Done if answer.trim().is_empty() => {
                return ("The subagent ended without an answer.".to_owned(), false);
            }
            Ending::Done => return (answer, false),
            Ending::Stopped(why) => why.clone(),
            Ending::Limit(limit) => self.reached(*limit, &self.limits.of_subagent()),
        };
        let so_far = match answer.trim() {
            "" => String::new(),
            said => format!(" What it said last: {said}"),
        };
        (format!("The subagent did not come to its end: {why}.{so_far}"), true)
    }

    fn reached(&self, limit: Limit, limits: &Limits) -> String {
        let name = limit.as_str();
        let amount = match limit {
            Limit::MaxTurns => limits.max_turns.map(|max| max.to_string()),
            Limit::MaxTokens => limits.max_tokens.map(|max| max.to_string()),
            Limit::MaxCostUsd => limits.max_cost_usd.map(|max| max.dollars().to_string()),
        };
        match amount {
            Some(amount) => format!("stopped by the limit {name} of {amount}"),
            // It was the whole execution's.
            None => format!("stopped by the execution's limit {name}"),
        }
    }
}

fn spender(id: &ThreadId) -> Spender {
    id.clone().map_or(Spender::Main, Spender::Subagent)
}

#[cfg(test)]
#[path = "turn_tests.rs"]
mod tests;
