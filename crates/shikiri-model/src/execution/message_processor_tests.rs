use super::super::engine_message::TokenSpender;
use super::super::token_usage::TokenUsage;
use super::*;
use crate::run::WarningCode;

fn taken(processor: &mut MessageProcessor, message: EngineMessage) -> Vec<(&'static str, Value)> {
    let events = processor.process(message, Timestamp::from_millis(5));
    let read = |e: &NewEvent| (e.kind(), serde_json::from_str(e.data()).unwrap());
    events.iter().map(read).collect()
}

fn started() -> EngineMessage {
    EngineMessage::Started { session_id: "s1".into(), model: "opus".into() }
}

fn spawn(id: &str, model: Option<&str>) -> EngineMessage {
    EngineMessage::SubagentStarted(SubagentStart {
        tool_use_id: id.into(),
        agent_id: Some(format!("a-{id}")),
        subagent_type: "探索".into(),
        model: model.map(str::to_owned),
    })
}

fn expected() -> ProcessorConfig {
    ProcessorConfig {
        turn: 3,
        resumed: true,
        aliases: BTreeMap::from([("haiku".into(), "claude-haiku-4-5".into())]),
        subagent_model: "haiku".into(),
        ..ProcessorConfig::default()
    }
}

#[test]
fn a_session_starts_once_however_often_the_engine_says_so() {
    let mut processor = MessageProcessor::new(expected());
    let first = taken(&mut processor, started());
    assert_eq!(first[0].0, "session_start");
    assert_eq!(
        first[0].1,
        json!({ "session_id": "s1", "model": "opus", "resumed": true, "turn": 3 })
    );
    assert_eq!(taken(&mut processor, started()), []);
}

#[test]
fn the_end_of_a_subagent_names_the_model_that_answered() {
    let mut processor = MessageProcessor::new(expected());
    let begun = taken(&mut processor, spawn("t1", Some("haiku")));
    assert_eq!(begun[0].1["model"], "claude-haiku-4-5");
    for (request, model, output_tokens) in
        [("r1", "claude-haiku-4-5-20251001", 7), ("r2", "claude-other", 1)]
    {
        let usage = TokenUsage { output_tokens, ..TokenUsage::default() };
        let who = TokenSpender::Subagent("t1".into());
        let (request, model) = (request.into(), model.into());
        taken(&mut processor, EngineMessage::Spent { who, request, model, usage });
    }
    let told = EngineMessage::SubagentEnded { tool_use_id: "t1".into(), is_error: false };
    assert_eq!(taken(&mut processor, told)[0].1["model"], "claude-haiku-4-5-20251001");
    // One that has not asked its model has none that answered.
    taken(&mut processor, spawn("t2", Some("haiku")));
    let told = EngineMessage::SubagentEnded { tool_use_id: "t2".into(), is_error: true };
    assert_eq!(taken(&mut processor, told)[0].1["model"], "claude-haiku-4-5");
}

#[test]
fn streamed_text_is_told_once_and_kept_whole() {
    let mut processor = MessageProcessor::new(expected());
    for piece in ["こん", "にちは"] {
        let told = taken(&mut processor, EngineMessage::TextDelta { text: piece.into() });
        assert_eq!(told, [("text_delta", json!({ "text": piece }))]);
    }
    let whole =
        EngineMessage::Text { text: "こんにちは".into(), parent: None, streamed: true };
    assert_eq!(taken(&mut processor, whole), []);
    assert_eq!(processor.text(), "こんにちは");
    assert_eq!(processor.messages().len(), 1);

    let inner =
        EngineMessage::Text { text: "中".into(), parent: Some("t1".into()), streamed: false };
    let told = taken(&mut processor, inner);
    assert_eq!(told, [("text_delta", json!({ "text": "中", "parent_tool_use_id": "t1" }))]);
    assert_eq!(processor.text(), "こんにちは", "a subagent's text is not the answer");
}

