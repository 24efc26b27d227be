//! Our host against servers that others wrote, or that are written with others' SDKs: their tools
//! are listed and called, their questions answered, and their calls taken up by another process.

mod world;

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};
use shikiri_host::CallFollowResult;
use shikiri_model::host::HostCallState;

use self::world::{Watcher, World};
use super::raw::{Raw, Says, event};

const LEGACY: &str = "2025-11-25";
const MODERN: &str = "2026-07-28";

#[tokio::test(flavor = "multi_thread")]
async fn the_reference_server_over_stdio() {
    let Some(world) = World::everything_over_stdio() else { return };
    everything(&world).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_reference_server_over_http() {
    let Some(world) = World::everything_over_http() else { return };
    everything(&world).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_python_server() {
    let Some(world) = World::python() else { return };
    counting(&world, LEGACY).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_typescript_server_in_the_newer_era() {
    let Some(world) = World::typescript(None) else { return };
    counting(&world, MODERN).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_typescript_server_in_the_older_era() {
    let Some(world) = World::typescript(Some(LEGACY)) else { return };
    counting(&world, LEGACY).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_to_a_python_server_is_taken_up() {
    let Some(world) = World::python() else { return };
    count_is_taken_up(&world).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_to_a_typescript_server_is_taken_up() {
    let Some(world) = World::typescript(Some(LEGACY)) else { return };
    count_is_taken_up(&world).await;
}

/// The reference server plays what was missed and nothing that comes after it: its stream has to be
/// opened anew to see the end.
#[tokio::test(flavor = "multi_thread")]
async fn a_call_to_the_reference_server_is_taken_up() {
    let Some(world) = World::everything_over_http() else { return };
    let (watcher, arguments) = (Watcher::new(), json!({ "duration": 3, "steps": 6 }));
    world.leave("trigger-long-running-operation", &arguments, &watcher, 2).await;
    let (state, text, told) = world.take_up(&Watcher::new(), async |_| {}).await;
    assert_eq!(state, HostCallState::Completed);
    assert_eq!(text, "Long running operation completed. Duration: 3 seconds, Steps: 6.");
    assert_eq!([watcher.progress(), told].concat(), [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
}

/// A person thinks; meanwhile the line on which they were asked ends. They are not asked again,
/// and their answer arrives.
#[tokio::test(flavor = "multi_thread")]
async fn a_question_outlives_the_stream_that_brought_it() {
    let Some(world) = World::python() else { return };
    let watcher = Watcher::meanwhile(world.host(), "hang_up");
    let host = world.host();
    let (state, text) = world.call(&host, "order", &json!({}), &watcher).await;
    assert_eq!((state, text.as_str()), (HostCallState::Completed, "2 x 味噌汁"));
    assert_eq!(watcher.kinds(), ["sent", "asked", "answered", "ended"]);
    host.close().await;
}

/// The end follows from an answer that the server has, although it has not yet taken leave of it.
#[tokio::test(flavor = "multi_thread")]
async fn an_answer_on_its_way_is_told_before_the_end() {
    let (is_answered, call) = (AtomicBool::new(false), OnceLock::new());
    let server = Raw::start(move |seen| match seen.method() {
        "tools/call" => {
            call.set(seen.clone()).unwrap();
            let ping = json!({ "jsonrpc": "2.0", "id": 7, "method": "ping" });
            Says::Events(event(1, &ping))
        }
        "get" if is_answered.load(Ordering::Relaxed) => {
            Says::Events(event(3, &call.get().unwrap().answer("好")))
        }
        "get" if call.get().is_some() => Says::Events(event(2, &call.get().unwrap().progress(1))),
        "post" => {
            is_answered.store(true, Ordering::Relaxed);
            Says::Silence
        }
        _ => Says::Usual,
    })
    .await;
    let world = World::at(&server.url);
    let (host, watcher) = (world.host(), Watcher::new());
    let (state, text) = world.call(&host, "t", &json!({}), &watcher).await;
    assert_eq!((state, text.as_str()), (HostCallState::Completed, "好"));
    let mut kinds = watcher.kinds();
    kinds.retain(|kind| *kind != "progress");
    assert_eq!(kinds, ["sent", "asked", "answered", "ended"]);
    host.close().await;
}

async fn everything(world: &World) {
    let host = world.host();
    assert_eq!(host.connect("it").await.unwrap().protocol(), LEGACY);
    let names = world.tools(&host).await;
    for name in ["echo", "trigger-elicitation-request", "trigger-sampling-request"] {
        assert!(names.iter().any(|known| known == name), "no {name} in {names:?}");
    }
    let call = async |tool: &str, arguments: Value, watcher: &Watcher| {
        let (state, text) = world.call(&host, tool, &arguments, watcher).await;
        assert_eq!(state, HostCallState::Completed, "{tool}");
        text
    };
    let watcher = Watcher::new();
    let said = call("echo", json!({ "message": "お早う" }), &watcher).await;
    assert_eq!(said, "Echo: お早う");
    let steps = json!({ "duration": 0.3, "steps": 3 });
    call("trigger-long-running-operation", steps, &watcher).await;
    assert_eq!(watcher.progress(), [1.0, 2.0, 3.0]);
    let said = call("trigger-elicitation-request", json!({}), &watcher).await;
    assert!(said.contains("- Name: 味噌汁\n- Favorite Integer: 42\n"), "{said}");
    let said = call("trigger-sampling-request", json!({ "prompt": "weather?" }), &watcher).await;
    assert!(said.contains("it rains"), "{said}");
    host.close().await;
}

/// The servers of this folder, which all offer the same.
async fn counting(world: &World, protocol: &str) {
    let host = world.host();
    assert_eq!(host.connect("it").await.unwrap().protocol(), protocol);
    let mut names = world.tools(&host).await;
    names.retain(|name| name != "hang_up");
    assert_eq!(names, ["count", "go_on", "order", "ponder"]);
    let watcher = Watcher::new();
    let arguments = json!({ "to": 3, "pauses": [] });
    let (state, text) = world.call(&host, "count", &arguments, &watcher).await;
    assert_eq!((state, text.as_str()), (HostCallState::Completed, "counted to 3"));
    assert_eq!(watcher.progress(), [1.0, 2.0, 3.0]);
    let (state, text) = world.call(&host, "order", &json!({}), &watcher).await;
    assert_eq!((state, text.as_str()), (HostCallState::Completed, "2 x 味噌汁"));
    let about = json!({ "about": "the weather" });
    let (state, text) = world.call(&host, "ponder", &about, &watcher).await;
    assert_eq!((state, text.as_str()), (HostCallState::Completed, "a model of tests: it rains"));
    host.close().await;
}

/// A host leaves in the middle of a call, something is told while no host listens, and another one
/// hears that, what comes after it, and the answer: everything once.
async fn count_is_taken_up(world: &World) {
    let watcher = Watcher::new();
    world.leave("count", &json!({ "to": 6, "pauses": [2, 3] }), &watcher, 2).await;
    let go_on = async || {
        let host = world.host();
        let (state, _) = world.call(&host, "go_on", &json!({}), &Watcher::new()).await;
        assert_eq!(state, HostCallState::Completed);
        host.close().await;
    };
    go_on().await;
    let (state, text, told) = world
        .take_up(&Watcher::new(), async |watcher| {
            watcher.has_seen_progress(3.0).await;
            go_on().await;
        })
        .await;
    assert_eq!((state, text.as_str()), (HostCallState::Completed, "counted to 6"));
    assert_eq!([watcher.progress(), told].concat(), [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
}

/// How a call ended, and what its tool said.
fn ended(called: CallFollowResult) -> (HostCallState, String) {
    let call = match called {
        CallFollowResult::Ended(call) => call.value,
        CallFollowResult::LetGo { why, .. } => panic!("let go: {why}"),
    };
    let result = Value::Object(call.result.unwrap_or_default());
    let parts = result["content"].as_array().into_iter().flatten();
    let text: Vec<_> = parts.filter_map(|part| part["text"].as_str()).collect();
    (call.state, text.join("\n"))
}
