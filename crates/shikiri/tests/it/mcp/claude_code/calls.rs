//! Calls and their answers, questions to the user, and who is said to have called.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use shikiri_testkit::{ClaudeCli, FakeModel, Gate, Reply};

use super::{NEWER, OLDER, PATIENCE, World, call, data, noted, repeat, versions};
use crate::PROGRAM;
use crate::mcp::yes;

#[tokio::test(flavor = "multi_thread")]
async fn a_call_gets_the_runs_result_and_progress_and_tells_who_made_it() {
    for (program, protocol) in versions() {
        let world = World::start().await;
        let work = call("long_running_agent", json!({ "steps": 5, "step_ms": 20 }));
        world.model.script("work", [work, repeat()]);
        let ended = world.claude(&program).print("work").await;

        assert_eq!(data(ended.text()), json!({ "steps": 5 }));
        let messages = world.model.messages();
        let prompt = messages[0].body.to_string();
        assert!(prompt.contains("every call of one is a durable run"), "{prompt}");
        let result = &messages[1].tool_results()[0];
        assert!(!result.is_error && result.text.contains("shikiri://runs/run_"), "{result:?}");
        let steps: Vec<_> = (1..=5).map(|n| format!("step {n} done")).collect();
        assert_eq!(told_progress(&world), steps);

        let session = spoken(&world, protocol);
        let noted = noted(&world.app.data_folder()).await;
        assert_eq!(noted.len(), 1, "{noted:#?}");
        let (called, origin) = (&noted[0].call, &noted[0].origin);
        assert_eq!(called["tool_use_id"], result.tool_use_id);
        let owner = session.unwrap_or_else(|| origin["principal"].as_str().unwrap().to_owned());
        assert_eq!(called["instance"], format!("claude-code-{}", &owner[owner.len() - 8..]));
        let who = json!({ "instance": called["instance"], "tool_use_id": result.tool_use_id });
        assert_eq!(origin["who"], who);
        assert_eq!(origin["connection"], noted[0].connection);
    }
}

/// The messages of the progress that was told under the call's token. What a heartbeat repeats
/// is told once, and what it says before the run does is left out.
fn told_progress(world: &World) -> Vec<String> {
    let asked = world.recorder.asked();
    let call = asked.iter().find(|asked| asked.method() == "tools/call").expect("a call");
    let token = &call.body["params"]["_meta"]["progressToken"];
    let told = world.recorder.told();
    let progress = told.iter().filter(|told| told["method"] == "notifications/progress");
    let of_call = progress.filter(|told| told["params"]["progressToken"] == *token);
    let messages = of_call.map(|told| told["params"]["message"].as_str().unwrap().to_owned());
    let mut messages: Vec<_> = messages.filter(|message| message != "queued").collect();
    messages.dedup();
    messages
}

/// Checks that all was said in this revision; gives the session that all was said in, if there
/// are sessions.
fn spoken(world: &World, protocol: &str) -> Option<String> {
    let asked = world.recorder.asked();
    let hello = asked.iter().find(|asked| asked.method() == "initialize");
    assert_eq!(hello.is_some(), protocol == OLDER, "{asked:#?}");
    let mut sessions = BTreeSet::new();
    for asked in asked.iter().filter(|asked| asked.method() != "initialize") {
        assert_eq!(asked.header("mcp-protocol-version"), Some(protocol), "{asked:?}");
        sessions.insert(asked.header("mcp-session-id").map(str::to_owned));
    }
    assert_eq!(sessions.len(), 1, "{sessions:?}");
    let session = sessions.pop_first().flatten();
    assert_eq!(session.is_none(), protocol == NEWER);
    session
}

