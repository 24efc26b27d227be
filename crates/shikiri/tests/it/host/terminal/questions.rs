//! What servers ask: forms, a yes or no, pages, and models.

use serde_json::{Value, json};
use shikiri_testkit::{Cli, FakeModel, Reply, TestApp};

use super::super::stranger::{Call, Stranger};
use super::{SIZE, host, lines, tool};
use crate::PROGRAM;
use crate::tmux::Pane;

#[tokio::test(flavor = "multi_thread")]
async fn a_form_is_filled_in_field_by_field() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = Stranger::start(json!([tool("book")])).await;
    let command = host(&folder, &server.url, &["call", "book"]);
    let Some(pane) = Pane::start(&command, SIZE).await else { return };
    let call = server.called().await;
    // Without a known end there is a counter instead of a bar.
    call.progress(3.0, None, "searching").await;
    pane.until("a counter", |screen| {
        lines(screen, "searching").iter().any(|line| line.contains(" 3 ") && !line.contains('░'))
    })
    .await;
    let fields = json!({
        "city": { "type": "string", "title": "行き先", "default": "Paris" },
        "class": { "type": "string", "enum": ["eco", "biz"], "enumNames": ["Economy", "Business"] },
        "meals": { "type": "array", "items": { "type": "string", "enum": ["a", "b", "c"] } },
        "nights": { "type": "integer", "minimum": 1, "description": "How long" },
        "window": { "type": "boolean" },
    });
    let asking = call.elicit("Where to?", fields);
    let typing = async {
        pane.sees("asks: Where to?").await;
        pane.sees("行き先 (text) [Paris]:").await;
        pane.line("");
        pane.sees("2. Business (biz)").await;
        pane.sees("class (one of them, may be empty):").await;
        pane.line("3");
        pane.sees("\"3\" is none of the options").await;
        pane.line("2");
        pane.sees("meals (some, with commas, may be empty):").await;
        pane.line("1,c");
        pane.sees("nights (whole number, may be empty):").await;
        pane.line("0");
        pane.sees("at least 1").await;
        pane.line("２");
        pane.sees("a whole number is wanted").await;
        pane.line("2");
        pane.sees("window (y/n, may be empty):").await;
        pane.line("y");
    };
    let (answer, ()) = tokio::join!(asking, typing);
    let content = json!({
        "city": "Paris", "class": "biz", "meals": ["a", "c"], "nights": 2, "window": true,
    });
    assert_eq!(answer, json!({ "action": "accept", "content": content }));
    // Afterwards the counter is there again.
    call.progress(4.0, None, "booking").await;
    pane.sees("booking").await;
    for (typed, action) in [("!decline", "decline"), ("!cancel", "cancel")] {
        let (answer, ()) =
            tokio::join!(call.elicit(typed, json!({ "x": { "type": "string" } })), async {
                pane.sees(&format!("asks: {typed}")).await;
                pane.until("the field", |screen| {
                    screen.trim_end().ends_with("x (text, may be empty):")
                })
                .await;
                pane.line(typed);
            });
        assert_eq!(answer["action"], action);
    }
    call.end("done").await;
    assert_eq!(pane.ended().await, 0);
}

/// Row 4.15: y or yes agrees, anything else declines, with the notes of the samples.
#[tokio::test(flavor = "multi_thread")]
async fn a_confirmation_is_one_question() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = Stranger::start(json!([tool("book")])).await;
    let command = host(&folder, &server.url, &["call", "book"]);
    let Some(pane) = Pane::start(&command, SIZE).await else { return };
    let call = server.called().await;
    let yes = json!({ "action": "accept",
        "content": { "confirm": true, "notes": "Confirmed by user" } });
    let no = json!({ "action": "decline",
        "content": { "confirm": false, "notes": "Declined by user" } });
    let typed =
        [("y", &yes), ("YES", &yes), ("n", &no), ("perhaps", &no), ("", &no), ("はい", &no)];
    for (number, (typed, wanted)) in typed.into_iter().enumerate() {
        let fields = json!({ "confirm": { "type": "boolean" }, "notes": { "type": "string" } });
        let question = format!("Question {number}?");
        let (answer, ()) = tokio::join!(call.elicit(&question, fields), async {
            pane.sees(&question).await;
            pane.until("the question", |screen| screen.trim_end().ends_with("(y/n)")).await;
            pane.line(typed);
        });
        assert_eq!(answer, *wanted, "{typed:?}");
    }
    call.end("done").await;
    assert_eq!(pane.ended().await, 0);
}

