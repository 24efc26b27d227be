//! Subagents: several at once, inside each other; each with its own bill.

use super::*;

each_engine! {
    a_subagent_whose_stream_breaks_off_is_asked_again,
        only native: "older versions of the CLI give it up";
    subagents_are_not_spawned_without_end, only native: "the CLI has its own bound";
}

fn spawn(prompt: &str) -> Value {
    json!({ "description": "d", "prompt": prompt, "subagent_type": "scout" })
}

async fn a_subagent_whose_stream_breaks_off_is_asked_again(which: TestEngine) {
    let world = World::new(which).await;
    let once = std::sync::atomic::AtomicUsize::new(0);
    world.model.answer(move |request| {
        let is_first = || once.fetch_add(1, std::sync::atomic::Ordering::SeqCst) == 0;
        let broken = || Reply::text("half").and_text("never sent").broken_off();
        request.says("helper").then(|| if is_first() { broken() } else { Reply::text("whole") })
    });
    world.model.script("go", [Reply::call("Task", spawn("helper")), Reply::text("done")]);
    let ended = world.run(world.order("go")).await;
    assert_eq!(ended.result(), "done");
    assert_eq!(ended.of("tool_result")[0]["content"], "whole");
    assert_eq!(ended.bill(), world.bill());
    assert_eq!(ended.warnings(), ["USAGE_INCOMPLETE"]);
}

async fn subagents_are_not_spawned_without_end(which: TestEngine) {
    let world = World::new(which).await;
    // Everybody who is asked asks another, and when that fails says so.
    world.model.answer(|request| {
        let heard = request.tool_results();
        Some(match heard.first() {
            Some(result) => Reply::text(&format!("{}.", result.text)),
            None => Reply::call("Task", spawn("go on")),
        })
    });
    let ended = world.run(world.order("go")).await;
    assert!(ended.result().contains("3 deep"), "{}", ended.result());
    assert_eq!(ended.of("subagent_start").len(), 3);
    let offered = |r: &shikiri_testkit::ModelRequest| r.tools().contains(&"Task");
    assert_eq!(world.model.messages().iter().filter(|r| !offered(r)).count(), 2);
    ended.assert_exact(&world);
}
