//! Subagents: several at once, inside each other; each with its own bill.

use super::*;

each_engine! {
    subagents_work_side_by_side_and_each_is_billed_for_itself;
    a_subagent_of_a_subagent_is_billed_for_itself;
    a_subagent_that_fails_ends_badly_and_the_turn_goes_on;
}

async fn subagents_work_side_by_side_and_each_is_billed_for_itself(which: TestEngine) {
    let world = World::new(which).await;
    let names = ["tester", "scribe", "coder", "fourth"];
    let mut all = Reply::text("I ask four.");
    for (number, name) in (1..).zip(names) {
        let mut input = world.which.spawn(&format!("You are the {name}"));
        if name == "scribe" {
            input["model"] = "haiku".into();
        }
        all = all.and_call(world.which.task(), input);
        let says = format!("{name} was here");
        world.model.script(
            &format!("You are the {name}"),
            [world.echo(name).usage(tokens(number)), Reply::text(&says).usage(tokens(10 * number))],
        );
    }
    let last = Reply::text("all done").usage(tokens(7));
    world.model.script("go", [all.usage(tokens(100)), last]);
    let aliases = [("haiku".to_owned(), "claude-haiku-4-5".to_owned())].into();
    let ended = world.run(TurnRequest { aliases, ..world.order("go") }).await;

    assert_eq!(ended.result(), "all done");
    assert_eq!((ended.count("subagent_start"), ended.count("subagent_end")), (4, 4));
    ended.assert_exact(&world);
    assert_eq!(ended.rows().len(), 5, "{:#?}", ended.rows());
    // Each call of a tool is the subagent's whose name it says.
    for (call, name) in ended.of("tool_use").iter().take(4).zip(names) {
        assert!(call["tool_input"]["prompt"].as_str().unwrap().ends_with(name));
        let calls = ended.of("tool_use");
        let child = calls.iter().find(|tool| tool["tool_input"] == world.echo_input(name));
        assert_eq!(child.unwrap()["parent_tool_use_id"], call["tool_use_id"]);
    }
    let scribe = ended.rows().into_iter().find(|row| row.model == "claude-haiku-4-5");
    assert_eq!(scribe.unwrap().usage, usage(&tokens(2)) + usage(&tokens(20)));
    // A subagent sees its prompt and nothing of what was said before.
    let of_scribe = world.model.messages().into_iter().find(|r| r.says("You are the scribe"));
    let asked = of_scribe.unwrap();
    assert!(!asked.says("I ask four."));
    let heard = world.model.messages().pop().unwrap().tool_results();
    let heard: Vec<_> = heard.iter().map(|result| result.text.as_str()).collect();
    for name in names {
        // The CLI adds words of its own.
        let says = format!("{name} was here");
        assert!(heard.iter().any(|text| text.contains(&says)), "{says} in {heard:?}");
    }
    assert_eq!(heard.len(), 4);
    if world.is_native() {
        assert!(!asked.says("go") && asked.body["system"].to_string().contains("subagent"));
        assert_eq!(heard, names.map(|name| format!("{name} was here")));
    }
}

async fn a_subagent_of_a_subagent_is_billed_for_itself(which: TestEngine) {
    let world = World::new(which).await;
    let outer = world.spawn("inner one").usage(tokens(2));
    world.model.script("outer one", [outer, Reply::text("outer done").usage(tokens(3))]);
    let inner = [world.echo("inner").usage(tokens(4)), Reply::text("inner").usage(tokens(5))];
    world.model.script("inner one", inner);
    let call = world.spawn("outer one").usage(tokens(1));
    world.model.script("go", [call, Reply::text("all done")]);
    let ended = world.run(world.order("go")).await;

    assert_eq!(ended.result(), "all done");
    let starts = ended.of("subagent_start");
    assert_eq!(starts.len(), 2);
    let calls = ended.of("tool_use");
    let nested = calls.iter().find(|call| call["tool_use_id"] == starts[1]["tool_use_id"]);
    assert_eq!(nested.unwrap()["parent_tool_use_id"], starts[0]["tool_use_id"]);
    ended.assert_exact(&world);
    let inner = starts[1]["tool_use_id"].as_str();
    let of_inner = ended.rows().into_iter().find(|row| row.tool_use_id.as_deref() == inner);
    assert_eq!(of_inner.unwrap().usage, usage(&tokens(4)) + usage(&tokens(5)));
}

async fn a_subagent_that_fails_ends_badly_and_the_turn_goes_on(which: TestEngine) {
    let world = World::new(which).await;
    let bad = [world.echo("once").usage(tokens(1)), Reply::error(400, "invalid_request_error")];
    world.model.script("bad one", bad);
    world.model.script("good one", [Reply::text("good").usage(tokens(2))]);
    let mut calls = world.spawns(world.spawn("bad one"), "good one");
    if !world.is_native() {
        // Ours takes any word for a role.
        let mut unknown = world.which.spawn("absent");
        unknown["subagent_type"] = "no-such-type".into();
        calls = calls.and_call(world.which.task(), unknown);
    }
    world.model.script("go", [calls.usage(tokens(3)), Reply::text("after all")]);
    let ended = world.run(world.order("go")).await;

    assert_eq!(ended.result(), "after all");
    let mut ends = ended.of("subagent_end");
    ends.sort_by_key(|end| end["tool_use_id"].to_string());
    let is_error: Vec<_> = ends.iter().map(|end| end["is_error"] == true).collect();
    assert_eq!(is_error, [true, false], "{ends:?}");
    assert_eq!(ended.count("subagent_start"), 2, "an unknown type never starts");
    ended.assert_exact(&world);
}
