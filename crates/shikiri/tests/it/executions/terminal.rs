//! Executions from the terminal: `run`, `attach`, `cancel`, `executions`, `usage`.

use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};
use shikiri_testkit::{Cli, Ended, Follower, TestApp, until};
use tempfile::TempDir;

use crate::PROGRAM;

const PATIENCE: Duration = Duration::from_secs(30);
const SCRIPT: &str = "旅\n#offline events=4 chars=6 tools=1 subagents=2 thinking=1 tokens_in=7";

fn fresh() -> (TempDir, Cli) {
    let folder = TempDir::new().unwrap();
    let cli = Cli::new(PROGRAM, folder.path()).env("SHIKIRI_LOCK_WAIT_SECONDS", "0.3");
    (folder, cli)
}

/// The objects of a `stream-json` output.
fn objects(ended: &Ended) -> Vec<Value> {
    ended.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Waits for an event of a `stream-json` output.
fn find_event(follower: &mut Follower, event: &str) -> Value {
    let found = follower.find(PATIENCE, |line| {
        let object: Value = serde_json::from_str(line).ok()?;
        (object["event"] == event).then_some(object)
    });
    found.unwrap_or_else(|| panic!("no {event} in {}", follower.output()))
}

fn conversation_of(cli: &Cli, execution: &str) -> String {
    let record = cli.run(&["executions", "show", execution, "--json"]).done().json();
    record["conversation_id"].as_str().unwrap().to_owned()
}

#[test]
fn a_prompt_is_answered_on_stdout_and_all_else_is_told_beside_it() {
    let (_folder, cli) = fresh();
    let ended = cli.run(&["run", SCRIPT]).done();
    assert_eq!(ended.stdout, "This is the offline engi\n");
    let told = [
        "thinking: ",
        "→ offline_tool {\"number\":1}",
        "⇢ offline-helper (offline)",
        "  → offline_tool {\"subagent\":2}",
        "⇠ offline-helper done: 101 tokens in, 11 out",
        "title: 旅 #offline",
        // 7 + 101 + 102 in, 20 + 11 + 12 out.
        "210 tokens in, 43 out · $0 · ",
        "go on with --conversation cnv_",
    ];
    for words in told {
        assert!(ended.stderr.contains(words), "{words:?} is not in {}", ended.stderr);
    }

    let list = cli.run(&["executions", "list", "--json"]).done().json();
    let id = list["items"][0]["id"].as_str().unwrap();
    let shown = cli.run(&["executions", "show", id]).done().stdout;
    for words in ["completed", "This is the offline engi", "offline_tool", "offline-helper", "210"]
    {
        assert!(shown.contains(words), "{words:?} is not in {shown}");
    }
    let attached = cli.run(&["attach", id]).done();
    assert_eq!(attached.stdout, ended.stdout);
    assert!(attached.stderr.contains("210 tokens in, 43 out"), "{}", attached.stderr);
}

#[test]
fn a_conversation_goes_on_and_its_events_come_as_json() {
    let (_folder, cli) = fresh();
    let first = cli.run(&["run", "一", "--output", "stream-json"]).done();
    assert_eq!(first.stderr, "");
    let events = objects(&first);
    let seqs: Vec<_> = events.iter().map(|event| event["seq"].as_u64().unwrap()).collect();
    assert_eq!(seqs, (1..=events.len() as u64).collect::<Vec<_>>());
    assert_eq!(events[0]["event"], "session_start");
    assert_eq!(events.last().unwrap()["event"], "result");
    let id = events[0]["execution_id"].as_str().unwrap();
    let attached = cli.run(&["attach", id, "--json"]).done();
    assert_eq!(objects(&attached), events);

    let conversation = conversation_of(&cli, id);
    let go_on = ["run", "二", "--conversation", &conversation, "--engine", "offline"];
    let second = cli.run(&[&go_on[..], &["--output", "stream-json"]].concat()).done();
    let start = &objects(&second)[0];
    assert_eq!((&start["turn"], &start["resumed"]), (&json!(2), &json!(true)));
    assert_eq!(start["session_id"], events[0]["session_id"]);
    let of = ["executions", "list", "--conversation", &conversation, "--json"];
    let turns = cli.run(&of).done().json();
    let turns: Vec<_> = turns["items"].as_array().unwrap().iter().map(|e| &e["turn"]).collect();
    assert_eq!(turns, [2, 1]);
}

#[test]
fn what_fails_or_is_not_there_has_its_exit_code() {
    let (_folder, cli) = fresh();
    let conversations = || {
        let list = cli.run(&["conversations", "list", "--json"]).done().json();
        list["items"].as_array().unwrap().len()
    };
    let failed = cli.run(&["run", "#offline events=1 error=運が悪い"]);
    assert_eq!(failed.code, 1, "{}", failed.stderr);
    assert!(failed.stderr.contains("SDK_ERROR: 運が悪い: `shikiri executions show exe_"));
    assert!(failed.stderr.contains("10 tokens in"), "what was spent is told: {}", failed.stderr);
    // A busy machine may tell nothing before the first of these.
    let is_partial = ["0.3", "3", "20"].into_iter().any(|seconds| {
        let quick = cli.clone().env("SHIKIRI_EXECUTION_TIMEOUT_SECONDS", seconds);
        let ended = quick.run(&["run", "#offline events=2 hang=1"]);
        assert_eq!(ended.code, 1, "{}", ended.stderr);
        ended.stderr.contains("partial")
    });
    assert!(is_partial, "what there was is not told");
    let before = conversations();

    cli.run(&["run", "x", "--engine", "bedrock"]).refused(4, &["bedrock", "offline (offline)"]);
    cli.run(&["run", "x", "--engine", "steam"]).refused(2, &["steam", "claude-code"]);
    cli.run(&["run", "x", "--model", "none"]).refused(4, &["none", "models list"]);
    cli.run(&["run", "x", "--conversation", "cnv_0"]).refused(4, &["cnv_0"]);
    cli.run(&["run", ""]).refused(2, &["user_input"]);
    cli.run(&["models", "set", "offline", "--status", "inactive"]).done();
    cli.run(&["run", "x", "--model", "offline"]).refused(3, &["offline", "models set"]);
    cli.run(&["run", "x", "--server", "http://host"]).refused(2, &["http://127.0.0.1:7420"]);
    cli.run(&["run", "x", "--server", "https://127.0.0.1:1"]).refused(5, &["127.0.0.1:1"]);
    cli.run(&["run", "x", "--server", "127.0.0.1:1"]).refused(5, &["127.0.0.1:1", "serve"]);
    assert_eq!(conversations(), before, "what is refused leaves no conversation behind");
    cli.run(&["executions", "show", "exe_0"]).refused(4, &["exe_0", "executions list"]);
    cli.run(&["usage", "--by", "week"]).refused(2, &["week", "month"]);
    cli.run(&["usage", "--from", "soon"]).refused(2, &["from", "2026-11-15"]);
}

#[test]
fn ctrl_c_cancels_and_a_busy_conversation_is_refused() {
    let (_folder, cli) = fresh();
    let hang = ["run", "#offline hang=1 tokens_in=5", "--output", "stream-json"];
    let mut first = cli.start(&hang);
    let id = find_event(&mut first, "session_start")["execution_id"].as_str().unwrap().to_owned();
    let conversation = conversation_of(&cli, &id);
    let second = ["run", "#offline hang=1", "--conversation", &conversation];
    cli.run(&second).refused(3, &[&id, &conversation]);

    first.signal(Signal::INT);
    assert_eq!(first.wait(PATIENCE), 128 + 2, "{}", first.output());
    assert!(first.output().contains("CANCELLED"), "its end is told: {}", first.output());
    let record = cli.run(&["executions", "show", &id, "--json"]).done().json();
    assert_eq!(
        (&record["status"], &record["usage"]["input_tokens"]),
        (&json!("cancelled"), &json!(5))
    );
    cli.run(&["run", "次", "--conversation", &conversation]).done();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_carries_it_and_other_commands_meet_it() {
    let app = TestApp::new(PROGRAM).env("SHIKIRI_LOCK_WAIT_SECONDS", "0.3").start().await;
    let (cli, server) = (app.cli(), format!("http://127.0.0.1:{}", app.port()));
    let run = |prompt: &str, more: &[&str]| {
        cli.run(&[&["run", prompt, "--server", &server], more].concat())
    };
    let ended = run(SCRIPT, &["--engine", "offline"]).done();
    assert_eq!(ended.stdout, "This is the offline engi\n");
    assert!(ended.stderr.contains("210 tokens in, 43 out"), "{}", ended.stderr);

    let hang = ["run", "#offline hang=1", "--server", &server, "--output", "stream-json"];
    let mut first = cli.start(&hang);
    let id = find_event(&mut first, "session_start")["execution_id"].as_str().unwrap().to_owned();
    let conversation = conversation_of(&cli, &id);
    run("x", &["--conversation", &conversation]).refused(3, &["CONVERSATION_LOCKED", &id]);
    run("x", &["--conversation", "cnv_0"]).refused(4, &["CONVERSATION_NOT_FOUND"]);
    let stranger = cli.clone().env("SHIKIRI_KEY", "wrong");
    stranger.run(&["run", "x", "--server", &server]).refused(3, &["UNAUTHORIZED", "SHIKIRI_KEY"]);

    let mut attached = cli.start(&["attach", &id, "--json"]);
    find_event(&mut attached, "session_start");
    cli.run(&["cancel", &id]).done();
    assert_eq!(find_event(&mut attached, "error")["code"], "CANCELLED");
    assert_eq!((first.wait(PATIENCE), attached.wait(PATIENCE)), (1, 0), "{}", first.output());
    cli.run(&["cancel", &id]).refused(3, &["ended"]);

    let mut third = cli.start(&hang);
    find_event(&mut third, "session_start");
    third.signal(Signal::INT);
    assert_eq!(third.wait(PATIENCE), 128 + 2, "{}", third.output());
}

/// The connection is made again after the server's death, and what was told is not told again.
#[tokio::test(flavor = "multi_thread")]
async fn a_dead_server_s_execution_is_followed_to_its_end() {
    let mut app = TestApp::new(PROGRAM).env("SHIKIRI_NODE_LEASE_SECONDS", "1").start().await;
    let server = format!("http://127.0.0.1:{}", app.port());
    let prompt = "#offline events=3 hang=1 tokens_in=6";
    let run = ["run", prompt, "--server", &server, "--output", "stream-json"];
    let mut follower = app.cli().start(&run);
    let id =
        find_event(&mut follower, "session_start")["execution_id"].as_str().unwrap().to_owned();
    find_event(&mut follower, "text_delta");
    let (local, path) = (app.local(), format!("/executions/{id}/usage"));
    until("the bill so far", async || {
        let rows = local.client.get(&local.path(&path)).await.expect(200);
        !rows["items"].as_array().unwrap().is_empty()
    })
    .await;
    app.restart().await;
    assert_eq!(find_event(&mut follower, "error")["code"], "INTERRUPTED");
    assert_eq!(follower.wait(PATIENCE), 1);
    let output = follower.output();
    let seqs: Vec<_> = output
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok()?["seq"].as_u64())
        .collect();
    assert_eq!(seqs, (1..=seqs.len() as u64).collect::<Vec<_>>(), "{output}");
    let usage = app.cli().run(&["usage", "--json"]).done().json();
    assert_eq!(usage["total"]["usage"]["input_tokens"], 6);
}

/// A run would be dropped again when the command ends.
#[tokio::test(flavor = "multi_thread")]
async fn what_others_left_in_the_queue_is_not_taken_up_by_a_command() {
    let mut app = TestApp::new(PROGRAM).start().await;
    let input = json!({ "steps": 600, "step_ms": 50 });
    let run = app.local().start_run("long_running_agent", input).await;
    app.ask_to_end();
    app.ended().await;
    let show = || app.cli().run(&["runs", "show", &run, "--json"]).done().json();
    let before = show();
    assert_eq!(before["status"], "queued");
    app.cli().run(&["run", "#offline events=10 delay_ms=100"]).done();
    assert_eq!(show(), before);
}
