//! Subagents: several at once, in the background, inside each other; each with its own bill.

use serde_json::json;
use shikiri_testkit::{ModelRequest, Reply, Usage, claude_programs};

use super::*;

fn tokens(number: u64) -> Usage {
    Usage {
        input_tokens: 1_000 + number,
        output_tokens: 10 + number,
        cache_read_input_tokens: 2 * number,
        cache_creation_input_tokens: 3 * number,
        cache_creation_1h_input_tokens: number,
    }
}

/// The input of a call that spawns one, who is told `prompt`.
fn spawn(prompt: &str, background: Option<bool>) -> Value {
    let mut input = json!({
        "description": "d", "prompt": prompt, "subagent_type": "general-purpose",
    });
    if let Some(background) = background {
        input["run_in_background"] = background.into();
    }
    input
}

fn bash(command: &str) -> Reply {
    Reply::call("Bash", json!({ "command": command }))
}

/// The type of each line's events, without the pieces of text.
fn count(ended: &Outcome, kind: &str) -> usize {
    ended.of(kind).len()
}

#[tokio::test]
async fn subagents_work_side_by_side_and_each_is_billed_for_itself() {
    for cli in claude_programs() {
        let world = World::new(&cli).await;
        let names = ["tester", "scribe", "coder", "fourth"];
        let mut all = Reply::text("I ask four.");
        for (number, name) in (1..).zip(names) {
            let mut input = spawn(&format!("You are the {name}"), Some(false));
            if name == "scribe" {
                input["model"] = "haiku".into();
            }
            all = all.and_call("Agent", input);
            let says = format!("{name} was here");
            world.model.script(
                &format!("You are the {name}"),
                [
                    bash(&format!("echo {name}")).usage(tokens(number)),
                    Reply::text(&says).usage(tokens(10 * number)),
                ],
            );
        }
        world
            .model
            .script("go", [all.usage(tokens(100)), Reply::text("all done").usage(tokens(7))]);
        let order = world.order("go");
        let aliases = [("haiku".to_owned(), "claude-haiku-4-5".to_owned())].into();
        let ended = world.run(Order { aliases, ..order }).await;

        assert_eq!(ended.result(), "all done");
        assert_eq!((count(&ended, "subagent_start"), count(&ended, "subagent_end")), (4, 4));
        ended.assert_exact(&world);
        assert_eq!(ended.rows().len(), 5, "{:#?}", ended.rows());
        // Each command is the subagent's whose name it says.
        for (call, name) in ended.of("tool_use").iter().take(4).zip(names) {
            assert!(call["tool_input"]["prompt"].as_str().unwrap().ends_with(name));
            let child = ended
                .of("tool_use")
                .into_iter()
                .find(|tool| tool["tool_input"]["command"] == format!("echo {name}"));
            assert_eq!(child.unwrap()["parent_tool_use_id"], call["tool_use_id"]);
        }
        let scribe = ended.rows().into_iter().find(|row| row.model == "claude-haiku-4-5");
        assert_eq!(scribe.unwrap().usage, usage(&tokens(2)) + usage(&tokens(20)));
    }
}

#[tokio::test]
async fn a_turn_lasts_until_the_model_has_heard_of_all_that_ran_in_the_background() {
    for cli in claude_programs() {
        let world = World::new(&cli).await;
        let spawns = Reply::call("Agent", spawn("slow one", Some(true)))
            .and_call("Agent", spawn("quick one", Some(true)))
            .and_call(
                "Bash",
                json!({ "command": "sleep 1; sleep 600", "run_in_background": true }),
            );
        world.model.script("quick one", [Reply::text("quick").usage(tokens(1))]);
        let slow = bash("sleep 1; sleep 1; echo slow").usage(tokens(2));
        world.model.script("slow one", [slow, Reply::text("slow").usage(tokens(3))]);
        // What the model says when it hears of an end: it hears of one or of both at a time.
        let heard = |request: &ModelRequest| {
            let text = request.body["messages"].to_string();
            let ends = text.matches("<task-notification>").count();
            Reply::text(&format!("heard of {ends}")).usage(tokens(5))
        };
        let later = (0..4).map(|_| Reply::with(heard));
        let first = [spawns.usage(tokens(4)), Reply::text("they work")];
        world.model.script("go", first.into_iter().chain(later));
        let ended = world.run(world.order("go")).await;

        assert_eq!(ended.result(), "heard of 2");
        assert!(ended.processor.text().starts_with("they work"), "{}", ended.processor.text());
        assert_eq!((count(&ended, "subagent_start"), count(&ended, "subagent_end")), (2, 2));
        assert!(ended.of("subagent_end").iter().all(|end| end["is_error"] == false));
        ended.assert_exact(&world);
        assert_eq!(world.processes(), Vec::<String>::new(), "not even the command");
    }
}

#[tokio::test]
async fn a_subagent_of_a_subagent_is_billed_for_itself() {
    for cli in claude_programs() {
        let world = World::new(&cli).await;
        let outer = Reply::call("Agent", spawn("inner one", Some(false))).usage(tokens(2));
        world.model.script("outer one", [outer, Reply::text("outer done").usage(tokens(3))]);
        let inner = [bash("echo inner").usage(tokens(4)), Reply::text("inner").usage(tokens(5))];
        world.model.script("inner one", inner);
        let call = Reply::call("Agent", spawn("outer one", Some(false))).usage(tokens(1));
        world.model.script("go", [call, Reply::text("all done")]);
        let ended = world.run(world.order("go")).await;

        assert_eq!(ended.result(), "all done");
        let starts = ended.of("subagent_start");
        assert_eq!(starts.len(), 2);
        let calls = ended.of("tool_use");
        let nested = calls.iter().find(|call| call["tool_use_id"] == starts[1]["tool_use_id"]);
        assert_eq!(nested.unwrap()["parent_tool_use_id"], starts[0]["tool_use_id"]);
        ended.assert_exact(&world);
        let of_inner = ended
            .rows()
            .into_iter()
            .find(|row| row.tool_use_id.as_deref() == starts[1]["tool_use_id"].as_str());
        assert_eq!(of_inner.unwrap().usage, usage(&tokens(4)) + usage(&tokens(5)));
    }
}

#[tokio::test]
async fn a_subagent_that_fails_ends_badly_and_the_turn_goes_on() {
    for cli in claude_programs() {
        let world = World::new(&cli).await;
        let bad = [bash("echo once").usage(tokens(1)), Reply::error(400, "invalid_request_error")];
        world.model.script("bad one", bad);
        world.model.script("good one", [Reply::text("good").usage(tokens(2))]);
        let mut unknown = spawn("nobody", Some(false));
        unknown["subagent_type"] = "no-such-type".into();
        let calls = Reply::call("Agent", spawn("bad one", Some(false)))
            .and_call("Agent", spawn("good one", Some(false)))
            .and_call("Agent", unknown);
        world.model.script("go", [calls.usage(tokens(3)), Reply::text("after all")]);
        let ended = world.run(world.order("go")).await;

        assert_eq!(ended.result(), "after all");
        let mut ends: Vec<_> = ended.of("subagent_end");
        ends.sort_by_key(|end| end["tool_use_id"].to_string());
        let is_error: Vec<_> = ends.iter().map(|end| end["is_error"] == true).collect();
        assert_eq!(is_error, [true, false], "{ends:?}");
        assert_eq!(count(&ended, "subagent_start"), 2, "an unknown type never starts");
        ended.assert_exact(&world);
    }
}
