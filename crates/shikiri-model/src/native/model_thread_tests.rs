use super::*;
use crate::execution::TokenUsage;

fn thread(limits: &ExecutionLimits) -> ModelThread {
    ModelThread::new(Vec::new(), "始め", limits)
}

fn free() -> ModelThread {
    thread(&ExecutionLimits::default())
}

fn reply(stop_reason: &str, content: Value) -> ModelReply {
    ModelReply {
        id: "msg".to_owned(),
        model: "m".to_owned(),
        content: content.as_array().unwrap().clone(),
        stop_reason: Some(stop_reason.to_owned()),
        usage: TokenUsage { input_tokens: 90, output_tokens: 10, ..TokenUsage::default() },
        capped: None,
    }
}

fn said(text: &str) -> Value {
    json!({ "type": "text", "text": text })
}

fn call(id: &str) -> Value {
    json!({ "type": "tool_use", "id": id, "name": "f", "input": { "n": 1 } })
}

fn ids(next: &ThreadAction) -> Vec<&str> {
    match next {
        ThreadAction::Call(calls) => calls.iter().map(|call| call.id.as_str()).collect(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn each_reason_to_stop_leads_on_or_ends() {
    let stopped = |next: ThreadAction| matches!(next, ThreadAction::End(ThreadEnding::Stopped(_)));
    type Fits = fn(&ThreadAction) -> bool;
    let table: [(&str, Value, Fits); 9] = [
        ("end_turn", json!([said("done")]), |next| *next == ThreadAction::End(ThreadEnding::Done)),
        ("stop_sequence", json!([said("done")]), |next| {
            *next == ThreadAction::End(ThreadEnding::Done)
        }),
        ("never heard of", json!([said("x")]), |next| {
            *next == ThreadAction::End(ThreadEnding::Done)
        }),
        ("tool_use", json!([call("a"), call("b")]), |next| ids(next) == ["a", "b"]),
        ("end_turn", json!([call("a")]), |next| ids(next) == ["a"]),
        ("pause_turn", json!([said("wait")]), |next| *next == ThreadAction::Ask),
        (
            "max_tokens",
            json!([said("to"), call("a")]),
            |next| matches!(next, ThreadAction::End(ThreadEnding::Stopped(why)) if why.contains("most tokens")),
        ),
        (
            "refusal",
            json!([]),
            |next| matches!(next, ThreadAction::End(ThreadEnding::Stopped(why)) if why.contains("refuses")),
        ),
        (
            "model_context_window_exceeded",
            json!([said("x")]),
            |next| matches!(next, ThreadAction::End(ThreadEnding::Stopped(why)) if why.contains("context")),
        ),
    ];
    for (reason, content, fits) in table {
        let mut thread = free();
        thread.replied(&reply(reason, content));
        assert!(fits(&thread.next()), "{reason}: {:?}", thread.next());
    }
    assert!(!stopped(free().next()));
    let mut thread = free();
    let capped = Some(LimitKind::MaxCostUsd);
    thread.replied(&ModelReply { capped, ..reply("max_tokens", json!([said("to")])) });
    assert_eq!(thread.next(), ThreadAction::End(ThreadEnding::Limit(LimitKind::MaxCostUsd)));
}

#[test]
fn the_model_hears_of_all_answers_at_once_in_the_order_of_its_calls() {
    let mut thread = free();
    assert_eq!(thread.next(), ThreadAction::Ask);
    thread.replied(&reply("tool_use", json!([said("I call."), call("a"), call("b")])));
    thread.answered("b", &json!("second"), true);
    assert_eq!(ids(&thread.next()), ["a"]);
    thread.answered("b", &json!("once more"), false);
    thread.answered("absent", &json!("?"), false);
    thread.answered("a", &json!("first"), false);
    assert_eq!(thread.next(), ThreadAction::Ask);
    let result =
        |id: &str, text: &str| json!({ "type": "tool_result", "tool_use_id": id, "content": text });
    let mut second = result("b", "second");
    second["is_error"] = json!(true);
    let expected = json!([
        { "role": "user", "content": [said("始め")] },
        { "role": "assistant", "content": [said("I call."), call("a"), call("b")] },
        { "role": "user", "content": [result("a", "first"), second] },
    ]);
    assert_eq!(json!(thread.messages()), expected);
}

#[test]
fn blocks_are_sent_back_as_they_came_but_for_empty_ones() {
    let mut thread = free();
    let thought = json!({ "type": "thinking", "thinking": "…", "signature": "s==" });
    let secret = json!({ "type": "redacted_thinking", "data": "x" });
    thread.replied(&reply("tool_use", json!([thought, secret, said(""), call("a")])));
    assert_eq!(thread.messages()[1]["content"], json!([thought, secret, call("a")]));
    let mut thread = free();
    thread.replied(&reply("end_turn", json!([said("")])));
    assert_eq!((thread.messages().len(), thread.answer().as_str()), (1, ""));
}

#[test]
fn a_turn_more_than_allowed_is_not_asked_for() {
    let mut thread = thread(&ExecutionLimits { max_turns: Some(2), ..ExecutionLimits::default() });
    for id in ["a", "b"] {
        assert_eq!(thread.next(), ThreadAction::Ask);
        thread.replied(&reply("tool_use", json!([call(id)])));
        // What the model wants done is still done.
        assert_eq!(ids(&thread.next()), [id]);
        thread.answered(id, &json!("ok"), false);
    }
    assert_eq!(thread.next(), ThreadAction::End(ThreadEnding::Limit(LimitKind::MaxTurns)));
    assert_eq!(thread.turns(), 2);
}

#[test]
fn a_reply_that_broke_off_is_gone_on_with_but_not_for_ever() {
    let mut thread = free();
    thread.cut("the first ha");
    assert_eq!(thread.next(), ThreadAction::Ask);
    assert_eq!(
        thread.messages()[1],
        json!({ "role": "assistant", "content": [said("the first ha")] })
    );
    assert_eq!(thread.messages()[2]["role"], "user");
    for _ in 0..MOST_REPAIRS {
        thread.cut(" ");
    }
    assert_eq!(thread.messages().len(), 3, "what is blank is not said");
    assert!(matches!(thread.next(), ThreadAction::End(ThreadEnding::Stopped(_))));
    thread.replied(&reply("end_turn", json!([said("lf")])));
    assert_eq!(thread.next(), ThreadAction::End(ThreadEnding::Done));
    thread.cut("x");
    assert_eq!(thread.next(), ThreadAction::Ask, "a reply in between sets the count back");
}

#[test]
fn input_is_counted_by_the_model_and_guessed_only_since() {
    let mut thread = free();
    let message = thread.messages()[0].to_string().len() as u64;
    assert_eq!(thread.input_tokens(300), (message + 300).div_ceil(3));
    thread.replied(&reply("tool_use", json!([call("a")])));
    assert_eq!(thread.input_tokens(300), 100, "the model has counted what is around, too");
    thread.answered("a", &json!("x".repeat(3_000)), false);
    let guess = thread.input_tokens(300);
    assert!((1_100..1_200).contains(&guess), "{guess}");
}
