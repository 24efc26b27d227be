//! Who talks for an agent: it takes on what was delegated, answers, ends, and reports.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::door::Reply;
use super::journal::{Known, Told, now_ms};
use super::player::{Player, Stop, WAIT, items, text_of};

pub(crate) struct ChatPlayer {
    player: Player,
    talks: BTreeMap<String, Talk>,
    /// Taken on, and not begun: with how often it was tried.
    waiting: Vec<(String, u32)>,
    /// Looks at an inbox with nothing in it.
    quiet: u32,
}

/// What it remembers of a conversation.
#[derive(Clone, Debug, Default)]
struct Talk {
    is_initiator: bool,
    delegation: Option<String>,
    /// Messages of its own, as far as it knows.
    said: u32,
}

/// A game of six rounds.
const ROUNDS: u32 = 6;
const PATIENCE: u32 = 8;
const TRIES: u32 = 6;

impl ChatPlayer {
    pub(crate) fn new(player: Player) -> Self {
        Self { player, talks: BTreeMap::new(), waiting: Vec::new(), quiet: 0 }
    }

    pub(crate) async fn play(mut self) {
        while let Err(stop) = self.live().await {
            if !self.player.comes_back(stop) {
                break;
            }
            self.talks.clear();
            self.waiting.clear();
        }
    }

    async fn live(&mut self) -> Result<(), Stop> {
        self.player.log_in().await?;
        self.quiet = 0;
        while self.quiet < PATIENCE && (self.player.stage.is_busy() || self.quiet < 2) {
            self.misbehave().await?;
            self.begin_what_waits().await?;
            let look = json!({ "wait_seconds": WAIT });
            let Some(news) = self.player.call("get_pending_messages", look).await? else {
                continue;
            };
            self.quiet += 1;
            self.note(&news);
            self.deal_with(&news).await?;
        }
        Ok(())
    }

    /// All that the answer holds is known from now on, whatever happens to this player next.
    fn note(&self, news: &Value) {
        let who = &self.player.who;
        let mut notes = self.player.stage.journal.notes();
        for ended in items(news, "ended_conversations") {
            notes.told.push(Told::read(who, ended));
        }
        for message in items(news, "pending_messages") {
            let message_id = text_of(message, "message_id");
            match message["conversation_id"].as_str() {
                Some(conversation) => notes.heard.push(Known {
                    by: who.clone(),
                    conversation: conversation.to_owned(),
                    message_id,
                    content: text_of(message, "content"),
                }),
                None => notes.received.push((who.clone(), message_id, now_ms())),
            }
        }
    }

    async fn deal_with(&mut self, news: &Value) -> Result<(), Stop> {
        for delegation in items(news, "pending_delegations") {
            self.quiet = 0;
            // One that was begun already goes on by its messages.
            if delegation["conversation_id"].is_null() {
                self.waiting.push((text_of(delegation, "delegation_id"), 0));
            }
        }
        for invitation in items(news, "invitations") {
            self.quiet = 0;
            let conversation = text_of(invitation, "conversation_id");
            self.talks.entry(conversation.clone()).or_default();
            self.answer(&conversation).await?;
        }
        for message in items(news, "pending_messages") {
            self.quiet = 0;
            if let Some(conversation) = message["conversation_id"].as_str() {
                self.answer(conversation).await?;
            }
        }
        for ended in items(news, "ended_conversations") {
            let talk = self.talks.remove(&text_of(ended, "conversation_id"));
            if let Some(delegation) = talk.and_then(|talk| talk.delegation) {
                self.report(&delegation, "completed").await?;
            }
        }
        Ok(())
    }

    async fn misbehave(&mut self) -> Result<(), Stop> {
        let Some(conversation) = self.talks.keys().next().cloned() else { return Ok(()) };
        if self.player.plan.speaks_out_of_turn && self.player.rng.one_in(3) {
            self.say(&conversation).await?;
        }
        if self.player.plan.ends_early && self.player.rng.one_in(8) {
            self.end(&conversation).await?;
        }
        Ok(())
    }

    async fn begin_what_waits(&mut self) -> Result<(), Stop> {
        for (delegation, tries) in std::mem::take(&mut self.waiting) {
            if tries >= TRIES {
                self.report(&delegation, "failed").await?;
            } else if self.player.plan.sends_message {
                self.send_message(&delegation).await?;
            } else if !self.start(&delegation).await? {
                self.waiting.push((delegation, tries + 1));
            }
        }
        Ok(())
    }

