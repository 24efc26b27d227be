//! The host as a person at a terminal has it: typed at and looked at in a real tmux.

mod stranger;
mod tmux;

use std::process::Command;

use serde_json::{Value, json};
use shikiri_testkit::{Cli, FakeModel, Reply, TestApp};
use tempfile::TempDir;

use crate::PROGRAM;
use stranger::{Call, Stranger};
use tmux::Pane;

const SIZE: (u16, u16) = (100, 30);

/// A tool by its name, without arguments, that may be called twice.
fn tool(name: &str) -> Value {
    json!({
        "name": name, "description": "works", "inputSchema": { "type": "object" },
        "annotations": { "idempotentHint": true },
    })
}

fn host(folder: &TempDir, url: &str, words: &[&str]) -> Command {
    Cli::new(PROGRAM, folder.path()).command(&[&["host", "--url", url], words].concat())
}

/// The lines of a screen that hold a text.
fn lines<'a>(screen: &'a str, text: &str) -> Vec<&'a str> {
    screen.lines().filter(|line| line.contains(text)).collect()
}

/// Row 4.14: logs and progress are shown while they happen; the bar goes when the call ends.
#[tokio::test(flavor = "multi_thread")]
async fn progress_and_logs_of_a_call_are_watched() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = Stranger::start(json!([tool("slow")])).await;
    let command = host(&folder, &server.url, &["call", "slow"]);
    let Some(pane) = Pane::start(&command, SIZE).await else { return };
    let call = server.called().await;
    call.progress(25.0, Some(100.0), "価格を確認").await;
    let screen = pane.sees("25/100").await;
    let bar = lines(&screen, "25/100").remove(0);
    assert!(bar.contains("█████░░░░░░░░░░░░░░░") && bar.contains("価格を確認"), "{bar}");
    call.log("info", json!("Processing step 1/4 (25%)")).await;
    call.log("info", json!({ "partial": { "found": 3 } })).await;
    pane.sees("[info] Processing step 1/4 (25%)").await;
    pane.sees("partial result: {\"found\":3}").await;
    call.progress(75.0, Some(100.0), "booking").await;
    let screen = pane.sees("75/100").await;
    assert!(!screen.contains("25/100"), "one bar for one call: {screen}");
    call.end("完了しました").await;
    assert_eq!(pane.ended().await, 0);
    let screen = pane.sees("完了しました").await;
    assert!(!screen.contains("75/100"), "the bar has gone: {screen}");
}

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

