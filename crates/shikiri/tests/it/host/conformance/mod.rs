//! The official conformance suite, which plays the server, against our client.

mod client;

use std::process::Command;
use std::time::Duration;

use shikiri_testkit::{Follower, ROLE, peer, role, script};
use tempfile::TempDir;

use self::client::Scenario;

/// Far longer than a run takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(300);
/// What the suite gives each of its scenarios, which it plays all at once.
const SCENARIO_MS: &str = "120000";
/// Ways to log in without a person, and tokens that are bound to a key. The suite plays them and
/// does not count them: they are extensions, which we do not offer.
const NOT_OFFERED: [&str; 6] = [
    "auth/client-credentials-basic",
    "auth/client-credentials-jwt",
    "auth/dpop",
    "auth/dpop-nonce",
    "auth/enterprise-managed-authorization",
    "auth/wif-jwt-bearer",
];

#[test]
fn the_requirements_of_2025_11_25_are_met() {
    assert_met("2025-11-25", 18);
}

#[test]
fn the_requirements_of_2026_07_28_are_met() {
    assert_met("2026-07-28", 32);
}

/// So many scenarios count. One more was added to the suite after both releases: it is met too.
fn assert_met(requirements: &str, counted: usize) {
    let Some(said) = run(requirements) else { return };
    let (_, summary) = said.split_once("=== SUITE SUMMARY ===").unwrap_or_else(|| {
        panic!("the suite came to no end:\n{said}");
    });
    let verdicts: Vec<_> = summary.lines().filter_map(verdict).collect();
    let ours = verdicts.iter().filter(|(name, _)| !NOT_OFFERED.contains(name));
    let troubles: Vec<_> = ours.clone().filter(|(_, is_met)| !is_met).collect();
    assert!(troubles.is_empty(), "not conforming: {troubles:?}\n{said}");
    assert_eq!(ours.count(), counted + 1, "{summary}");
}

/// A line of the summary, such as `✓ initialize: 1 passed, 0 failed`: the scenario, and whether it
/// found something to praise and nothing to blame.
fn verdict(line: &str) -> Option<(&str, bool)> {
    let (name, counts) = line.strip_prefix(['✓', '✗'])?.trim().split_once(": ")?;
    let is_met = line.starts_with('✓')
        && !counts.starts_with("0 passed")
        && counts.ends_with("passed, 0 failed");
    Some((name, is_met))
}

/// What the suite prints; None if it is not installed.
fn run(requirements: &str) -> Option<String> {
    let (node, suite) = (peer("SHIKIRI_PEER_NODE")?, peer("SHIKIRI_PEER_CONFORMANCE")?);
    let folder = TempDir::new().unwrap();
    // The suite's clients are this program again, told by its last argument where to go.
    let client = folder.path().join("client");
    let program = std::env::current_exe().unwrap();
    let text = format!(
        "#!/bin/sh\n{ROLE}=\"$1\" exec '{}' host::conformance::client_program --exact --nocapture\n",
        program.display()
    );
    script(&client, &text);
    let mut command = Command::new(node);
    command.env_clear().env("HOME", folder.path()).env("NO_COLOR", "1");
    command.current_dir(folder.path()).arg(suite).args(["client", "--timeout", SCENARIO_MS]);
    command.arg("--command").arg(&client).args(["--requirements", requirements]);
    let mut node = Follower::start(&mut command);
    node.wait(PATIENCE);
    Some(node.output())
}

/// Not a story: what the suite starts for each of its scenarios.
#[test]
fn client_program() {
    let (Some(url), Ok(name)) = (role(), std::env::var("MCP_CONFORMANCE_SCENARIO")) else { return };
    let context = std::env::var("MCP_CONFORMANCE_CONTEXT").ok();
    let context = context.map(|text| serde_json::from_str(&text).unwrap()).unwrap_or_default();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let played = runtime.block_on(client::play(&Scenario { name, url, context }));
    assert_eq!(played, Ok(()));
}

#[test]
fn only_praise_counts_as_met() {
    for (line, expected) in [
        ("✓ initialize: 1 passed, 0 failed", Some(("initialize", true))),
        ("✓ initialize: 0 passed, 0 failed", Some(("initialize", false))),
        ("✗ auth/dpop: 9 passed, 3 failed", Some(("auth/dpop", false))),
        ("✗ sse-retry: 1 passed, 0 failed, 1 warnings", Some(("sse-retry", false))),
        ("  ✗ auth/dpop (extension)", None),
        ("Total: 13 passed, 62 failed, 1 warnings", None),
    ] {
        assert_eq!(verdict(line), expected, "{line}");
    }
}
