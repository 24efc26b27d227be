//! What goes in the middle of an answer: a tab, a process. The caller is told, nothing is sent again,
//! and the lane works on.

use serde_json::{Value, json};
use shikiri_testkit::{ChatSite, Message};

use super::super::{answer, call, connection, history, process, refusal, text};
use super::Home;

/// Progress that says that a part of the answer is there.
fn tells_of_an_answer(message: &Value) -> bool {
    message["method"] == "notifications/progress"
        && message["params"]["message"].as_str().is_some_and(|m| m.contains("characters so far"))
}

fn with_progress(tool: &str, question: &str) -> Value {
    let mut params = call(tool, question);
    params["_meta"]["progressToken"] = json!("p");
    params
}

/// Over HTTP.
#[tokio::test(flavor = "multi_thread")]
async fn a_tab_closed_in_mid_answer_is_told_to_the_caller_and_the_lane_works_again() {
    let Some(home) = Home::start().await else { return };
    let app = home.server().start().await;
    let mcp = connection(&app, "x").await;
    let begun = mcp.result("tools/call", call("ask_chatgpt_web", "Begin")).await;
    let begun = answer(&begun);
    let lane = text(&begun, "lane");
    let held = with_progress("ask_chatgpt_web", "Then hold on");
    let mut asking = mcp.request("tools/call", held).await;
    asking
        .until("a part of the answer", |message: &Message| tells_of_an_answer(&message.json))
        .await;
    home.close_tab(lane, "chatgpt").await;
    let result = asking.result().await;
    assert_eq!(refusal(&result), "BROWSER_FAILED");
    let told = result["structuredContent"]["error"]["message"].to_string();
    assert!(told.contains("closed") && told.contains("sent: yes"), "{told}");
    home.site.release();

    let again = mcp.result("tools/call", call("ask_chatgpt_web", "Once again")).await;
    let again = answer(&again);
    assert_eq!(again["answer"], ChatSite::answer_to("Once again"));
    assert_eq!(again["url"], begun["url"], "in the same chat");
    for question in ["Begin", "Then hold on", "Once again"] {
        assert_eq!(home.site.count(question), 1, "{question}");
    }
    let line = &tokio::task::block_in_place(|| history(&app.cli(), &[]))[1];
    let known = (&line["question"], &line["sent"], &line["url"]);
    assert_eq!(known, (&json!("Then hold on"), &json!("yes"), &begun["url"]));
}

/// Over pipes: progress comes while the page answers, and rises; then the process is killed, and
/// its successor finds the question as one whose outcome is unknown.
#[tokio::test(flavor = "multi_thread")]
async fn a_process_killed_in_mid_answer_never_has_its_question_sent_again() {
    let Some(home) = Home::start().await else { return };
    let cli = home.cli().env("SHIKIRI_AGENT_ID", "phoenix").env("SHIKIRI_NODE_LEASE_SECONDS", "4");
    tokio::task::block_in_place(|| {
        let mut client = process(&cli, "x");
        let begun = answer(&client.result("tools/call", call("ask_gemini_web", "Begin")));
        client.request("tools/call", with_progress("ask_gemini_web", "Then hold on"));
        client.until("a part of the answer", tells_of_an_answer);
        let progress = client.seen.iter().filter(|m| m["method"] == "notifications/progress");
        let far: Vec<f64> = progress.map(|m| m["params"]["progress"].as_f64().unwrap()).collect();
        assert!(far.len() >= 2 && far.is_sorted(), "{far:?}");
        client.kill9();

        let mut next = process(&cli, "x");
        let line = loop {
            let found = history(&cli, &["--limit", "1"]).remove(0);
            if found["status"] != "asking" {
                break found;
            }
            assert_eq!(next.result("ping", json!({})), json!({}));
        };
        assert_eq!(
            (&line["question"], &line["error"]["code"], &line["sent"]),
            (&json!("Then hold on"), &json!("UNKNOWN_OUTCOME"), &json!("unknown"))
        );
        home.site.release();
        let again = answer(&next.result("tools/call", call("ask_gemini_web", "Once again")));
        assert_eq!(again["answer"], ChatSite::answer_to("Once again"));
        assert_eq!(again["url"], begun["url"], "the declared agent goes on in its chat");
        assert_eq!(home.site.count("Then hold on"), 1);
        assert_eq!(next.end().0, 0);
    });
}
