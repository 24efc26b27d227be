//! The offline engine through the whole service: a fresh store can be tried at once.

use serde_json::json;
use shikiri_testkit::TestApp;

use super::kit::{Talk, kinds, terminal, text_of};
use crate::PROGRAM;

#[tokio::test(flavor = "multi_thread")]
async fn a_fresh_store_answers_with_the_offline_engine() {
    let app = TestApp::new(PROGRAM).start().await;
    let talk = Talk::start(&app.local()).await;
    let events = talk.say("こんにちは").await;
    let start = &events[0].data;
    assert_eq!((&start["model"], &start["turn"]), (&json!("offline"), &json!(1)));
    let expected = "This is the offline engine: no model was asked. It heard: こんにちは";
    assert_eq!(text_of(&events), expected);
    assert_eq!(terminal(&events).data["result"], expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn it_plays_its_script_to_the_letter() {
    let app = TestApp::new(PROGRAM).start().await;
    let talk = Talk::start(&app.local()).await;
    let events = talk.say("#offline events=300 chars=11 tools=3 subagents=2 wheels=4").await;
    let count = |kind: &str| kinds(&events).iter().filter(|known| **known == kind).count();
    // A call of its own in each subagent, and the call that spawned it.
    assert_eq!((count("tool_use"), count("tool_result")), (3 + 2 * 2, 3 + 2 * 2));
    assert_eq!((count("subagent_start"), count("subagent_end")), (2, 2));
    let main = events
        .iter()
        .filter(|e| e.kind == "text_delta" && e.data.get("parent_tool_use_id").is_none());
    let lengths: Vec<_> = main.map(|e| e.data["text"].as_str().unwrap().chars().count()).collect();
    assert_eq!(lengths, vec![11; 300]);
    assert!(text_of(&events).contains("there is no \"wheels\""));
    let usage = &terminal(&events).data["usage"];
    assert_eq!((&usage["input_tokens"], &usage["output_tokens"]), (&json!(213), &json!(43)));
}
