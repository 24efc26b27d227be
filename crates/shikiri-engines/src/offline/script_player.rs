//! Plays a script: sends the messages of an engine, at full speed unless the script has a delay.

use std::ops::ControlFlow;

use serde_json::json;
use shikiri_executions::execution::{EngineError, EngineSender, TurnRequest};
use shikiri_model::execution::{
    EngineFinish, EngineMessage, SubagentStart, TokenSpender, TokenUsage, ToolUse,
};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::offline_script::OfflineScript;

pub(super) struct OfflinePlayer {
    script: OfflineScript,
    sender: EngineSender,
    stop: CancellationToken,
    session_id: String,
    /// Ids of requests and calls start with it: they are unique over turns.
    turn: String,
    model: String,
    subagent_model: String,
}

/// Whether the play goes on, or was stopped.
type PlayFlow = ControlFlow<()>;

const TOOL: &str = "offline_tool";
const SUBAGENT_TYPE: &str = "offline-helper";

impl OfflinePlayer {
    pub(super) fn new(
        request: TurnRequest,
        script: OfflineScript,
        sender: EngineSender,
        stop: CancellationToken,
    ) -> Self {
        let model = request.model.model_name;
        Self {
            script,
            sender,
            stop,
            session_id: request.resume.unwrap_or_else(|| Uuid::now_v7().to_string()),
            turn: Uuid::now_v7().simple().to_string(),
            subagent_model: request.subagent_model.unwrap_or_else(|| model.clone()),
            model,
        }
    }

    pub(super) async fn play_script(self) -> Result<(), EngineError> {
        let (session_id, model) = (self.session_id.clone(), self.model.clone());
        self.tell(EngineMessage::Started { session_id, model }).await;
        self.spent(0).await;
        let mut text = String::new();
        if self.acts(&mut text).await.is_break() {
            return Ok(());
        }
        if let Some(message) = self.script.error {
            return Err(EngineError(message));
        }
        let is_long = self.script.tools + self.script.subagents > 0;
        let finish = EngineFinish {
            result: text,
            is_error: false,
            errors: Vec::new(),
            num_turns: if is_long { 2 } else { 1 },
            session_id: Some(self.session_id.clone()),
            limit: None,
        };
        self.tell(EngineMessage::Finished(finish)).await;
        Ok(())
    }

    /// Plays everything except the end.
    async fn acts(&self, text: &mut String) -> PlayFlow {
        self.think().await;
        self.use_tools().await?;
        self.use_subagents().await?;
        self.speak(text).await?;
        if self.script.hang {
            self.stop.cancelled().await;
        }
        self.check_stop()
    }

    async fn think(&self) {
        if self.script.thinking {
            let text = "I am the offline engine: there is nothing to think about.".to_owned();
            self.tell(EngineMessage::Thinking { text, parent: None }).await;
        }
    }

    async fn use_tools(&self) -> PlayFlow {
        for number in 1..=self.script.tools {
            self.check_stop()?;
            let id = self.id("tool", number);
            self.call(id.clone(), TOOL, json!({ "number": number }), None).await;
            self.answer(id, format!("tool {number} did nothing"), None).await;
        }
        self.check_stop()
    }

    /// All of them live at the same time, and the last one to start is the first to end.
    async fn use_subagents(&self) -> PlayFlow {
        let numbers = 1..=self.script.subagents;
        for number in numbers.clone() {
            self.check_stop()?;
            self.start_subagent(number).await;
        }
        for number in numbers.clone() {
            self.check_stop()?;
            let (parent, id) = (self.id("agent", number), self.id("inner", number));
            self.call(id, TOOL, json!({ "subagent": number }), Some(parent)).await;
        }
        for number in numbers.rev() {
            self.check_stop()?;
            self.end_subagent(number).await;
        }
        self.check_stop()
    }

    async fn start_subagent(&self, number: usize) {
        let id = self.id("agent", number);
        let input = json!({
            "subagent_type": SUBAGENT_TYPE,
            "description": format!("Helper {number}"),
            "prompt": "Do nothing, offline.",
        });
        self.call(id.clone(), "Agent", input, None).await;
        let start = SubagentStart {
            tool_use_id: id,
            agent_id: Some(self.id("helper", number)),
            subagent_type: SUBAGENT_TYPE.to_owned(),
            model: Some(self.subagent_model.clone()),
        };
        self.tell(EngineMessage::SubagentStarted(start)).await;
    }

