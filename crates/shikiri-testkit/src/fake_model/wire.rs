//! The Messages API on the wire: one message, or the same message as a stream of events.

use axum::body::Bytes;
use serde_json::{Value, json};

use super::reply::{Failure, Reply, Usage};

/// Characters of text or tool input in one delta. Small, so that clients have to join words and
/// JSON.
const DELTA: usize = 12;

/// The whole message. Each call gets a unique id.
pub(super) fn message(reply: &Reply, blocks: &[Value], model: &str, number: usize) -> Value {
    let mut content = blocks.to_vec();
    for (index, block) in content.iter_mut().enumerate() {
        if block["type"] == "tool_use" {
            block["id"] = format!("toolu_fake{number:06}{index:02}").into();
        }
    }
    let calls = content.iter().any(|block| block["type"] == "tool_use");
    let by_blocks = if calls { "tool_use" } else { "end_turn" };
    json!({
        "id": format!("msg_fake{number:06}"),
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": content,
        "stop_reason": reply.stop_reason.as_deref().unwrap_or(by_blocks),
        "stop_sequence": null,
        "usage": usage(&reply.usage),
    })
}

/// The stream's events for this message, or for its first block and an error.
pub(super) fn events(message: &Value, breaks_off: bool) -> Vec<Value> {
    let mut opening = message.clone();
    opening["content"] = json!([]);
    opening["stop_reason"] = Value::Null;
    opening["usage"]["output_tokens"] = 1.into();
    let mut events = vec![json!({ "type": "message_start", "message": opening })];
    let blocks = message["content"].as_array().map_or(&[][..], Vec::as_slice);
    for (index, block) in blocks.iter().enumerate() {
        events.extend(block_events(index, block));
        if breaks_off {
            events.push(error(&Failure::new(529, "overloaded_error")));
            return events;
        }
    }
    let delta = json!({ "stop_reason": message["stop_reason"], "stop_sequence": null });
    events.push(json!({ "type": "message_delta", "delta": delta, "usage": message["usage"] }));
    events.push(json!({ "type": "message_stop" }));
    events
}

/// The body of a response that is no message.
pub(super) fn error(failure: &Failure) -> Value {
    let error = json!({ "type": failure.kind, "message": failure.message });
    json!({ "type": "error", "error": error })
}

/// An event as a server-sent one.
pub(super) fn frame(event: &Value) -> Bytes {
    let kind = event["type"].as_str().unwrap_or("message");
    format!("event: {kind}\ndata: {event}\n\n").into()
}

fn usage(usage: &Usage) -> Value {
    json!({
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "cache_read_input_tokens": usage.cache_read_input_tokens,
        "cache_creation_input_tokens": usage.cache_creation_input_tokens,
        "cache_creation": {
            "ephemeral_5m_input_tokens":
                usage.cache_creation_input_tokens - usage.cache_creation_1h_input_tokens,
            "ephemeral_1h_input_tokens": usage.cache_creation_1h_input_tokens,
        },
        "service_tier": "standard",
    })
}

fn block_events(index: usize, block: &Value) -> Vec<Value> {
    // The block's initial form, and the deltas that complete it.
    let mut start = block.clone();
    let mut deltas = Vec::new();
    match block["type"].as_str() {
        Some("tool_use") => {
            start["input"] = json!({});
            deltas.extend(pieces("input_json_delta", "partial_json", &block["input"].to_string()));
        }
        Some("thinking") => {
            (start["thinking"], start["signature"]) = ("".into(), "".into());
            let thinking = block["thinking"].as_str().unwrap_or_default();
            deltas.extend(pieces("thinking_delta", "thinking", thinking));
            deltas.push(json!({ "type": "signature_delta", "signature": block["signature"] }));
        }
        _ => {
            start["text"] = "".into();
            deltas.extend(pieces("text_delta", "text", block["text"].as_str().unwrap_or_default()));
        }
    }
    let started = json!({ "type": "content_block_start", "index": index, "content_block": start });
    let delta = |delta| json!({ "type": "content_block_delta", "index": index, "delta": delta });
    let stopped = json!({ "type": "content_block_stop", "index": index });
    let deltas = deltas.into_iter().map(delta);
    std::iter::once(started).chain(deltas).chain([stopped]).collect()
}

fn pieces(kind: &str, field: &str, whole: &str) -> Vec<Value> {
    let chars: Vec<char> = whole.chars().collect();
    let piece = |part: &[char]| json!({ "type": kind, field: part.iter().collect::<String>() });
    chars.chunks(DELTA).map(piece).collect()
}
