//! Turns of the main thread alone: text, thinking, tools, being stopped.

use super::*;

each_engine! {
    calls_of_one_reply_are_made_at_the_same_time, only native: "of its own calls the CLI decides";
    a_bad_call_is_told_to_the_model_and_a_long_answer_is_cut,
        only native: "the CLI checks and cuts in its own way";
    other_reasons_to_stop_are_ends_in_clear_words,
        only native: "the CLI goes on or ends in its own words";
}

async fn calls_of_one_reply_are_made_at_the_same_time(which: TestEngine) {
    let world = World::new(which).await;
    let calls = echo("one").and_call("echo", json!({ "text": "two" }));
    let calls = calls.and_call("hang", json!({}));
    world.model.script("go", [calls]);
    let order = world.order("go");
    // The one that never answers does not keep the others from it.
    let two = std::sync::atomic::AtomicUsize::new(0);
    let ended = world
        .run_until(order, |m| {
            matches!(m, EngineMessage::ToolResult { .. })
                && two.fetch_add(1, std::sync::atomic::Ordering::SeqCst) == 1
        })
        .await;
    assert_eq!(ended.finish().errors, ["aborted_tools"]);
    assert_eq!(ended.of("tool_result").len(), 2);
    assert_eq!((world.tools.calls("echo"), world.tools.calls("hang")), (2, 1));
}

async fn a_bad_call_is_told_to_the_model_and_a_long_answer_is_cut(which: TestEngine) {
    let world = World::new(which).await;
    let calls = Reply::call("echo", json!({ "text": 7 }))
        .and_call("absent", json!({}))
        .and_call("flood", json!({}))
        .and_call("Task", json!({ "description": "no prompt" }));
    world.model.script("go", [calls, Reply::text("I see")]);
    let ended = world.run(world.order("go")).await;
    assert_eq!(ended.result(), "I see");
    assert_eq!(world.tools.calls("echo"), 0, "it was not called");
    let heard = world.model.messages()[1].tool_results();
    assert!(heard[0].is_error && heard[0].text.contains("/text"), "{heard:?}");
    assert!(heard[1].is_error && heard[1].text.contains("no tool \"absent\""));
    assert!(!heard[2].is_error && heard[2].text.len() < 110 * 1024);
    assert!(heard[2].text.ends_with("of 3000000 bytes are shown]"));
    assert!(heard[3].is_error && heard[3].text.contains("prompt"));
    ended.assert_exact(&world);
}

async fn other_reasons_to_stop_are_ends_in_clear_words(which: TestEngine) {
    let world = World::new(which).await;
    let table = [
        ("max_tokens", "most tokens"),
        ("refusal", "refuses"),
        ("model_context_window_exceeded", "does not fit"),
    ];
    for (reason, words) in table {
        world.model.script(reason, [Reply::text("so far").stop_reason(reason)]);
        let ended = world.run(world.order(reason)).await;
        assert!(ended.error().contains(words), "{}", ended.error());
        assert_eq!(ended.finish().result, "so far");
    }
    let paused = [Reply::text("wait, ").stop_reason("pause_turn"), Reply::text("there")];
    world.model.script("pause", paused);
    let ended = world.run(world.order("pause")).await;
    assert_eq!((ended.result(), ended.processor.text()), ("there", "wait, there"));
}
