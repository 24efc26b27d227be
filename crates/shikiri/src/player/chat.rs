//! The player as a chat session, which does all the talking for its agent.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::door::{ToolClient, Trouble};
use super::{LABEL, WAIT_SECONDS, say, script, words};

/// Consecutive waits without news, after which an open conversation is left to its time limits.
const MAX_IDLE: u32 = 20;

pub(super) async fn play(client: &ToolClient) -> Result<(), Trouble> {
    let mut player = Player { client, open: BTreeSet::new(), postponed: Vec::new() };
    let mut idle = 0;
    loop {
        let wait = json!({ "wait_seconds": WAIT_SECONDS });
        let pending = player.client.call("get_pending_messages", &wait).await?;
        if player.deal_with(&pending).await? {
            idle = 0;
            continue;
        }
        idle += 1;
        if player.open.is_empty() && player.postponed.is_empty() || idle > MAX_IDLE {
            return Ok(());
        }
    }
}

struct Player<'a> {
    client: &'a ToolClient,
    /// Conversations that are not finished.
    open: BTreeSet<String>,
    /// Delegations that cannot start yet: their target is in a dialogue with this agent.
    postponed: Vec<Value>,
}

impl Player<'_> {
    /// False if there was nothing to do.
    async fn deal_with(&mut self, pending: &Value) -> Result<bool, Trouble> {
        let all = |field: &str| pending[field].as_array().cloned().unwrap_or_default();
        let ended = all("ended_conversations");
        let mut is_any = !ended.is_empty();
        for conversation in &ended {
            say(&format!("ended: {}", text(conversation, "reason")));
            self.open.remove(&text(conversation, "conversation_id"));
        }
        let postponed = match ended.is_empty() {
            true => Vec::new(),
            false => std::mem::take(&mut self.postponed),
        };
        for delegation in postponed.into_iter().chain(all("pending_delegations")) {
            is_any = true;
            self.take_on(&delegation).await?;
        }
        for invitation in all("invitations") {
            is_any = true;
            self.answer(
                &text(&invitation, "conversation_id"),
                &text(&invitation, "initial_message"),
            )
            .await?;
        }
        for message in all("pending_messages") {
            is_any = true;
            match message["conversation_id"].as_str() {
                Some(conversation) => {
                    self.answer(conversation, &text(&message, "content")).await?;
                }
                None => self.respond(&message).await?,
            }
        }
        Ok(is_any)
    }

    async fn take_on(&mut self, delegation: &Value) -> Result<(), Trouble> {
        if let Some(conversation) = delegation["conversation_id"].as_str() {
            // An earlier session began it. If it is this side's turn, that is listed too.
            self.open.insert(conversation.to_owned());
            return Ok(());
        }
        let (id, purpose) = (text(delegation, "delegation_id"), text(delegation, "purpose"));
        let target = text(delegation, "target_agent_id");
        let asked = match script::rounds(&purpose) {
            Some(rounds) => {
                let first = words::first_word(&purpose).unwrap_or(&purpose);
                let wanted = json!({
                    "target_agent_id": target, "initial_message": first, "purpose": purpose,
                    "max_turns": 2 * rounds, "delegation_id": id,
                });
                say(&format!("to {target}: {first}"));
                self.client.call("start_conversation", &wanted).await
            }
            None => {
                let content = format!("{LABEL} {purpose}");
                let content: String = content.chars().take(4_000).collect();
                let wanted =
                    json!({ "target_agent_id": target, "content": content, "delegation_id": id });
                say(&format!("to {target}: {content}"));
                self.client.call("send_message", &wanted).await
            }
        };
        match asked {
            Ok(answer) => {
                let conversation = text(&answer, "conversation_id");
                if !conversation.is_empty() {
                    self.open.insert(conversation);
                }
                Ok(())
            }
            Err(Trouble::Refused { code, .. }) if code == "conversation_already_active" => {
                self.postponed.push(delegation.clone());
                Ok(())
            }
            Err(Trouble::Refused { code, message }) => {
                let result = format!("{LABEL} {code}: {message}");
                let report = json!({ "delegation_id": id, "status": "failed", "result": result });
                self.tolerate("report_delegation_completed", &report).await
            }
            Err(broken) => Err(broken),
        }
    }

    /// Begins a talk that a message asks for, and tells what to answer.
    async fn begin(
        &mut self,
        purpose: &str,
        partner: &str,
        rounds: u32,
    ) -> Result<String, Trouble> {
        let first = words::first_word(purpose).unwrap_or(purpose);
        let wanted = json!({
            "target_agent_id": partner, "initial_message": first, "purpose": purpose,
            "max_turns": 2 * rounds,
        });
        say(&format!("to {partner}: {first}"));
        match self.client.call("start_conversation", &wanted).await {
            Ok(begun) => {
                let conversation = text(&begun, "conversation_id");
                let answer = format!("{LABEL} I talk to {partner}: conversation {conversation}");
                self.open.insert(conversation);
                Ok(answer)
            }
            Err(Trouble::Refused { code, message }) if code != "sessionExpired" => {
                Ok(format!("{LABEL} I cannot talk to {partner}: {code}: {message}"))
            }
            Err(broken) => Err(broken),
        }
    }

    /// Answers in a conversation: it is this agent's turn.
    async fn answer(&mut self, conversation: &str, incoming: &str) -> Result<(), Trouble> {
        self.open.insert(conversation.to_owned());
        if !words::is_word(incoming) {
            let incoming: String = incoming.chars().take(200).collect();
            let incoming = incoming.strip_prefix(LABEL).unwrap_or(&incoming).trim();
            return self.speak(conversation, &format!("{LABEL} I heard: {incoming}")).await;
        }
        let wanted = json!({ "conversation_id": conversation });
        let said = self.client.call("get_conversation_messages", &wanted).await?;
        let lines = said["messages"].as_array().cloned().unwrap_or_default();
        let mut said: Vec<_> = lines.iter().map(|line| text(line, "content")).collect();
        // The incoming message is the last one; the answer must not repeat any before it.
        said.pop();
        match words::answer(incoming, &said) {
            Ok(word) => self.speak(conversation, word).await,
            Err(why) => {
                say(&format!("ending: {why}"));
                let end = json!({ "conversation_id": conversation, "reason": why });
                self.tolerate("end_conversation", &end).await
            }
        }
    }

    async fn speak(&mut self, conversation: &str, content: &str) -> Result<(), Trouble> {
        say(content);
        let message = json!({ "conversation_id": conversation, "content": content });
        self.tolerate("respond_conversation_message", &message).await
    }

    /// Answers a message once, and never an answer: two players would go on for ever. A message
    /// that asks for a talk is answered with what came of it at first.
    async fn respond(&mut self, message: &Value) -> Result<(), Trouble> {
        let content = text(message, "content");
        if content.starts_with(LABEL) || message["notice"] == json!(true) {
            return Ok(());
        }
        let answer = match (script::rounds(&content), script::partner(&content)) {
            (Some(rounds), Some(partner)) => self.begin(&content, &partner, rounds).await?,
            _ => {
                let incoming: String = content.chars().take(200).collect();
                format!("{LABEL} I heard: {incoming}")
            }
        };
        say(&answer);
        let answer = json!({ "message_id": message["message_id"], "content": answer });
        self.tolerate("respond_chat", &answer).await
    }

    /// A refusal means that another session was first, or that it is over. The next inbox shows
    /// which.
    async fn tolerate(&mut self, tool: &str, arguments: &Value) -> Result<(), Trouble> {
        match self.client.call(tool, arguments).await {
            Err(Trouble::Refused { code, .. }) if code != "sessionExpired" => {
                say(&format!("{tool}: {code}"));
                Ok(())
            }
            other => other.map(drop),
        }
    }
}

fn text(value: &Value, field: &str) -> String {
    value[field].as_str().unwrap_or_default().to_owned()
}
