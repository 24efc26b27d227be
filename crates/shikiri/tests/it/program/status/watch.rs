//! `--watch`: a change is seen without asking again.

use std::time::Duration;

use rustix::process::Signal;
use shikiri_testkit::TestApp;

use super::*;
use crate::PROGRAM;
use crate::tmux::Pane;

const PATIENCE: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread")]
async fn each_change_is_a_line_of_json_until_ctrl_c() {
    let app = TestApp::new(PROGRAM).start().await;
    let mut watch = app.cli().start(&["status", "--watch", "--json"]);
    let waiting = |count: u64| {
        move |line: &str| {
            let status: Value = serde_json::from_str(line).ok()?;
            (status["runs"]["by_state"]["waiting"] == count).then_some(())
        }
    };
    assert!(watch.find(PATIENCE, waiting(0)).is_some(), "{}", watch.output());
    waiting_run(&app).await;
    assert!(watch.find(PATIENCE, waiting(1)).is_some(), "{}", watch.output());
    watch.signal(Signal::INT);
    assert_eq!(watch.wait(PATIENCE), 0);
    // Nothing is told twice.
    let lines: Vec<Value> =
        watch.output().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let without_time = |status: &Value| {
        let mut status = status.clone();
        status["at"] = Value::Null;
        status
    };
    for pair in lines.windows(2) {
        assert_ne!(without_time(&pair[0]), without_time(&pair[1]));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pipe_gets_a_block_for_each_change() {
    let app = TestApp::new(PROGRAM).start().await;
    let mut watch = app.cli().start(&["status", "--watch"]);
    let has = |text: &'static str| move |line: &str| line.contains(text).then_some(());
    assert!(watch.find(PATIENCE, has("Nothing waits for you.")).is_some(), "{}", watch.output());
    waiting_run(&app).await;
    assert!(watch.find(PATIENCE, has("travel_agent asks")).is_some(), "{}", watch.output());
    watch.signal(Signal::INT);
    assert_eq!(watch.wait(PATIENCE), 0);
    assert!(!watch.output().contains('\u{1b}'));
}

/// It begins where there is no data yet, and sees the first.
#[tokio::test(flavor = "multi_thread")]
async fn a_terminal_is_redrawn_and_given_back() {
    let folder = tempfile::tempdir().unwrap();
    let cli = Cli::new(PROGRAM, folder.path()).env("SHIKIRI_LISTEN", "127.0.0.1:1");
    let command = cli.command(&["status", "--watch"]);
    let Some(mut pane) = Pane::start(&command, (80, 24)).await else { return };
    pane.sees("No Shikiri data here yet.").await;
    work_in_claude_code(&cli, "セッション");
    let screen = pane.sees("└ 翻訳者 a1  Edit").await;
    assert!(!screen.contains("No Shikiri data"), "the former page is still there:\n{screen}");
    pane.resize(50);
    pane.keys(&["C-c"]);
    assert_eq!(pane.ended().await, 0);
    pane.sees("翻訳者").await;
    assert!(String::from_utf8_lossy(&pane.raw()).contains("\u{1b}[?1049l"));
}
