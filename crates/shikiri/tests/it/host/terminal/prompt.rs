//! `shikiri host` alone: the prompt.

use serde_json::json;

use super::super::stranger::Stranger;
use super::{SIZE, host, lines, tool};
use crate::tmux::Pane;

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

/// Several calls go on at once, each with a bar; a terminal that becomes narrower keeps them apart.
#[tokio::test(flavor = "multi_thread")]
async fn each_call_in_the_background_has_its_bar() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = Stranger::start(json!([tool("first"), tool("second")])).await;
    let Some(mut pane) = Pane::start(&host(&folder, &server.url, &[]), SIZE).await else { return };
    pane.sees("shikiri>").await;
    let mut calls = Vec::new();
    for name in ["first", "second"] {
        pane.line(&format!("{name} &"));
        calls.push(server.called().await);
    }
    calls[0].progress(1.0, Some(3.0), "一番").await;
    calls[1].progress(2.0, Some(7.0), "二番").await;
    pane.until("both bars", |screen| screen.contains("1/3") && screen.contains("2/7")).await;
    pane.resize(60);
    calls[0].progress(2.0, Some(3.0), "一番").await;
    let screen =
        pane.until("two bars", |screen| screen.contains("2/3") && screen.contains("2/7")).await;
    assert_eq!(lines(&screen, "░").len(), 2, "{screen}");
    for call in calls {
        let said = format!("{} is done", call.tool);
        call.end(&said).await;
        pane.sees(&said).await;
    }
    pane.until("no bar", |screen| lines(screen, "░").is_empty()).await;
    pane.line("quit");
    assert_eq!(pane.ended().await, 0);
}
