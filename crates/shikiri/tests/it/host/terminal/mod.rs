//! The host as a person at a terminal has it: typed at and looked at in a real tmux.

mod plans;
mod prompt;
mod questions;

use std::process::Command;

use serde_json::{Value, json};
use shikiri_testkit::Cli;
use tempfile::TempDir;

use super::stranger::Stranger;
use crate::PROGRAM;
use crate::tmux::Pane;

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
        call.elicit("Sure?", json!({ "confirm": { "type": "boolean" } })).await;
        // The call stays open: the end of its stream would be news to the host as well.
        std::future::pending::<()>().await;
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
            .until(&told, |screen| lines(screen, "░").iter().any(|line| line.contains(&told)))
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
                "argument": { "type": "string", "description": bad("about"), "default": "plain" },
                "kind": { "type": "string", "enum": ["first", "second"] },
            } },
        },
        { "name": "argued", "inputSchema": { "type": "object", "properties": {
            (bad("argument")): { "type": "string" },
        } } },
        { "name": "chosen", "inputSchema": { "type": "object", "properties": {
            "kind": { "type": "string", "enum": [bad("first"), "second"] },
        } } },
    ]);
    let mut server = Stranger::start(tools).await;
    let Some(pane) = Pane::start(&host(&folder, &server.url, &[]), SIZE).await else { return };
    pane.sees("shikiri>").await;
    // What has to be sent back as it is cannot be cleaned.
    for name in ["named", "argued", "chosen"] {
        pane.sees(&format!("the tool \"{name}\" is left out")).await;
    }
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

    // Without a person, questions are declined and nothing waits.
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