    /// False if they are talking about something else still.
    async fn start(&mut self, delegation: &str) -> Result<bool, Stop> {
        let content = self.player.text(delegation);
        let wanted = json!({
            "target_agent_id": self.player.partner(),
            "initial_message": content,
            "max_turns": self.player.plan.max_turns.unwrap_or(20),
            "delegation_id": delegation,
        });
        match self.player.call_once("start_conversation", wanted).await? {
            Reply::Done(answer) => {
                let conversation = text_of(&answer, "conversation_id");
                let started = (self.player.who.clone(), conversation.clone(), content);
                self.player.stage.journal.notes().started.push(started);
                let delegation = Some(delegation.to_owned());
                let talk = Talk { is_initiator: true, delegation, said: 1 };
                self.talks.insert(conversation, talk);
                Ok(true)
            }
            Reply::Refused(code) => Ok(code != "conversation_already_active"),
            // Tried again: if it was begun, that is refused, and the answers come.
            Reply::Lost => Ok(false),
        }
    }

    async fn send_message(&mut self, delegation: &str) -> Result<(), Stop> {
        let content = self.player.text("伝言");
        let (target, id) = (self.player.partner(), delegation);
        let message = json!({ "target_agent_id": target, "content": content, "delegation_id": id });
        // Tried again when lost: its delegation lets one through.
        if let Some(answer) = self.player.call("send_message", message).await? {
            let sent = (self.player.who.clone(), text_of(&answer, "message_id"));
            self.player.stage.journal.notes().sent.push(sent);
        }
        Ok(())
    }

    /// It is this agent's turn.
    async fn answer(&mut self, conversation: &str) -> Result<(), Stop> {
        if !self.talks.contains_key(conversation) {
            self.look(conversation).await?;
        }
        let talk = self.talks.get(conversation).cloned().unwrap_or_default();
        if talk.is_initiator && talk.said >= ROUNDS && !self.player.plan.never_ends {
            return self.end(conversation).await;
        }
        self.say(conversation).await?;
        if self.player.plan.answers_twice {
            self.say(conversation).await?;
        }
        Ok(())
    }

    /// Reads what was said, to know where a talk stands that an earlier life began. Gives the ids of
    /// its messages by their texts.
    async fn look(&mut self, conversation: &str) -> Result<BTreeMap<String, String>, Stop> {
        let named = json!({ "conversation_id": conversation });
        let Some(seen) = self.player.call("get_conversation_messages", named).await? else {
            return Ok(BTreeMap::new());
        };
        let messages = items(&seen, "messages");
        let is_own = |message: &&Value| message["from_agent_id"] == self.player.who.agent;
        let talk = self.talks.entry(conversation.to_owned()).or_default();
        talk.said = u32::try_from(messages.iter().filter(is_own).count()).unwrap_or(0);
        talk.is_initiator = messages.first().is_some_and(|first| is_own(&first));
        let known = |one: &Value| (text_of(one, "content"), text_of(one, "message_id"));
        Ok(messages.iter().map(known).collect())
    }

    async fn say(&mut self, conversation: &str) -> Result<(), Stop> {
        let content = self.player.text("語");
        let is_initiator = self.talks.get(conversation).is_some_and(|talk| talk.is_initiator);
        let tool =
            if is_initiator { "send_conversation_message" } else { "respond_conversation_message" };
        let message = json!({ "conversation_id": conversation, "content": content });
        loop {
            let message_id = match self.player.call_once(tool, message.clone()).await? {
                Reply::Done(answer) => text_of(&answer, "message_id"),
                Reply::Refused(_) => return Ok(()),
                Reply::Lost => match self.look(conversation).await?.remove(&content) {
                    Some(id) => id,
                    None => continue,
                },
            };
            let (by, conversation) = (self.player.who.clone(), conversation.to_owned());
            self.talks.entry(conversation.clone()).or_default().said += 1;
            let known = Known { by, conversation, message_id, content };
            self.player.stage.journal.notes().said.push(known);
            return Ok(());
        }
    }

    async fn end(&mut self, conversation: &str) -> Result<(), Stop> {
        let named = json!({ "conversation_id": conversation, "reason": "もう十分" });
        self.player.call("end_conversation", named).await.map(drop)
    }

    async fn report(&mut self, delegation: &str, status: &str) -> Result<(), Stop> {
        let times = if self.player.plan.reports_twice { 2 } else { 1 };
        for _ in 0..times {
            let report =
                json!({ "delegation_id": delegation, "status": status, "result": "遊びました" });
            self.player.call("report_delegation_completed", report).await?;
        }
        Ok(())
    }
}