#[tokio::test(flavor = "multi_thread")]
async fn a_trip_is_booked_on_the_users_word_and_not_without_a_user_to_ask() {
    for (program, _) in versions() {
        let world = World::start().await;
        let book = call("travel_agent", json!({ "destination": "京都", "step_ms": 5 }));
        world.model.script("book", [book, repeat()]);
        let claude = world.claude(&program);

        let mut host = claude.host().await;
        host.say("book it").await;
        let question = host.asked("elicitation").await;
        assert_eq!(question.request["mcp_server_name"], "shikiri");
        let message = "Please confirm the estimated price of $1200 for your trip to 京都";
        assert_eq!(question.request["message"], message);
        let schema = &question.request["requested_schema"];
        assert_eq!(schema["required"], json!(["confirm"]), "{}", question.request);
        host.answer(&question, yes("窓側")).await;
        let result = host.message("result").await;
        assert_eq!(data(result["result"].as_str().unwrap()), trip(true, "窓側"));
        assert_eq!(host.end().await.code, 0);

        let ended = claude.print("book it").await;
        assert_eq!(data(ended.text()), trip(false, ""));
    }
}

fn trip(booked: bool, notes: &str) -> Value {
    json!({
        "destination": "京都",
        "status": if booked { "booked" } else { "cancelled" },
        "booked": booked,
        "price_usd": 1200,
        "notes": notes,
    })
}

/// Both have asked their model before either calls, so that the calls come at the same time and
/// over one connection.
#[tokio::test(flavor = "multi_thread")]
async fn the_calls_of_two_subagents_are_told_apart() {
    for (program, protocol) in versions() {
        let world = World::start().await;
        let agent = |who: &str| {
            json!({
                "description": who, "prompt": format!("You are {who}."),
                "subagent_type": "general-purpose", "run_in_background": false,
            })
        };
        let gate = Gate::new();
        for (who, steps) in [("ann", 3), ("bo", 4)] {
            let work = call("long_running_agent", json!({ "steps": steps, "step_ms": 20 }));
            world.model.script(&format!("You are {who}"), [work.held(&gate), repeat()]);
        }
        let both = Reply::call("Agent", agent("ann")).and_call("Agent", agent("bo"));
        world.model.script("both", [both, Reply::text("both are done")]);
        let claude = world.claude(&program);
        let opening = async {
            for who in ["You are ann", "You are bo"] {
                world.model.asked(PATIENCE, |request| request.says(who)).await;
            }
            gate.open();
        };
        let (ended, ()) = tokio::join!(claude.print("both"), opening);

        assert_eq!(ended.text(), "both are done");
        let noted = noted(&world.app.data_folder()).await;
        assert_eq!(noted.len(), 2, "{noted:#?}");
        assert_eq!(noted[0].connection, noted[1].connection);
        for (who, steps) in [("ann", 3), ("bo", 4)] {
            let prompt = format!("You are {who}.");
            let messages = world.model.messages();
            let of_agent = messages.iter().filter(|r| r.agent_id().is_some() && r.says(&prompt));
            let results: Vec<_> = of_agent.flat_map(|request| request.tool_results()).collect();
            assert_eq!(results.len(), 1, "{who}: {results:?}");
            assert_eq!(data(&results[0].text), json!({ "steps": steps }));
            let of_call =
                |noted: &&super::Noted| noted.call["tool_use_id"] == results[0].tool_use_id;
            let found: Vec<_> = noted.iter().filter(of_call).collect();
            assert_eq!(found.len(), 1, "{who}: {noted:#?}");
            let run = found[0].call["run_id"].as_str().unwrap();
            assert!(results[0].text.contains(run), "{who}: {run}, {results:?}");
        }
        spoken(&world, protocol);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn over_stdio_the_project_is_served_and_the_process_is_the_instance() {
    for (program, _) in versions() {
        let model = FakeModel::start().await;
        let work = call("long_running_agent", json!({ "steps": 3, "step_ms": 5 }));
        model.script("work", [work, repeat()]);
        let claude = ClaudeCli::new(&program, &model).mcp_stdio("shikiri", PROGRAM, &["mcp"]);
        let ended = claude.print("work").await;

        assert_eq!(data(ended.text()), json!({ "steps": 3 }));
        let noted = noted(&claude.project().join(".shikiri")).await;
        assert_eq!(noted.len(), 1, "{noted:#?}");
        let result = &model.messages()[1].tool_results()[0];
        assert_eq!(noted[0].call["tool_use_id"], result.tool_use_id);
        let instance = noted[0].call["instance"].as_str().unwrap();
        let pid = instance.strip_prefix("claude-code-").unwrap_or_else(|| panic!("{instance}"));
        assert!(pid.parse::<u32>().is_ok(), "{instance}");
    }
}
