use serde_json::json;

use super::*;
use crate::execution::{ModelPrices, TokenPrice};

fn prices() -> PriceList {
    let of =
        |output| ModelPrices { output: TokenPrice::from_micros(output), ..ModelPrices::default() };
    PriceList::new([("big".to_owned(), of(10_000_000)), ("small".to_owned(), of(1_000_000))])
}

fn turn(limits: Value) -> NativeTurn {
    let mut turn =
        NativeTurn::new(Vec::new(), "go", serde_json::from_value(limits).unwrap(), prices());
    let opened = TurnEntry::Opened { session_id: "s".into(), model: "big".into() };
    turn.apply(&opened, ReplayMode::Live);
    turn
}

fn reply(thread: ThreadId, id: &str, model: &str, content: Value) -> TurnEntry {
    let content = content.as_array().unwrap().clone();
    let calls = content.iter().any(|block| block["type"] == "tool_use");
    TurnEntry::Reply {
        thread,
        reply: ModelReply {
            id: id.to_owned(),
            model: model.to_owned(),
            content,
            stop_reason: Some(if calls { "tool_use" } else { "end_turn" }.to_owned()),
            usage: TokenUsage { input_tokens: 100, output_tokens: 10, ..TokenUsage::default() },
            capped: None,
        },
    }
}

fn said(text: &str) -> Value {
    json!({ "type": "text", "text": text })
}

fn task(id: &str, prompt: &str) -> Value {
    let input = json!({ "prompt": prompt, "subagent_type": "scout", "model": "haiku" });
    json!({ "type": "tool_use", "id": id, "name": "Task", "input": input })
}

fn answer(thread: ThreadId, id: &str, content: &str) -> TurnEntry {
    TurnEntry::Answer { thread, tool_use_id: id.into(), content: json!(content), is_error: false }
}

fn sub(id: &str) -> ThreadId {
    Some(id.to_owned())
}

/// A turn with two subagents, one of which has one of its own.
fn story() -> Vec<TurnEntry> {
    let thought = json!({ "type": "thinking", "thinking": "hm", "signature": "s" });
    vec![
        reply(
            None,
            "m1",
            "big",
            json!([thought, said("Two go. "), task("a", "one"), task("b", "二")]),
        ),
        reply(sub("b"), "m2", "small", json!([task("c", "deep")])),
        reply(sub("a"), "m3", "small", json!([said("found")])),
        answer(None, "a", "found"),
        reply(sub("c"), "m4", "small", json!([thought, said("deeper")])),
        answer(sub("b"), "c", "deeper"),
        reply(sub("b"), "m5", "small", json!([said("deep enough")])),
        answer(None, "b", "deep enough"),
        TurnEntry::Cut { thread: None, text: "All ".into() },
        reply(None, "m6", "big", json!([said("done.")])),
    ]
}

/// What is told, in short.
fn short(message: &EngineMessage) -> String {
    match message {
        EngineMessage::TextDelta { text } => format!("~{text}"),
        EngineMessage::Text { text, parent, streamed } => {
            format!("{}{text}{}", parent.as_deref().unwrap_or(""), if *streamed { "!" } else { "" })
        }
        EngineMessage::Thinking { parent, .. } => format!("{}?", parent.as_deref().unwrap_or("")),
        EngineMessage::ToolUse(tool) => format!("call {}", tool.id),
        EngineMessage::ToolResult { tool_use_id, .. } => format!("result {tool_use_id}"),
        EngineMessage::SubagentStarted(start) => format!("start {}", start.tool_use_id),
        EngineMessage::SubagentEnded { tool_use_id, .. } => format!("end {tool_use_id}"),
        EngineMessage::Spent { who, request, .. } => format!("{who:?} {request}"),
        other => format!("{other:?}"),
    }
}

#[test]
fn what_is_told_comes_from_the_entries_alone() {
    let mut live = turn(json!({}));
    let told: Vec<_> =
        story().iter().flat_map(|entry| live.apply(entry, ReplayMode::Live)).collect();
    let told: Vec<_> = told.iter().map(short).collect();
    assert_eq!(
        told,
        [
            "Main m1",
            "Two go. !",
            "call a",
            "start a",
            "call b",
            "start b",
            "Subagent(\"b\") m2",
            "call c",
            "start c",
            "Subagent(\"a\") m3",
            "afound",
            "end a",
            "result a",
            "Subagent(\"c\") m4",
            "c?",
            "cdeeper",
            "end c",
            "result c",
            "Subagent(\"b\") m5",
            "bdeep enough",
            "end b",
            "result b",
            "All !",
            "Main m6",
            "done.!",
        ]
    );
    assert_eq!(live.next(&None), ThreadAction::End(ThreadEnding::Done));
    let finish = live.finish(&ThreadEnding::Done);
    assert_eq!((finish.result.as_str(), finish.num_turns, finish.is_error), ("done.", 2, false));
}