/// The same at a server of ours, whose agent takes only a clear yes.
#[tokio::test(flavor = "multi_thread")]
async fn only_a_yes_books_the_trip() {
    let app = TestApp::new(PROGRAM).start().await;
    let url = format!("http://127.0.0.1:{}/mcp", app.port());
    let words = ["host", "--url", &url, "call", "travel_agent", "--arg", "step_ms=1"];
    for (typed, told) in [("yes", "Confirmed by user"), ("perhaps", "Declined by user")] {
        let Some(pane) = Pane::start(&app.cli().command(&words), SIZE).await else { return };
        pane.sees("Please confirm the estimated price of $1200 for your trip to").await;
        pane.sees("Yes or no? (y/n)").await;
        pane.line(typed);
        pane.ended().await;
        pane.until(told, |screen| screen.to_lowercase().contains(&told.to_lowercase())).await;
    }
}

/// A page is shown and not opened; Ctrl-D leaves the question.
#[tokio::test(flavor = "multi_thread")]
async fn a_page_is_visited_only_by_the_person() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = Stranger::start(json!([tool("pay")])).await;
    let command = host(&folder, &server.url, &["call", "pay"]);
    let Some(pane) = Pane::start(&command, SIZE).await else { return };
    let call = server.called().await;
    for (key, action) in [("y", "accept"), ("n", "decline"), ("C-d", "cancel")] {
        let url = format!("https://pay.example/{action}");
        let params =
            json!({ "mode": "url", "message": "Pay here", "url": url, "elicitationId": key });
        let (answer, ()) = tokio::join!(call.ask("elicitation/create", params), async {
            pane.sees(&url).await;
            pane.until("the question", |screen| screen.trim_end().ends_with("(y/n)")).await;
            if key == "C-d" { pane.keys(&[key]) } else { pane.line(key) }
        });
        assert_eq!(answer["result"]["action"], action);
    }
    call.end("paid").await;
    assert_eq!(pane.ended().await, 0);
}

/// What a server asks a model, and what came back.
async fn sampled(call: &Call) -> Value {
    let params = json!({
        "maxTokens": 100,
        "messages": [{ "role": "user", "content": { "type": "text", "text": "Please summarize the key findings for research on: tea" } }],
    });
    call.ask("sampling/createMessage", params).await
}

/// Row 4.16: without a model the answer is labelled; with one, the person is asked once.
#[tokio::test(flavor = "multi_thread")]
async fn models_are_asked_only_with_the_person_s_leave() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = Stranger::start(json!([tool("study")])).await;
    let Some(pane) = Pane::start(&host(&folder, &server.url, &["call", "study"]), SIZE).await
    else {
        return;
    };
    let call = server.called().await;
    let offline = sampled(&call).await["result"].clone();
    assert_eq!(
        (&offline["role"], &offline["model"]),
        (&json!("assistant"), &json!("interactive-client"))
    );
    assert_eq!(offline["stopReason"], "endTurn");
    call.end("done").await;
    assert_eq!(pane.ended().await, 0);

    let model = FakeModel::start().await;
    model.script("research on: tea", [Reply::text("Tea is warm."), Reply::text("Tea is warm.")]);
    let cli = Cli::new(PROGRAM, folder.path())
        .env("ANTHROPIC_BASE_URL", model.url())
        .env("ANTHROPIC_API_KEY", "key");
    cli.run(&["models", "create", "fake", "--engine", "anthropic", "--model-name", "fake-model"])
        .done();
    cli.run(&["tenants", "set", "local", "--model", "fake"]).done();
    let command = cli.command(&["host", "--url", &server.url, "call", "study"]);
    let Some(pane) = Pane::start(&command, SIZE).await else { return };
    let call = server.called().await;
    let (asked, ()) = tokio::join!(sampled(&call), async {
        pane.sees("| Please summarize the key findings for research on: tea").await;
        pane.sees("May it ask, for all of this call? (y/n)").await;
        pane.line("y");
    });
    assert_eq!(asked["result"]["content"]["text"], "Tea is warm.", "{asked}");
    assert_eq!(sampled(&call).await["result"]["role"], "assistant", "asked only once");
    call.end("done").await;
    assert_eq!(pane.ended().await, 0);

    let Some(pane) = Pane::start(&command, SIZE).await else { return };
    let call = server.called().await;
    let (refused, ()) = tokio::join!(sampled(&call), async {
        pane.sees("May it ask").await;
        pane.line("n");
    });
    assert!(refused["error"]["message"].as_str().unwrap().contains("declined"), "{refused}");
    call.end("done").await;
    assert_eq!(pane.ended().await, 0);
}
