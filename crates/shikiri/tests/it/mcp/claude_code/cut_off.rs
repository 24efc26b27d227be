//! Calls that are cut off: the server is killed or ends, or the user interrupts. In the older era
//! the client resumes the call. In the newer one streams cannot be resumed: a server that may
//! still speak answers with the run, and for a dead one the client gives up (after two minutes,
//! or when its own limit is over) while the run goes on.

use serde_json::{Value, json};
use shikiri_testkit::{ClaudeCli, Cut, Frame, Gate, Reply, TestApp, ToolResult, until};

use super::{NEWER, OLDER, Recorder, World, call, data, noted, repeat, versions};
use crate::PROGRAM;

const STEPS: u64 = 10;

fn work() -> Reply {
    call("long_running_agent", json!({ "steps": STEPS, "step_ms": 300 }))
}

/// How a server ends in the middle of a call.
enum End {
    Kill,
    Drain,
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_survives_the_death_of_its_server_and_so_does_the_session() {
    for (program, protocol) in versions() {
        let mut world = World::of(TestApp::new(PROGRAM).env("SHIKIRI_NODE_LEASE_SECONDS", 1)).await;
        let gate = Gate::new();
        let more = call("long_running_agent", json!({ "steps": 2, "step_ms": 1 }));
        world.model.script("work", [work(), more.held(&gate), repeat()]);
        let mut claude = world.claude(&program);
        if protocol == NEWER {
            claude = claude.env("MCP_TOOL_TIMEOUT", 8_000);
        }
        let [first, second] = restarted(&mut world, &claude, End::Kill, &gate).await;
        if protocol == OLDER {
            assert!(!first.is_error, "{first:?}");
            assert_eq!(data(&first.text), json!({ "steps": STEPS }));
        } else {
            assert!(first.is_error && first.text.contains("timed out"), "{first:?}");
        }
        assert!(!second.is_error, "{second:?}");
        assert_eq!(data(&second.text), json!({ "steps": 2 }));
        said_once(&world, protocol, &["long_running_agent", "long_running_agent"]);

        let noted = noted(&world.app.data_folder()).await;
        assert_eq!(noted.len(), 2, "{noted:#?}");
        for (noted, steps) in noted.iter().zip([STEPS, 2]) {
            let events = events(&world.app, &noted.call).await;
            assert_eq!(counted(&events), (steps, 1), "{events:#?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_ends_lets_the_call_be_resumed_or_answers_with_the_run() {
    for (program, protocol) in versions() {
        let mut world = World::start().await;
        let gate = Gate::new();
        let opened = gate.clone();
        let wait = Reply::with(move |request| {
            let run = linked(&request.tool_results()[0].text);
            call("run_wait", json!({ "run_id": run })).held(&opened)
        });
        world.model.script("work", [work(), wait, repeat()]);
        let claude = world.claude(&program);
        let [first, waited] = restarted(&mut world, &claude, End::Drain, &gate).await;
        assert!(!first.is_error && !waited.is_error, "{first:?} {waited:?}");
        let answer = data(&first.text);
        if protocol == OLDER {
            assert_eq!(answer, json!({ "steps": STEPS }));
        } else {
            // Queued: the server that ends has already put its run back for the next one.
            let goes_on = ["running", "queued"].map(Value::from).contains(&answer["status"]);
            assert!(goes_on && answer["result"].is_null(), "{answer}");
        }
        let status = data(&waited.text);
        assert_eq!(
            (&status["status"], &status["result"]["steps"]),
            (&json!("completed"), &json!(STEPS))
        );
        said_once(&world, protocol, &["long_running_agent", "run_wait"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupted_call_stops_its_run() {
    for (program, _) in versions() {
        let world = World::start().await;
        world.model.script("work", [work()]);
        let claude = world.claude(&program);
        let mut host = claude.host().await;
        host.say("work").await;
        at_work(&world.recorder).await;
        host.control(json!({ "subtype": "interrupt" })).await;
        assert_eq!(host.message("result").await["subtype"], "error_during_execution");

        let noted = noted(&world.app.data_folder()).await;
        let events = events(&world.app, &noted[0].call).await;
        let last = events.last().expect("an end");
        // In the older revision the client says so. In the newer one it closes the stream.
        assert_eq!((last.event.as_str(), &last.json()["code"]), ("error", &json!("CANCELLED")));
        assert_eq!(host.end().await.stderr, "");
    }
}

/// Has the server end during the first call and start again; opens the gate then. Gives what
/// reached the model.
async fn restarted(
    world: &mut World,
    claude: &ClaudeCli,
    end: End,
    gate: &Gate,
) -> [ToolResult; 2] {
    let World { app, recorder, model } = world;
    let ending = async {
        at_work(recorder).await;
        match end {
            End::Kill => app.kill9(),
            End::Drain => assert_eq!(app.terminate().await.0, 0),
        }
        app.restart().await;
        gate.open();
    };
    let (ended, ()) = tokio::join!(claude.print("work"), ending);
    assert_eq!(ended.code, 0, "{ended:#?}");
    let results: Vec<_> = model.messages().iter().flat_map(|asked| asked.tool_results()).collect();
    results.try_into().unwrap_or_else(|results| panic!("{results:#?}"))
}

async fn at_work(recorder: &Recorder) {
    let is_progress = |told: &Value| told["method"] == "notifications/progress";
    let told = async || recorder.told().iter().any(is_progress);
    until("the call tells progress", told).await;
}

/// One hello where there is one at all, and each call was sent once.
#[track_caller]
fn said_once(world: &World, protocol: &str, tools: &[&str]) {
    let asked = world.recorder.asked();
    let hellos = asked.iter().filter(|asked| asked.method() == "initialize").count();
    assert_eq!(hellos, usize::from(protocol == OLDER), "{asked:#?}");
    let calls = asked.iter().filter(|asked| asked.method() == "tools/call");
    let calls: Vec<_> = calls.map(|asked| asked.body["params"]["name"].clone()).collect();
    assert_eq!(calls, tools);
}

/// The run that a tool's result links to.
fn linked(text: &str) -> String {
    let after = text.split("shikiri://runs/").nth(1).unwrap_or_default();
    after.split_whitespace().next().unwrap_or_default().to_owned()
}

/// All events of the call's run, whose end is waited for.
async fn events(app: &TestApp, call: &Value) -> Vec<Frame> {
    app.local().reader(call["run_id"].as_str().unwrap(), Cut::End).rest().await
}

/// How many steps the run did, and how many results it has.
fn counted(events: &[Frame]) -> (u64, u64) {
    let count = |kind: &str| events.iter().filter(|event| event.event == kind).count() as u64;
    (count("step_completed"), count("result"))
}