#[test]
fn a_turn_is_the_same_when_its_entries_are_applied_again() {
    let entries = story();
    for count in 0..=entries.len() {
        let mut live = turn(json!({ "max_tokens": 5_000, "subagent": { "max_tokens": 900 } }));
        let mut again = turn(json!({ "max_tokens": 5_000, "subagent": { "max_tokens": 900 } }));
        for entry in &entries[..count] {
            live.apply(entry, ReplayMode::Live);
            let kept = serde_json::to_string(entry).unwrap();
            again.apply(&serde_json::from_str(&kept).unwrap(), ReplayMode::Again);
        }
        for thread in [None, sub("a"), sub("b"), sub("c")] {
            assert_eq!(live.next(&thread), again.next(&thread), "{count}");
            let messages = |turn: &NativeTurn| turn.thread(&thread).map(|t| t.messages().to_vec());
            assert_eq!(messages(&live), messages(&again));
            let grant =
                |turn: &mut NativeTurn| turn.reserve(&thread, "big", 10, 9_999).map(|(_, g)| g);
            assert_eq!(grant(&mut live), grant(&mut again));
        }
    }
}

#[test]
fn what_readers_have_seen_beyond_the_entries_is_known() {
    let mut turn = turn(json!({}));
    turn.apply(&story()[0], ReplayMode::Again);
    assert_eq!(turn.unsaved_text("Two go. And 木"), "And 木");
    assert_eq!(turn.unsaved_text("Two go. "), "");
    assert_eq!(turn.unsaved_text(""), "");
}

#[test]
fn an_execution_pays_for_its_subagents_and_each_of_them_for_its_own() {
    let mut turn = turn(json!({ "max_tokens": 2_000, "subagent": { "max_tokens": 600 } }));
    for entry in &story()[..2] {
        turn.apply(entry, ReplayMode::Live);
    }
    // `b` has used 110 of its 600, and 220 of the 2000 are gone.
    let (first, grant) = turn.reserve(&sub("c"), "small", 0, 10_000).unwrap();
    assert_eq!(grant.capped, Some(LimitKind::MaxTokens));
    assert!((400..490).contains(&grant.max_output), "{grant:?}");
    assert_eq!(turn.reserve(&sub("b"), "small", 0, 10_000), Err(LimitKind::MaxTokens));
    let (_, of_a) = turn.reserve(&sub("a"), "small", 0, 10_000).unwrap();
    assert!(of_a.max_output > 500, "its budget is its own: {of_a:?}");
    let (_, of_main) = turn.reserve(&None, "big", 0, 10_000).unwrap();
    assert!(of_main.max_output < 700, "but the execution's is for all: {of_main:?}");
    turn.release(first);
    assert!(turn.reserve(&sub("b"), "small", 0, 10_000).is_ok());
}

#[test]
fn what_was_told_before_counts_against_the_limit() {
    let mut turn = turn(json!({ "max_cost_usd": 0.01 }));
    assert!(turn.reserve(&None, "big", 0, 500).is_ok_and(|(_, g)| g.capped.is_none()));
    turn.restore_spent(&TokenUsage::default(), serde_json::from_str("0.0099").unwrap());
    assert_eq!(turn.reserve(&None, "big", 0, 500), Err(LimitKind::MaxCostUsd));
}

#[test]
fn subagents_go_so_deep_and_no_deeper() {
    let mut turn = turn(json!({}));
    let mut thread = None;
    for depth in 0..=MAX_DEPTH {
        let id = format!("t{depth}");
        let told =
            turn.apply(&reply(thread, &id, "small", json!([task(&id, "go on")])), ReplayMode::Live);
        let starts = told.iter().any(|m| matches!(m, EngineMessage::SubagentStarted(_)));
        assert_eq!(starts, depth < MAX_DEPTH);
        assert_eq!(turn.refusal(depth).is_some(), depth == MAX_DEPTH);
        thread = sub(&id);
    }
    // A call that makes no sense spawns no subagent, nor does one that was made before.
    let bad = json!({ "type": "tool_use", "id": "x", "name": "Task", "input": { "prompt": " " } });
    let told =
        turn.apply(&reply(None, "m", "big", json!([bad, task("t0", "again")])), ReplayMode::Live);
    assert!(!told.iter().any(|m| matches!(m, EngineMessage::SubagentStarted(_))), "{told:?}");
}

#[test]
fn a_turn_has_so_many_subagents_and_no_more() {
    let mut turn = turn(json!({}));
    let tasks: Vec<_> = (0..MAX_SUBAGENTS + 20).map(|n| task(&format!("t{n}"), "go")).collect();
    let told = turn.apply(&reply(None, "m", "big", json!(tasks)), ReplayMode::Live);
    let starts = told.iter().filter(|m| matches!(m, EngineMessage::SubagentStarted(_)));
    assert_eq!(starts.count(), MAX_SUBAGENTS);
    let refused = turn.refusal(0).unwrap();
    assert!(refused.contains("at most 100 subagents"), "{refused}");
}

#[test]
fn an_end_by_a_limit_names_it() {
    let turn = turn(json!({ "max_turns": 3, "subagent": { "max_cost_usd": 0.5 } }));
    let finish = turn.finish(&ThreadEnding::Limit(LimitKind::MaxTurns));
    assert_eq!(finish.errors, ["stopped by the limit max_turns of 3"]);
    assert_eq!((finish.limit, finish.is_error), (Some("max_turns"), true));
    let (text, is_error) = turn.report(&sub("a"), &ThreadEnding::Limit(LimitKind::MaxCostUsd));
    assert!(is_error && text.contains("limit max_cost_usd of 0.5"), "{text}");
    let (text, _) = turn.report(&sub("a"), &ThreadEnding::Limit(LimitKind::MaxTokens));
    assert!(text.contains("execution's limit max_tokens"), "{text}");
}
