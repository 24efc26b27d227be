//! A plan on a terminal: every change of a task on its line, what needs others further in, and a
//! bar for each call.

use serde_json::json;
use shikiri_testkit::Cli;

use super::super::stranger::Stranger;
use super::{SIZE, lines, tool};
use crate::PROGRAM;
use crate::tmux::Pane;

const PLAN: &str = r#"
    [[task]]
    id = "north"
    tool = "search"
    [[task]]
    id = "south"
    tool = "search"
    [[task]]
    id = "both"
    tool = "sum"
    args = { a = "${north}", b = "${south}" }
    [synthesis]
    template = "全部で ${both}"
"#;

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_is_watched_as_a_tree_and_its_questions_are_asked() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = Stranger::start(json!([tool("search"), tool("sum")])).await;
    let servers = json!({ "mcpServers": { "it": { "url": server.url } } });
    std::fs::write(folder.path().join(".mcp.json"), servers.to_string()).unwrap();
    std::fs::write(folder.path().join("plan.toml"), PLAN).unwrap();
    let command = Cli::new(PROGRAM, folder.path()).env("SHIKIRI_TRUST", "1").command(&[
        "host",
        "run",
        "plan.toml",
    ]);
    let Some(pane) = Pane::start(&command, SIZE).await else { return };
    let (first, second) = (server.called().await, server.called().await);
    pane.sees("▸ north: running at it").await;
    pane.sees("▸ south: running at it").await;
    first.progress(1.0, Some(3.0), "half").await;
    second.progress(2.0, Some(7.0), "nearly").await;
    let screen =
        pane.until("two bars", |screen| screen.contains("1/3") && screen.contains("2/7")).await;
    assert_eq!(lines(&screen, "░").len(), 2, "{screen}");
    let (answer, ()) =
        tokio::join!(first.elicit("Sure?", json!({ "confirm": { "type": "boolean" } })), async {
            pane.sees("Yes or no? (y/n)").await;
            pane.line("y");
        });
    assert_eq!(answer["content"], json!({ "confirm": true }));
    first.end("1").await;
    second.end("1").await;
    let third = server.called().await;
    assert_eq!(third.arguments, json!({ "a": "1", "b": "1" }));
    pane.sees("  ▸ both: running at it").await;
    third.end("3").await;
    assert_eq!(pane.ended().await, 0);
    let screen = pane.sees("全部で 3").await;
    for done in ["✓ north: done at it", "✓ south: done at it", "  ✓ both: done at it"] {
        assert_eq!(lines(&screen, done).len(), 1, "{screen}");
    }
    assert!(lines(&screen, "░").is_empty(), "{screen}");
}
