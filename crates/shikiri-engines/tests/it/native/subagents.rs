//! Subagents: several at once, inside each other; each with its own bill.

use super::*;

fn spawn(prompt: &str) -> Value {
    json!({ "description": "d", "prompt": prompt, "subagent_type": "scout" })
}

#[tokio::test]
async fn subagents_work_side_by_side_and_each_is_billed_for_itself() {
    for world in worlds().await {
        let names = ["tester", "scribe", "coder", "fourth"];
        let mut all = Reply::text("I ask four.");
        for (number, name) in (1..).zip(names) {
            let mut input = spawn(&format!("You are the {name}"));
            if name == "scribe" {
                input["model"] = "haiku".into();
            }
            all = all.and_call("Task", input);
            let says = format!("{name} was here");
            world.model.script(
                &format!("You are the {name}"),
                [echo(name).usage(tokens(number)), Reply::text(&says).usage(tokens(10 * number))],
            );
        }
        let last = Reply::text("all done").usage(tokens(7));
        world.model.script("go", [all.usage(tokens(100)), last]);
        let aliases = [("haiku".to_owned(), "claude-haiku-4-5".to_owned())].into();
        let ended = world.run(Order { aliases, ..world.order("go") }).await;

        assert_eq!(ended.result(), "all done");
        let count = |kind: &str| ended.of(kind).len();
        assert_eq!((count("subagent_start"), count("subagent_end")), (4, 4));
        ended.assert_exact(&world);
        assert_eq!(ended.rows().len(), 5, "{:#?}", ended.rows());
        for (call, name) in ended.of("tool_use").iter().take(4).zip(names) {
            assert!(call["tool_input"]["prompt"].as_str().unwrap().ends_with(name));
            let child =
                ended.of("tool_use").into_iter().find(|tool| tool["tool_input"]["text"] == name);
            assert_eq!(child.unwrap()["parent_tool_use_id"], call["tool_use_id"]);
        }
        let scribe = ended.rows().into_iter().find(|row| row.model == "claude-haiku-4-5");
        assert_eq!(scribe.unwrap().usage, usage(&tokens(2)) + usage(&tokens(20)));
        // A subagent sees its prompt and nothing of what was said before.
        let of_scribe = world.model.messages().into_iter().find(|r| r.says("You are the scribe"));
        let asked = of_scribe.unwrap();
        assert!(!asked.says("go") && asked.body["system"].to_string().contains("subagent"));
        let heard = world.model.messages().pop().unwrap().tool_results();
        let heard: Vec<_> = heard.iter().map(|result| result.text.as_str()).collect();
        assert_eq!(heard, names.map(|name| format!("{name} was here")));
    }
}

#[tokio::test]
async fn a_subagent_of_a_subagent_is_billed_for_itself() {
    for world in worlds().await {
        let outer = Reply::call("Task", spawn("inner one")).usage(tokens(2));
        world.model.script("outer one", [outer, Reply::text("outer done").usage(tokens(3))]);
        let inner = [echo("inner").usage(tokens(4)), Reply::text("inner").usage(tokens(5))];
        world.model.script("inner one", inner);
        let call = Reply::call("Task", spawn("outer one")).usage(tokens(1));
        world.model.script("go", [call, Reply::text("all done")]);
        let ended = world.run(world.order("go")).await;

        assert_eq!(ended.result(), "all done");
        let starts = ended.of("subagent_start");
        assert_eq!(starts.len(), 2);
        let calls = ended.of("tool_use");
        let nested = calls.iter().find(|call| call["tool_use_id"] == starts[1]["tool_use_id"]);
        assert_eq!(nested.unwrap()["parent_tool_use_id"], starts[0]["tool_use_id"]);
        ended.assert_exact(&world);
    }
}

#[tokio::test]
async fn a_subagent_that_fails_ends_badly_and_the_turn_goes_on() {
    for world in worlds().await {
        let bad = [echo("once").usage(tokens(1)), Reply::error(400, "invalid_request_error")];
        world.model.script("bad one", bad);
        world.model.script("good one", [Reply::text("good").usage(tokens(2))]);
        let calls = Reply::call("Task", spawn("bad one")).and_call("Task", spawn("good one"));
        world.model.script("go", [calls.usage(tokens(3)), Reply::text("after all")]);
        let ended = world.run(world.order("go")).await;

        assert_eq!(ended.result(), "after all");
        let mut ends = ended.of("subagent_end");
        ends.sort_by_key(|end| end["tool_use_id"].to_string());
        let is_error: Vec<_> = ends.iter().map(|end| end["is_error"] == true).collect();
        assert_eq!(is_error, [true, false], "{ends:?}");
        ended.assert_exact(&world);
    }
}

#[tokio::test]
async fn a_subagent_whose_stream_breaks_off_is_asked_again() {
    for world in worlds().await {
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
}

#[tokio::test]
async fn nobody_is_spawned_without_end() {
    for world in worlds().await {
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
}
