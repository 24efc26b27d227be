//! Reads a session's earlier turns from the conversation's message log.

use serde_json::{Value, json};

use crate::execution::{MessageKind, MessageLog};

/// The main thread's messages of a session, in the order of the log and the API's format. Thinking
/// is left out: the model does not need it for earlier turns, and the log has no signatures.
pub fn session_history(log: &[MessageLog], session_id: &str) -> Vec<Value> {
    let opens = |entry: &MessageLog| {
        entry.kind == MessageKind::System
            && entry.subtype.as_deref() == Some("init")
            && entry.content["session_id"] == session_id
    };
    let Some(first) = log.iter().find(|entry| opens(entry)).map(|entry| entry.execution.clone())
    else {
        return Vec::new();
    };
    // The user's message is logged before the entry that opens the session.
    let own = log.iter().skip_while(|entry| entry.execution != first);
    let main = own.filter(|entry| entry.parent_tool_use_id.is_none());
    let mut messages: Vec<(&str, Vec<Value>)> = Vec::new();
    for entry in main {
        let Some((role, block)) = said(entry) else { continue };
        match messages.last_mut() {
            Some((last, blocks)) if *last == role => blocks.push(block),
            _ => messages.push((role, vec![block])),
        }
    }
    let message = |(role, content)| json!({ "role": role, "content": content });
    messages.into_iter().map(message).collect()
}

fn said(entry: &MessageLog) -> Option<(&'static str, Value)> {
    let role = match entry.kind {
        MessageKind::User => "user",
        MessageKind::Assistant => "assistant",
        MessageKind::System | MessageKind::Result => return None,
    };
    let content = &entry.content;
    let block = match content["type"].as_str()? {
        "text" => {
            content["text"].as_str().filter(|text| !text.trim().is_empty())?;
            json!({ "type": "text", "text": content["text"] })
        }
        "tool_use" => json!({
            "type": "tool_use", "id": content["id"], "name": content["name"],
            "input": content["input"],
        }),
        "tool_result" => json!({
            "type": "tool_result", "tool_use_id": content["tool_use_id"],
            "content": content["content"], "is_error": content["is_error"],
        }),
        _ => return None,
    };
    Some((role, block))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::TenantId;
    use crate::time::Timestamp;

    fn log(run: u32, kind: MessageKind, content: Value) -> MessageLog {
        MessageLog {
            id: String::new(),
            tenant: TenantId::local(),
            conversation: "cnv_1".parse().unwrap(),
            execution: format!("exe_{run}").parse().unwrap(),
            turn: 1,
            seq: 1,
            kind,
            subtype: (kind == MessageKind::System).then(|| "init".to_owned()),
            content,
            parent_tool_use_id: None,
            at: Timestamp::default(),
        }
    }

    #[test]
    fn a_session_is_read_from_its_first_words_with_calls_and_answers_in_pairs() {
        use MessageKind::{Assistant, Result, System, User};
        let text = |text: &str| json!({ "type": "text", "text": text });
        let call = json!({ "type": "tool_use", "id": "t", "name": "f", "input": { "a": 1 } });
        let answer = json!({
            "type": "tool_result", "tool_use_id": "t", "content": "答え", "is_error": false,
        });
        let mut inner = log(2, Assistant, text("a subagent's"));
        inner.parent_tool_use_id = Some("t".to_owned());
        let logs = [
            log(1, User, text("of another session")),
            log(1, System, json!({ "session_id": "old" })),
            log(2, User, text("one")),
            log(2, System, json!({ "session_id": "s" })),
            log(2, Assistant, json!({ "type": "thinking", "thinking": "hm" })),
            log(2, Assistant, text("I look.")),
            log(2, Assistant, call.clone()),
            inner,
            log(2, User, answer.clone()),
            log(2, Assistant, text("done")),
            log(2, Result, json!({ "result": "done" })),
            log(3, User, text("two")),
            log(3, System, json!({ "session_id": "s" })),
            log(3, Assistant, text("")),
            log(3, Assistant, text("三")),
        ];
        let expected = json!([
            { "role": "user", "content": [text("one")] },
            { "role": "assistant", "content": [text("I look."), call] },
            { "role": "user", "content": [answer] },
            { "role": "assistant", "content": [text("done")] },
            { "role": "user", "content": [text("two")] },
            { "role": "assistant", "content": [text("三")] },
        ]);
        assert_eq!(json!(session_history(&logs, "s")), expected);
        assert_eq!(session_history(&logs, "unknown"), Vec::<Value>::new());
    }
}