/// Row 4.15: y or yes agrees, anything that is no declines, with the notes of the samples.
#[tokio::test(flavor = "multi_thread")]
async fn a_confirmation_is_one_question() {
    let app = TestApp::new(PROGRAM).start().await;
    let url = format!("http://127.0.0.1:{}/mcp", app.port());
    for (typed, told) in [("yes", "Confirmed by user"), ("n", "not booked")] {
        let command = app.cli().command(&[
            "host",
            "--url",
            &url,
            "call",
            "travel_agent",
            "--arg",
            "step_ms=1",
        ]);
        let Some(pane) = Pane::start(&command, SIZE).await else { return };
        pane.sees("Please confirm the estimated price of $1200 for your trip to Paris").await;
        pane.sees("Yes or no? (y/n)").await;
        pane.line("perhaps");
        pane.sees("y or n is wanted").await;
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

#[tokio::test(flavor = "multi_thread")]
async fn ctrl_c_cancels_once_and_leaves_twice() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = Stranger::start(json!([tool("slow")])).await;
    let command = host(&folder, &server.url, &["call", "slow"]);
    let Some(pane) = Pane::start(&command, SIZE).await else { return };
    let call = server.called().await;
    call.progress(1.0, Some(2.0), "half").await;
    pane.sees("1/2").await;
    pane.keys(&["C-c"]);
    server.cancelled(1).await;
    assert_eq!(pane.ended().await, 1);
    pane.sees("slow: cancelled").await;
    drop((pane, call));

    // One that does not hear that it is cancelled is left, and taken up again.
    let mut server = Stranger::deaf(json!([tool("slow")])).await;
    let command = host(&folder, &server.url, &["call", "slow"]);
    let Some(pane) = Pane::start(&command, SIZE).await else { return };
    let call = server.called().await;
    call.progress(1.0, Some(2.0), "half").await;
    pane.sees("1/2").await;
    pane.keys(&["C-c"]);
    pane.sees("once more to leave it as it is").await;
    server.cancelled(1).await;
    pane.keys(&["C-c"]);
    assert_eq!(pane.ended().await, 130);
    pane.sees("`shikiri host resume` takes it up").await;
    drop((pane, call));

    let command = host(&folder, &server.url, &["resume"]);
    let Some(pane) = Pane::start(&command, SIZE).await else { return };
    let again = server.called().await;
    again.progress(2.0, Some(2.0), "nearly").await;
    pane.sees("2/2").await;
    again.end("at last").await;
    assert_eq!(pane.ended().await, 0);
    pane.sees("at last").await;
}

/// In a question Ctrl-C is a key; it means the same.
#[tokio::test(flavor = "multi_thread")]
async fn ctrl_c_in_a_question_cancels_the_call() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = Stranger::start(json!([tool("slow")])).await;
    let command = host(&folder, &server.url, &["call", "slow"]);
    let Some(pane) = Pane::start(&command, SIZE).await else { return };
    let call = server.called().await;
    let asking = tokio::spawn(async move {
        call.elicit("Sure?", json!({ "confirm": { "type": "boolean" } })).await
    });
    pane.sees("Yes or no? (y/n)").await;
    pane.keys(&["C-c"]);
    server.cancelled(1).await;
    assert_eq!(pane.ended().await, 1);
    asking.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_terminal_that_changes_its_size_keeps_one_bar() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = Stranger::start(json!([tool("slow")])).await;
    let command = host(&folder, &server.url, &["call", "slow"]);
    let Some(mut pane) = Pane::start(&command, SIZE).await else { return };
    let call = server.called().await;
    let message = "日本語のとても長い知らせがここにあり、狭い画面には入りません";
    call.progress(1.0, Some(4.0), message).await;
    pane.sees("1/4").await;
    for (width, done) in [(50, 2.0), (120, 3.0)] {
        pane.resize(width);
        call.progress(done, Some(4.0), message).await;
        let told = format!("{done}/4");
        let screen = pane
            .until(&told, |screen| lines(screen, "slow").iter().any(|line| line.contains(&told)))
            .await;
        assert_eq!(lines(&screen, "░").len(), 1, "{width}: {screen}");
    }
    call.end("done").await;
    assert_eq!(pane.ended().await, 0);
    let screen = pane.sees("done").await;
    assert!(!screen.contains('░'), "{screen}");
}

/// Everything a server can say, with what would steer a terminal.
const EVIL: &str = "\u{1b}]0;pwned\u{7}\u{1b}]52;c;cHduZWQ=\u{7}\u{1b}[2J\u{1b}[H\u{9b}2J\u{9d}0;pwned\u{9c}\u{1b}Ppwned\u{1b}\\\u{202e}\u{8}";

