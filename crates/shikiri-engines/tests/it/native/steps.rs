//! A turn that another process goes on with: from every step on, and in the middle of a reply.

use shikiri_model::native::UNKNOWN_OUTCOME;

use super::*;

each_engine! {
    only native: "the CLI keeps no steps";
    from_every_step_on_the_turn_comes_to_the_same_end;
    a_call_of_unknown_outcome_is_told_to_the_model_unless_it_may_be_repeated;
    what_readers_saw_of_a_reply_stays_and_the_model_goes_on_from_there;
    what_was_spent_before_counts_against_the_limit;
}

/// Ten steps: calls, two at a time once, a subagent, and an end.
fn script(world: &World) {
    let spawn = json!({ "description": "d", "prompt": "helper, work" });
    world.model.script("helper, work", [echo("inner").usage(tokens(4)), Reply::text("helped")]);
    world.model.script(
        "go",
        [
            Reply::thinking("hm").and_text("I call. ").and_call("look", json!({})).usage(tokens(1)),
            echo("a").and_call("look", json!({})).usage(tokens(2)),
            Reply::call("Task", spawn).usage(tokens(3)),
            Reply::text("all done").usage(tokens(5)),
        ],
    );
}

async fn from_every_step_on_the_turn_comes_to_the_same_end(which: TestEngine) {
    let world = World::new(which).await;
    script(&world);
    let first = world.run(world.order("go")).await;
    assert_eq!(first.result(), "all done");
    let steps = &first.account.steps;
    assert_eq!(steps.len(), 12, "{steps:#?}");
    let count = |outcome: &Outcome, kind: &str| {
        outcome.processor.messages().iter().filter(|m| m.content["type"] == kind).count()
    };
    let replies =
        |steps: &[JournalStep]| steps.iter().filter(|s| s.entry["entry"] == "reply").count();
    for done in 1..=steps.len() {
        let text = match done {
            1 => "",
            // The last reply has been seen, too.
            12 => "I call. all done",
            _ => "I call. ",
        };
        let memory = ResumeState {
            steps: steps[..done].to_vec(),
            text: text.to_owned(),
            ..ResumeState::default()
        };
        let before = world.model.messages().len();
        let ended = world.run(TurnRequest { memory, ..world.order("go") }).await;
        assert_eq!(ended.result(), "all done", "after {done}");
        // No reply that was kept was asked for again, and no step is made twice.
        let left = replies(steps) - replies(&steps[..done]);
        assert_eq!(world.model.messages().len() - before, left, "after {done}");
        assert_eq!(done + ended.account.steps.len(), steps.len(), "after {done}");
        for kind in ["text", "thinking", "tool_use", "tool_result"] {
            assert_eq!(count(&ended, kind), count(&first, kind), "{kind} after {done}");
        }
        assert_eq!(ended.processor.text(), first.processor.text());
    }
}

async fn a_call_of_unknown_outcome_is_told_to_the_model_unless_it_may_be_repeated(
    which: TestEngine,
) {
    let world = World::new(which).await;
    script(&world);
    let first = world.run(world.order("go")).await;
    // Up to the reply that calls `echo` and `look`.
    let at = first
        .account
        .steps
        .iter()
        .position(|step| step.entry["reply"]["content"].to_string().contains("\"echo\""));
    let steps = first.account.steps[..=at.unwrap()].to_vec();
    let (echoed, looked) = (world.tools.calls("echo"), world.tools.calls("look"));
    let memory = ResumeState { steps, text: "I call. ".to_owned(), ..ResumeState::default() };
    let ended = world.run(TurnRequest { memory, ..world.order("go") }).await;
    assert_eq!(ended.result(), "all done");
    let results = ended.of("tool_result");
    assert_eq!(results[0]["content"], UNKNOWN_OUTCOME);
    assert_eq!((&results[0]["is_error"], &results[1]["content"]), (&json!(true), &json!("seen")));
    // The subagent's call is a new one; the other was not made again.
    assert_eq!(world.tools.calls("echo") - echoed, 1);
    assert_eq!(world.tools.calls("look") - looked, 1);
}

async fn what_readers_saw_of_a_reply_stays_and_the_model_goes_on_from_there(which: TestEngine) {
    let world = World::new(which).await;
    world.model.answer(|request| request.says("cut off").then(|| Reply::text("木漏れ日")));
    let opened = json!({ "entry": "opened", "session_id": "s", "model": MODEL });
    let steps = vec![JournalStep { at: Timestamp::from_millis(1), entry: opened }];
    let memory = ResumeState { steps, text: "the light is ".to_owned(), ..ResumeState::default() };
    let ended = world.run(TurnRequest { memory, ..world.order("go") }).await;
    assert_eq!((ended.result(), ended.processor.session_id()), ("木漏れ日", Some("s")));
    assert_eq!(ended.processor.text(), "the light is 木漏れ日");
    let pieces: String =
        ended.of("text_delta").iter().map(|d| d["text"].as_str().unwrap()).collect();
    assert_eq!(pieces, "木漏れ日", "readers have the rest");
    assert_eq!(ended.of("session_start").len(), 0);
    assert_eq!(ended.warnings(), ["USAGE_INCOMPLETE"]);
    let asked = world.model.messages();
    assert_eq!(asked[0].body["messages"][1]["content"][0]["text"], "the light is ");
}

async fn what_was_spent_before_counts_against_the_limit(which: TestEngine) {
    let world = World::new(which).await;
    let opened = json!({ "entry": "opened", "session_id": "s", "model": MODEL });
    let row = json!({
        "kind": "main", "model": MODEL, "cost_usd": 0, "usage": { "input_tokens": 9_990 },
    });
    let memory = ResumeState {
        steps: vec![JournalStep { at: Timestamp::from_millis(1), entry: opened }],
        spent: vec![serde_json::from_value(row).unwrap()],
        ..ResumeState::default()
    };
    let limits = ExecutionLimits { max_tokens: Some(10_000), ..ExecutionLimits::default() };
    let ended = world.run(TurnRequest { memory, limits, ..world.order("go") }).await;
    assert_eq!(ended.finish().limit, Some("max_tokens"));
    assert_eq!(world.model.messages().len(), 0);
}