#[test]
fn subagents_end_in_any_order_each_with_its_own_usage() {
    let mut processor = MessageProcessor::new(expected());
    let start = taken(&mut processor, spawn("t1", None));
    assert_eq!(start[0].1["model"], "claude-haiku-4-5");
    taken(&mut processor, spawn("t2", Some("opus-5")));
    assert_eq!(taken(&mut processor, spawn("t2", Some("opus-5"))), []);
    for (id, tokens) in [("t1", 10), ("t2", 20)] {
        taken(
            &mut processor,
            EngineMessage::Spent {
                who: TokenSpender::Subagent(id.into()),
                request: "m".into(),
                model: "x".into(),
                usage: TokenUsage { input_tokens: tokens, ..TokenUsage::default() },
            },
        );
    }
    assert!(processor.take_usage_changed());
    assert!(!processor.take_usage_changed());
    let end = EngineMessage::SubagentEnded { tool_use_id: "t2".into(), is_error: false };
    let told = taken(&mut processor, end.clone());
    assert_eq!((told[0].0, &told[0].1["usage"]["input_tokens"]), ("subagent_end", &json!(20)));
    assert_eq!(told[0].1["model"], "x", "the model names itself");
    assert_eq!(taken(&mut processor, end), []);
    // The other never ended: it is closed as failed, with what it spent.
    let left = processor.close();
    let data: Value = serde_json::from_str(left[0].data()).unwrap();
    assert_eq!((&data["is_error"], &data["usage"]["input_tokens"]), (&json!(true), &json!(10)));
    assert_eq!(processor.rows().len(), 2);
}

#[test]
fn tools_are_told_once_and_attributed_by_their_parent() {
    let mut processor = MessageProcessor::new(expected());
    let tool = ToolUse {
        id: "t1".into(),
        name: "Read".into(),
        input: json!({ "path": "秘.txt" }),
        parent: Some("t0".into()),
    };
    let told = taken(&mut processor, EngineMessage::ToolUse(tool.clone()));
    assert_eq!(told[0].1["parent_tool_use_id"], "t0");
    assert_eq!(taken(&mut processor, EngineMessage::ToolUse(tool)), []);
    let result = EngineMessage::ToolResult {
        tool_use_id: "t1".into(),
        content: json!("無い"),
        is_error: true,
        parent: Some("t0".into()),
    };
    let told = taken(&mut processor, result);
    assert_eq!(told[0].0, "tool_result");
    assert_eq!(told[0].1["is_error"], true);
    assert_eq!(processor.tools()[0].is_error, Some(true));
}

#[test]
fn the_last_finish_counts() {
    let mut processor = MessageProcessor::new(expected());
    for text in ["first", "last"] {
        let finish = EngineFinish { result: text.into(), ..EngineFinish::default() };
        assert_eq!(taken(&mut processor, EngineMessage::Finished(finish)), []);
    }
    assert_eq!(processor.finish().unwrap().result, "last");
}

#[test]
fn warnings_name_the_server_and_notes_are_only_kept() {
    let mut processor = MessageProcessor::new(expected());
    let warning = EngineMessage::Warning {
        code: WarningCode::McpServerUnavailable,
        message: "no answer".into(),
        server: Some("docs".into()),
    };
    assert_eq!(taken(&mut processor, warning)[0].1["server"], "docs");
    let note = EngineMessage::Note { subtype: "finish".into(), content: json!({}) };
    assert_eq!(taken(&mut processor, note), []);
    assert_eq!(processor.messages()[0].subtype.as_deref(), Some("finish"));
}

#[test]
fn a_retry_is_kept_and_told_with_its_pause_and_its_reason() {
    let mut processor = MessageProcessor::new(expected());
    let content = json!({
        "attempt": 2, "max_retries": 10, "retry_delay_ms": 3_400, "error": "過負荷",
        "error_status": 529,
    });
    let note = EngineMessage::Note { subtype: "api_retry".into(), content };
    let told = json!({
        "code": "API_RETRY", "message": "retrying in 4 s (2 of 10): 過負荷",
        "attempt": 2, "max_retries": 10, "retry_delay_ms": 3_400,
    });
    assert_eq!(taken(&mut processor, note), [("warning", told)]);
    assert_eq!(processor.messages()[0].subtype.as_deref(), Some("api_retry"));
}
