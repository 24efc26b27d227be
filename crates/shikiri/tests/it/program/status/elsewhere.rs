//! Without a server, without data, beside another project's server, after a kill.

use shikiri_testkit::{TestApp, have_postgres};

use super::super::fresh;
use super::*;
use crate::PROGRAM;

#[test]
fn a_folder_without_data_is_told_what_helps_and_stays_empty() {
    let (folder, cli) = fresh();
    let cli = cli.env("SHIKIRI_LISTEN", "127.0.0.1:1");
    let page = cli.run(&["status"]).done().stdout;
    assert!(page.contains("No Shikiri data here yet.") && page.contains("shikiri serve"), "{page}");
    let json = cli.run(&["status", "--json"]).done().json();
    let lists =
        ["nodes", "claude_sessions", "subagents", "questions", "dialogues", "lanes", "failed"];
    for list in lists {
        assert_eq!(json[list], json!([]), "{list} of {json}");
    }
    assert_eq!(json["server"]["state"], "none");
    assert_eq!(json["runs"]["by_state"], json["executions"]["by_state"]);
    assert_eq!(json["runs"]["by_state"]["waiting"], 0);
    assert_eq!(json["spend_today"]["cost_usd"].as_f64(), Some(0.0));
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "something was made");
}

#[test]
fn shikiri_alone_is_the_help_outside_and_the_status_inside_a_project() {
    let (folder, cli) = fresh();
    let help = cli.run(&[]);
    assert!(help.code == 2 && help.stderr.contains("Usage: shikiri"), "{}", help.stderr);
    std::fs::create_dir(folder.path().join(".shikiri")).unwrap();
    assert_eq!(cli.run(&[]).code, 2, "a folder without a store is no project with data");
    cli.run(&["projects", "create", "p"]).done();
    let status = cli.run(&[]).done().stdout;
    assert!(status.contains("Nothing waits for you."), "{status}");
    // From a folder below, as every command.
    std::fs::create_dir_all(folder.path().join(".git")).unwrap();
    let below = folder.path().join("a/b");
    std::fs::create_dir_all(&below).unwrap();
    let status = Cli::new(PROGRAM, &below).run(&[]).done().stdout;
    assert!(status.contains("Nothing waits for you."), "{status}");
}

#[test]
fn hooks_alone_are_enough_for_a_status() {
    let (_folder, cli) = fresh();
    let cli = cli.env("SHIKIRI_LISTEN", "127.0.0.1:1");
    let event = json!({ "session_id": "s", "hook_event_name": "Stop" });
    told(&mut cli.command(&["hook"]), &event);
    let page = cli.run(&["status"]).done().stdout;
    assert!(page.contains("session s waits for a prompt"), "{page}");
    assert!(page.contains("server  none; `shikiri serve` starts one"), "{page}");
    assert!(page.contains("None: runs, executions, dialogues, lanes, spending today."), "{page}");
}

#[tokio::test(flavor = "multi_thread")]
async fn another_projects_server_is_told_as_such() {
    let app = TestApp::new(PROGRAM).start().await;
    let (_folder, cli) = fresh();
    let cli = cli.env("SHIKIRI_LISTEN", format!("127.0.0.1:{}", app.port()));
    let page = shown(&cli);
    assert!(page.contains("another project's server"), "{page}");
    assert_eq!(status(&cli)["server"]["state"], "other_project");
    tokio::task::block_in_place(|| cli.run(&["projects", "create", "p"]).done());
    assert_eq!(status(&cli)["server"]["state"], "other_project");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_server_is_told_as_killed_until_it_is_back() {
    let mut app = TestApp::new(PROGRAM).start().await;
    let cli = app.cli().env("SHIKIRI_LISTEN", "127.0.0.1:1");
    let before = status(&cli);
    assert_eq!(before["server"]["state"], "running");
    assert_eq!(before["nodes"][0]["state"], "alive");
    app.kill9();
    let after = status(&cli);
    assert_eq!(after["server"]["state"], "killed");
    let node = &after["nodes"][0];
    assert_eq!((&node["state"], &node["id"]), (&json!("gone"), &before["nodes"][0]["id"]));
    let page = shown(&cli);
    assert!(page.contains("server  killed") && page.contains("1 killed"), "{page}");
    app.restart().await;
    // The next server sweeps what is left of it.
    shikiri_testkit::until("only the new node is left", async || {
        let status = status(&cli);
        let nodes = status["nodes"].as_array().unwrap();
        nodes.len() == 1 && nodes[0]["state"] == "alive" && nodes[0]["id"] != node["id"]
    })
    .await;
    assert_eq!(status(&cli)["server"]["state"], "running");
    assert_eq!(app.terminate().await.0, 0);
    let left = status(&cli);
    assert_eq!((&left["server"]["state"], &left["nodes"]), (&json!("none"), &json!([])));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_stopped_is_told_as_not_answering() {
    let app = TestApp::new(PROGRAM).env("SHIKIRI_NODE_LEASE_SECONDS", "60").start().await;
    app.stop_signal();
    let found = status(&app.cli())["server"].clone();
    app.cont();
    assert_eq!(found["state"], "not_answering");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_status_is_the_same_on_postgresql() {
    if !have_postgres("the status on PostgreSQL") {
        return;
    }
    let app = TestApp::new(PROGRAM).postgres().start().await;
    let run = waiting_run(&app).await;
    let _mia = open_dialogue(&app, "p").await;
    let status = status(&app.cli());
    assert_eq!(status["server"]["state"], "running");
    assert_eq!(status["nodes"][0]["process"], "server");
    assert_eq!(status["questions"][0]["run_id"], *run);
    assert_eq!(status["dialogues"].as_array().unwrap().len(), 1);
}
