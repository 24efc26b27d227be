//! The official conformance suite against the server as it is served, with the suite's own tools,
//! resources and prompts offered by it.

mod asking;
mod beyond;
mod content;
mod fixture;
mod prompts;
mod resources;
mod suite;
mod working;

use std::sync::Arc;

use shikiri::wiring::Offer;
use shikiri_mcp::McpExtras;
use shikiri_testkit::{long, peer};
use tempfile::TempDir;

use self::content::Announcer;
use self::suite::{Findings, Suite};
use super::served::Served;

const TRIES: usize = 3;
/// Left out by the suite itself.
const LEFT_OUT: [&str; 1] = ["tasks-status-notifications"];

/// The server with what the suite expects of it.
async fn start() -> Served {
    let announcer = Announcer::default();
    let agents = asking::agents().into_iter().chain(working::agents());
    let served = Served::with(Offer {
        agents: agents.map(|agent| Arc::new(agent) as _).collect(),
        extras: McpExtras {
            tools: content::tools(&announcer),
            resources: vec![Arc::new(resources::Resources)],
            prompts: prompts::prompts(),
        },
        ..Offer::default()
    })
    .await;
    announcer.set(Arc::downgrade(served.mcp())).unwrap();
    served
}

/// What the suite finds with these arguments; None if it is not installed. It waits for some things
/// less than two seconds, so on a busy machine it may be wrong; what is our fault is found each time.
async fn run(variable: &str, arguments: &[&str], left_out: &[&str]) -> Option<Findings> {
    let (node, program) = (peer("SHIKIRI_PEER_NODE")?, peer(variable)?);
    let suite = Suite { node, program, arguments };
    let mut tries = TRIES;
    loop {
        let served = start().await;
        let folder = TempDir::new().unwrap();
        let findings = suite.run(served.client(), folder.path()).await;
        let troubles = troubles(&findings, left_out);
        tries -= 1;
        if troubles.is_empty() || tries == 0 {
            return Some(findings);
        }
        eprintln!("not conforming, and tried again:\n{}", troubles.join("\n"));
    }
}

/// What went wrong, except scenarios that the suite itself leaves out.
fn troubles(findings: &Findings, left_out: &[&str]) -> Vec<String> {
    let mut troubles = findings.troubles();
    let is_left_out = |line: &String| {
        left_out
            .iter()
            .any(|name| line.starts_with(&format!("{name}: ")) && line.contains("SKIPPED"))
    };
    troubles.retain(|line| !is_left_out(line));
    troubles
}

/// So many scenarios must have passed, and nothing in them may have failed, be warned of or be
/// left out, except scenarios that the suite itself leaves out.
fn assert_passed(findings: &Findings, scenarios: usize, left_out: &[&str]) {
    let troubles = troubles(findings, left_out);
    assert!(troubles.is_empty(), "not conforming:\n{}", troubles.join("\n"));
    let mut passed = findings.scenarios();
    passed.retain(|scenario| !findings.successes(scenario).is_empty());
    assert_eq!(passed.len(), scenarios, "passed: {passed:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_requirements_of_2025_11_25_are_met() {
    let arguments = ["--requirements", "2025-11-25"];
    if let Some(findings) = run("SHIKIRI_PEER_CONFORMANCE", &arguments, &[]).await {
        assert_passed(&findings, 33, &[]);
        assert_released_and_resumed(&findings);
    }
}

/// The tasks scenarios are part of this run, although the suite does not count them.
#[tokio::test(flavor = "multi_thread")]
async fn the_requirements_of_2026_07_28_and_of_tasks_are_met() {
    let arguments = ["--requirements", "2026-07-28"];
    if let Some(findings) = run("SHIKIRI_PEER_CONFORMANCE", &arguments, &LEFT_OUT).await {
        assert_passed(&findings, 49, &LEFT_OUT);
        let tasks = findings.scenarios().into_iter().filter(|name| name.starts_with("tasks-"));
        assert_eq!(tasks.count(), 10);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_older_suite_passes() {
    if !long() {
        return eprintln!("left out: the older suite is run with SHIKIRI_LONG=1");
    }
    if let Some(findings) = run("SHIKIRI_PEER_CONFORMANCE_OLD", &["--suite", "all"], &[]).await {
        assert_passed(&findings, 32, &[]);
        assert_released_and_resumed(&findings);
    }
}

/// Were the answer to come before the stream ends, the suite would only mention it.
fn assert_released_and_resumed(findings: &Findings) {
    let found = findings.successes("server-sse-polling");
    assert!(found.contains(&"server-sse-disconnect-resume"), "{found:?}");
}