    /// Each spends tokens of its own: 100 and 10, and one more of each per number.
    async fn end_subagent(&self, number: usize) {
        let (id, parent) = (self.id("agent", number), Some(self.id("agent", number)));
        let done = format!("helper {number} did nothing");
        self.answer(self.id("inner", number), done.clone(), parent.clone()).await;
        self.tell(EngineMessage::Text { text: done.clone(), parent, streamed: false }).await;
        let more = number as u64;
        let usage = TokenUsage {
            input_tokens: 100 + more,
            output_tokens: 10 + more,
            ..TokenUsage::default()
        };
        self.tell(EngineMessage::Spent {
            who: TokenSpender::Subagent(id.clone()),
            request: self.id("request", number),
            model: self.subagent_model.clone(),
            usage,
        })
        .await;
        self.tell(EngineMessage::SubagentEnded { tool_use_id: id.clone(), is_error: false }).await;
        self.answer(id, done, None).await;
    }

    /// Sends the text in pieces and then as a whole. If stopped, counts the tokens of the sent pieces.
    async fn speak(&self, text: &mut String) -> PlayFlow {
        let pieces = self.pieces();
        let count = pieces.len();
        for (number, piece) in pieces.enumerate() {
            if self.pause(number).await.is_break() {
                let part = self.script.tokens_out as u128 * number as u128 / count as u128;
                self.spent(u64::try_from(part).unwrap_or(u64::MAX)).await;
                return PlayFlow::Break(());
            }
            text.push_str(&piece);
            self.tell(EngineMessage::TextDelta { text: piece }).await;
        }
        if count > 0 {
            let text = text.clone();
            self.tell(EngineMessage::Text { text, parent: None, streamed: true }).await;
        }
        self.spent(self.script.tokens_out).await;
        PlayFlow::Continue(())
    }

    /// Before every piece but the first.
    async fn pause(&self, number: usize) -> PlayFlow {
        if number > 0 && !self.script.delay.is_zero() {
            tokio::select! {
                () = self.stop.cancelled() => {}
                () = tokio::time::sleep(self.script.delay) => {}
            }
        }
        self.check_stop()
    }

    /// As many pieces as wanted, of the wanted length: the short answer, over and over.
    fn pieces(&self) -> impl ExactSizeIterator<Item = String> + use<> {
        let answer: Vec<char> = short_answer(&self.script).chars().chain([' ']).collect();
        let chars = self.script.chars;
        let fails = self.script.hang || self.script.error.is_some();
        let total = match self.script.events {
            Some(events) => events * chars,
            None if fails => 0,
            None => answer.len() - 1,
        };
        (0..total.div_ceil(chars)).map(move |number| {
            let start = answer.iter().cycle().skip(number * chars % answer.len());
            start.take(chars.min(total - number * chars)).collect()
        })
    }

    async fn call(&self, id: String, name: &str, input: serde_json::Value, parent: Option<String>) {
        let tool = ToolUse { id, name: name.to_owned(), input, parent };
        self.tell(EngineMessage::ToolUse(tool)).await;
    }

    async fn answer(&self, tool_use_id: String, text: String, parent: Option<String>) {
        let content = json!(text);
        let is_error = false;
        self.tell(EngineMessage::ToolResult { tool_use_id, content, is_error, parent }).await;
    }

    /// The main thread makes one request.
    async fn spent(&self, output_tokens: u64) {
        let input_tokens = self.script.tokens_in;
        self.tell(EngineMessage::Spent {
            who: TokenSpender::Main,
            request: self.id("request", 0),
            model: self.model.clone(),
            usage: TokenUsage { input_tokens, output_tokens, ..TokenUsage::default() },
        })
        .await;
    }

    async fn tell(&self, message: EngineMessage) {
        self.sender.send(message).await;
    }

    fn check_stop(&self) -> PlayFlow {
        if self.stop.is_cancelled() { PlayFlow::Break(()) } else { PlayFlow::Continue(()) }
    }

    fn id(&self, what: &str, number: usize) -> String {
        format!("offline_{}_{what}_{number}", self.turn)
    }
}

fn short_answer(script: &OfflineScript) -> String {
    let mut sentences = vec!["This is the offline engine: no model was asked.".to_owned()];
    sentences.extend(script.complaints.iter().map(|what| format!("In #offline, {what}.")));
    if !script.input_start.is_empty() {
        sentences.push(format!("It heard: {}", script.input_start));
    }
    sentences.join(" ")
}
