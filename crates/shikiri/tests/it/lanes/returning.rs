//! Who an agent is: fixed early, kept over restarts where it was declared.

use std::path::Path;

use serde_json::json;
use shikiri_testkit::{Cli, StdioClient};

use super::{answer, ask, cli, exported, history, on_postgresql, on_sqlite, process, text};

/// Rows 0.5, 0.17: a declared agent that is killed and started again goes on in its chat; a team of
/// processes on one configuration has a lane each.
#[test]
fn a_declared_agent_keeps_its_chat_over_restarts() {
    on_sqlite(a_team_that_restarts);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_declared_agent_keeps_its_chat_on_postgresql() {
    on_postgresql("declared agents that restart", a_team_that_restarts).await;
}

fn a_team_that_restarts(cli: &Cli, _: &Path) {
    let team = ["lead", "researcher", "implementer", "tester"];
    let of = |agent: &str| cli.clone().env("SHIKIRI_AGENT_ID", agent);
    let mut living: Vec<_> = team.map(|agent| process(&of(agent), "claude-code")).into();
    let first: Vec<_> = living.iter_mut().map(|process| ask(process, "最初")).collect();
    for ((agent, process), asked) in team.iter().zip(&living).zip(&first) {
        assert_eq!(asked["agent"], *agent);
        assert_eq!(asked["lane"], format!("{agent}-{}", process.pid()));
    }
    for round in 0..3 {
        for (number, agent) in team.iter().enumerate() {
            // Killed and in good order, by turns.
            if round % 2 == 0 {
                living[number].kill9();
            } else {
                assert_eq!(living[number].end().0, 0);
            }
            living[number] = process(&of(agent), "claude-code");
            let again = ask(&mut living[number], "続き");
            assert_eq!(again["url"], first[number]["url"], "{agent} in round {round}");
            assert_eq!(again["lane"], format!("{agent}-{}", living[number].pid()));
        }
    }
    assert_eq!(exported(&of("lead"))["agents"].as_object().unwrap().len(), team.len());
    let asked = history(&of("lead"), &["--agent", "tester"]);
    assert_eq!(asked.len(), 4);
    assert!(asked.iter().all(|line| line["url"] == first[3]["url"]));
}

/// Two that live at once under one declared name stay apart.
#[test]
fn two_living_processes_with_one_declared_name_stay_apart() {
    on_sqlite(twins);
}

#[tokio::test(flavor = "multi_thread")]
async fn two_living_processes_with_one_declared_name_stay_apart_on_postgresql() {
    on_postgresql("two with one declared name", twins).await;
}

fn twins(cli: &Cli, _: &Path) {
    let cli = cli.clone().env("CAI_AGENT_ID", "twin");
    let (mut a, mut b) = (process(&cli, "x"), process(&cli, "x"));
    let (first_a, first_b) = (ask(&mut a, "A"), ask(&mut b, "B"));
    assert_ne!(first_a["url"], first_b["url"]);
    assert_eq!(
        (ask(&mut a, "A2")["url"].clone(), ask(&mut b, "B2")["url"].clone()),
        (first_a["url"].clone(), first_b["url"].clone())
    );
    // The one that was used last is taken up first.
    a.kill9();
    b.kill9();
    let mut c = process(&cli, "x");
    assert_eq!(ask(&mut c, "C")["url"], first_b["url"]);
    let mut d = process(&cli, "x");
    assert_eq!(ask(&mut d, "D")["url"], first_a["url"]);
}

/// An undeclared process is new each time.
#[test]
fn an_undeclared_process_starts_anew() {
    let folder = tempfile::tempdir().unwrap();
    let cli = cli(folder.path());
    let mut a = process(&cli, "claude-code");
    let first = ask(&mut a, "A");
    a.kill9();
    let mut b = process(&cli, "claude-code");
    assert_ne!(ask(&mut b, "B")["url"], first["url"]);
}

/// Rows 0.6, 0.7, 0.9: who it is stands before the first call and stays, whatever a client calls
/// itself later.
#[test]
fn who_it_is_stands_before_the_first_call_and_stays() {
    let folder = tempfile::tempdir().unwrap();
    let cli = cli(folder.path());
    let mut client = process(&cli, "first-name");
    let info = answer(&client.result("tools/call", json!({ "name": "lane_info" })));
    let name = format!("first-name-{}", client.pid());
    assert_eq!((text(&info, "lane"), &info["is_open"]), (name.as_str(), &json!(false)));
    let first = ask(&mut client, "?");
    client.initialize(json!({}), "another-name");
    let again = ask(&mut client, "?");
    for asked in [&first, &again] {
        assert_eq!(text(asked, "lane"), name);
    }
    assert_eq!(first["url"], again["url"]);
    let info = answer(&client.result("tools/call", json!({ "name": "lane_info" })));
    assert_eq!(info["threads"]["chatgpt"]["url"], first["url"]);

    // Nothing is declared: the process and its start make it.
    let mut nameless = StdioClient::start(&mut cli.command(&["mcp"]));
    let mut params = json!({ "name": "lane_info" });
    params["_meta"]["io.modelcontextprotocol/protocolVersion"] = json!("2026-07-28");
    params["_meta"]["io.modelcontextprotocol/clientCapabilities"] = json!({});
    let info = answer(&nameless.result("tools/call", params));
    let (start, ms) = text(&info, "lane").rsplit_once('-').unwrap();
    assert_eq!(start, format!("agent-{}", nameless.pid()));
    assert!(ms.parse::<u64>().unwrap() > 1_700_000_000_000);
}