#[tokio::test(flavor = "multi_thread")]
async fn nothing_that_a_server_says_steers_the_terminal() {
    let folder = tempfile::tempdir().unwrap();
    let bad = |text: &str| format!("{EVIL}{text}{EVIL}");
    let tools = json!([
        { "name": bad("named"), "inputSchema": { "type": "object" } },
        {
            "name": "tool", "title": bad("title"), "description": bad("description"),
            "inputSchema": { "type": "object", "properties": {
                (bad("argument")): { "type": "string", "description": bad("about"), "default": bad("default") },
                "kind": { "type": "string", "enum": [bad("first"), "second"] },
            } },
        },
    ]);
    let mut server = Stranger::start(tools).await;
    let Some(pane) = Pane::start(&host(&folder, &server.url, &[]), SIZE).await else { return };
    pane.sees("shikiri>").await;
    pane.line("tools");
    pane.sees("ARGUMENTS").await;
    pane.line("details tool");
    pane.sees("one of").await;
    pane.line("tool");
    pane.sees("argument (text)").await;
    pane.line("");
    pane.sees("1. first").await;
    pane.line("2");
    let call = server.called().await;
    assert_eq!(call.arguments["kind"], "second");
    call.progress(1.0, Some(2.0), &bad("progressing")).await;
    pane.sees("progressing").await;
    call.log(&bad("notice"), json!(bad("logging"))).await;
    call.log("info", json!({ "partial": bad("partly") })).await;
    pane.sees("logging").await;
    pane.sees("partial result: partly").await;
    let field = json!({
        "type": "string", "title": bad("label"), "description": bad("hint"), "default": bad("usual"),
    });
    let message = bad("message");
    let (answer, ()) = tokio::join!(call.elicit(&message, json!({ (bad("x")): field })), async {
        pane.sees("asks: message").await;
        pane.sees("label (text) [usual]:").await;
        pane.line("");
    });
    assert_eq!(answer["action"], "accept", "{answer}");
    call.end(&bad("result")).await;
    pane.sees("result").await;
    pane.line("quit");
    assert_eq!(pane.ended().await, 0);
    assert!(!pane.title().contains("pwned"));
    let raw = String::from_utf8_lossy(&pane.raw()).into_owned();
    for steering in
        ["pwned", "\u{1b}[2J", "\u{7}", "\u{9b}", "\u{9d}", "\u{1b}P", "\u{202e}", "cHduZWQ"]
    {
        assert!(!raw.contains(steering), "{steering:?} has reached the terminal: {raw:?}");
    }
    let screen = pane.screen();
    assert!(screen.contains("shikiri> tools"), "nothing was wiped away: {screen}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_prompt_calls_tools_before_the_person_and_behind() {
    let folder = tempfile::tempdir().unwrap();
    let travel = json!({
        "name": "travel", "description": "Books a trip",
        "inputSchema": { "type": "object", "required": ["nights"], "properties": {
            "city": { "type": "string", "default": "Paris" },
            "class": { "type": "string", "enum": ["eco", "biz"] },
            "extras": { "type": "object" },
            "nights": { "type": "integer" },
        } },
    });
    let mut server = Stranger::start(json!([travel, tool("slow")])).await;
    let Some(pane) = Pane::start(&host(&folder, &server.url, &[]), SIZE).await else { return };
    pane.sees("2 tools of 1 server").await;
    pane.line("help");
    pane.sees("clean-tokens").await;
    // Completion, and Ctrl-C clears the line.
    pane.keys(&["d", "e", "t", "Tab"]);
    pane.sees("shikiri> details").await;
    pane.keys(&["t", "r", "a", "Tab"]);
    pane.sees("shikiri> details travel").await;
    pane.keys(&["Enter"]);
    pane.sees("class (string, optional)").await;
    pane.keys(&["x", "y", "z"]);
    pane.sees("> xyz").await;
    pane.keys(&["C-c"]);
    pane.until("an empty line", |screen| screen.trim_end().ends_with("shikiri>")).await;
    pane.line("nonsense");
    pane.sees("there is no command or tool \"nonsense\"").await;

    // Asked for its arguments.
    pane.line("travel");
    pane.sees("city (text) [Paris]:").await;
    pane.line("東京");
    pane.sees("class (one of them, may be empty):").await;
    pane.line("biz");
    pane.sees("extras (JSON, may be empty):").await;
    pane.line(r#"{"seat": 3}"#);
    pane.sees("nights (whole number):").await;
    pane.line("2");
    let call = server.called().await;
    let wanted = json!({ "city": "東京", "class": "biz", "extras": { "seat": 3 }, "nights": 2 });
    assert_eq!((call.tool.as_str(), &call.arguments), ("travel", &wanted));
    call.end("booked").await;
    pane.sees("travel: done").await;

    // In the background: its bar stands above the prompt, and lines come above both.
    pane.line("slow &");
    let slow = server.called().await;
    slow.progress(1.0, Some(4.0), "behind").await;
    let screen = pane.sees("1/4").await;
    let bar = screen.lines().position(|line| line.contains("1/4")).unwrap();
    assert!(screen.lines().nth(bar + 1).unwrap().starts_with("shikiri>"), "{screen}");
    slow.log("info", json!("by the way")).await;
    pane.sees("by the way").await;
    pane.line("travel nights=1 city='a b'");
    let call = server.called().await;
    assert_eq!(call.arguments, json!({ "nights": 1, "city": "a b" }));
    call.end("second").await;
    pane.sees("second").await;
    // A question of it is asked before the line goes on.
    pane.keys(&["h", "e"]);
    pane.sees("shikiri> he").await;
    let (answer, ()) =
        tokio::join!(slow.elicit("Go on?", json!({ "confirm": { "type": "boolean" } })), async {
            pane.sees("Yes or no? (y/n)").await;
            pane.line("y");
        });
    assert_eq!(answer["content"], json!({ "confirm": true }));
    pane.until("the line goes on", |screen| screen.trim_end().ends_with("shikiri> he")).await;
    pane.keys(&["C-c"]);
    slow.progress(4.0, Some(4.0), "nearly").await;
    pane.sees("4/4").await;
    slow.end("slowly done").await;
    let screen = pane.sees("slowly done").await;
    assert!(lines(&screen, "░").is_empty(), "no bar is left behind: {screen}");

    // The history is kept, and Ctrl-D ends it.
    pane.keys(&["Up"]);
    pane.sees("travel nights=1 city='a b'").await;
    pane.keys(&["C-c", "C-d"]);
    assert_eq!(pane.ended().await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_prompt_takes_up_what_was_left() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = Stranger::deaf(json!([tool("slow")])).await;
    let Some(pane) = Pane::start(&host(&folder, &server.url, &[]), SIZE).await else { return };
    pane.sees("shikiri>").await;
    pane.line("slow");
    let call = server.called().await;
    call.progress(1.0, Some(2.0), "half").await;
    pane.sees("1/2").await;
    pane.keys(&["C-c"]);
    pane.sees("once more to leave it as it is").await;
    server.cancelled(1).await;
    pane.keys(&["C-c"]);
    pane.sees("left as it is; `resume` takes it up").await;
    pane.line("tokens");
    pane.sees("PROGRESS").await;
    pane.line("resume");
    let again = server.called().await;
    again.end("at last").await;
    pane.sees("at last").await;
    pane.line("clean-tokens");
    pane.sees("0 calls forgotten").await;
    pane.line("exit");
    assert_eq!(pane.ended().await, 0);
    drop(call);
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

/// Row 4.22: what the host does not offer is said so, and the call goes on.
#[tokio::test(flavor = "multi_thread")]
async fn what_the_host_does_not_know_does_not_end_a_call() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = Stranger::start(json!([tool("odd")])).await;
    let Some(pane) = Pane::start(&host(&folder, &server.url, &["call", "odd"]), SIZE).await else {
        return;
    };
    let call = server.called().await;
    assert_eq!(call.ask("roots/list", json!({})).await["error"]["code"], -32601);
    let deep = json!({ "x": { "type": "object" } });
    assert_eq!(call.elicit("?", deep).await, Value::Null, "no form of it can be shown");
    call.log("strange", json!(null)).await;
    call.end("still here").await;
    assert_eq!(pane.ended().await, 0);
    pane.sees("still here").await;

    // Where nobody sits, questions are declined and nothing waits.
    let url = server.url.clone();
    let asking = tokio::spawn(async move {
        let call = server.called().await;
        let answer = call.elicit("Sure?", json!({ "confirm": { "type": "boolean" } })).await;
        call.end("without you").await;
        answer
    });
    let cli = Cli::new(PROGRAM, folder.path());
    let told =
        tokio::task::spawn_blocking(move || cli.run(&["host", "--url", &url, "call", "odd"]));
    let told = told.await.unwrap().done();
    assert_eq!(told.stdout, "without you\n");
    assert_eq!(asking.await.unwrap()["action"], "decline");
}
