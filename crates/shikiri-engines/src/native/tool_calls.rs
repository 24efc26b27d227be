//! Calls the tools of one reply in parallel. A call of `Task` runs a subagent.

use futures_util::{StreamExt as _, stream};
use serde_json::{Value, json};
use shikiri_executions::execution::{EngineError, ToolCallResult, ToolContent};
use shikiri_model::native::{ModelToolCall, TASK, ThreadId, TurnEntry, UNKNOWN_OUTCOME};

use super::turn_driver::NativeTurnDriver;

/// Calls of one reply that run at the same time.
const AT_ONCE: usize = 16;
/// Bytes of an answer's text that the model sees.
const MAX_TEXT: usize = 100 * 1024;
/// The largest picture that the API takes, in base64.
const MAX_PICTURE: usize = 5 * 1024 * 1024;
const MAX_PICTURES: usize = 20;
const PICTURES: [&str; 4] = ["image/png", "image/jpeg", "image/gif", "image/webp"];

impl NativeTurnDriver {
    /// Stores each answer as it arrives, so that a slow call does not delay storing the others.
    pub(super) async fn call_all(
        &self,
        thread: &ThreadId,
        calls: Vec<ModelToolCall>,
    ) -> Result<(), EngineError> {
        let calls = calls.into_iter().map(|call| self.call(thread, call));
        let mut under_way = stream::iter(calls).buffer_unordered(AT_ONCE);
        while let Some(kept) = under_way.next().await {
            kept?;
        }
        Ok(())
    }

    async fn call(&self, thread: &ThreadId, call: ModelToolCall) -> Result<(), EngineError> {
        let (mut content, is_error) = match self.subagent(&call).await? {
            Some((text, is_error)) => (json!(shortened(text, MAX_TEXT)), is_error),
            None => {
                let answer = self.answer(thread, &call).await;
                (content(answer.content), answer.is_error)
            }
        };
        self.redactor().clean_value(&mut content);
        let (thread, tool_use_id) = (thread.clone(), call.id);
        self.persist_entry(TurnEntry::Answer { thread, tool_use_id, content, is_error }).await
    }

    /// The result of a subagent, if the call has one.
    async fn subagent(&self, call: &ModelToolCall) -> Result<Option<(String, bool)>, EngineError> {
        let id = Some(call.id.clone());
        let Some(spawn) = call.spawn() else { return Ok(None) };
        if self.turn().thread(&id).is_none() {
            return Ok(None);
        }
        let model = self.models.of_subagent(spawn.model.as_deref());
        if self.limits_money && self.prices.of(model).is_none() {
            let why = format!("The model {model} has no prices here, and money is limited.");
            return Ok(Some((why, true)));
        }
        let ending = self.thread(&id, model).await?;
        Ok(Some(self.turn().report(&id, &ending)))
    }

    async fn answer(&self, thread: &ThreadId, call: &ModelToolCall) -> ToolCallResult {
        if call.name == TASK {
            let depth = self.turn().depth(thread);
            let why = self.turn().refusal(depth);
            return ToolCallResult::error(why.unwrap_or_else(|| {
                "No subagent was started: say what it should do in `prompt`.".to_owned()
            }));
        }
        if let Err(error) = self.offered.check(&call.name, &call.input) {
            return ToolCallResult::error(error.to_string());
        }
        if self.unknown.contains(&call.id) && !self.offered.is_repeatable(&call.name) {
            return ToolCallResult::error(UNKNOWN_OUTCOME);
        }
        self.tools.call(&call.name, &call.input).await
    }
}

/// The content in the API's format, shortened for the model.
fn content(pieces: Vec<ToolContent>) -> Value {
    let (mut blocks, mut room, mut pictures) = (Vec::new(), MAX_TEXT, 0);
    let mut left_out = 0;
    for piece in pieces {
        let text = match piece {
            ToolContent::Text(text) if room == 0 => {
                left_out += text.len();
                continue;
            }
            ToolContent::Text(text) => text,
            ToolContent::Image { media_type, data } => {
                pictures += 1;
                let is_fit = PICTURES.contains(&media_type.as_str()) && data.len() <= MAX_PICTURE;
                if is_fit && pictures <= MAX_PICTURES {
                    let source =
                        json!({ "type": "base64", "media_type": media_type, "data": data });
                    blocks.push(json!({ "type": "image", "source": source }));
                    continue;
                }
                format!("[a picture that is not shown: {media_type}, {} bytes]", data.len())
            }
        };
        let length = text.len();
        if !text.is_empty() {
            blocks.push(json!({ "type": "text", "text": shortened(text, room) }));
        }
        room = room.saturating_sub(length);
    }
    if left_out > 0 {
        blocks.push(json!({ "type": "text", "text": format!("[cut: {left_out} more bytes]") }));
    }
    match &blocks[..] {
        [] => json!("(no output)"),
        [only] if only["type"] == "text" => only["text"].clone(),
        _ => json!(blocks),
    }
}

/// The beginning of a text that is too long, with a note that says so.
fn shortened(mut text: String, most: usize) -> String {
    if text.len() <= most {
        return text;
    }
    let (all, mut end) = (text.len(), most);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.truncate(end);
    text.push_str(&format!("\n[cut: {end} of {all} bytes are shown]"));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> ToolContent {
        ToolContent::Text(text.to_owned())
    }

    fn picture(media_type: &str, bytes: usize) -> ToolContent {
        ToolContent::Image { media_type: media_type.to_owned(), data: "x".repeat(bytes) }
    }

    #[test]
    fn a_long_answer_is_cut_with_a_note_between_characters() {
        let long = shortened("木".repeat(10), 7);
        assert_eq!(long, "木木\n[cut: 6 of 30 bytes are shown]");
        let seen = content(vec![text(&"a".repeat(MAX_TEXT - 1)), text("bcd"), text("efg")]);
        let blocks = seen.as_array().unwrap();
        assert_eq!(blocks[1]["text"], "b\n[cut: 1 of 3 bytes are shown]");
        assert_eq!(blocks[2]["text"], "[cut: 3 more bytes]");
        assert_eq!(content(vec![text("short")]), json!("short"));
    }

    #[test]
    fn the_model_sees_pictures_that_the_api_takes() {
        let seen = content(vec![text("two"), picture("image/png", 9), picture("image/tiff", 9)]);
        assert_eq!(seen[1]["source"]["media_type"], "image/png");
        assert_eq!(seen[2]["text"], "[a picture that is not shown: image/tiff, 9 bytes]");
        let seen = content(vec![picture("image/png", MAX_PICTURE + 1)]);
        assert!(seen.as_str().unwrap().contains("not shown"));
        assert_eq!(content(vec![]), json!("(no output)"));
        assert_eq!(content(vec![text("")]), json!("(no output)"));
    }
}
