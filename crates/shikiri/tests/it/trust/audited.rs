//! What a person says about trust is in the audit log of the person's own store.

use serde_json::{Value, json};

use super::ClonedRepository;
use crate::tmux::Pane;

const SIZE: (u16, u16) = (140, 40);
const SERVERS: &str = r#"{"mcpServers": {"a": {"command": "secret-program"}}}"#;

fn entries(repository: &ClonedRepository) -> Vec<(Value, Value, Value)> {
    let log = repository.cli().run(&["audit", "--json"]).done();
    assert!(!log.stdout.contains("secret-program"), "{}", log.stdout);
    let items = log.json()["items"].as_array().unwrap().clone();
    let of_trust = items.into_iter().filter(|item| item["kind"] == "trust");
    of_trust
        .map(|item| {
            assert_eq!((&item["who"]["type"], &item["tenant"]), (&json!("cli"), &Value::Null));
            (item["action"].clone(), item["id"].clone(), item["fields"].clone())
        })
        .collect()
}

#[test]
fn trust_and_its_revocation_are_audited() {
    let repository = ClonedRepository::with(&[(".mcp.json", SERVERS)]);
    let entry = |action: &str| (json!(action), json!(repository.root()), json!([".mcp.json"]));
    repository.cli().run(&["trust"]).done();
    assert_eq!(entries(&repository), [entry("create")]);
    // The same again is no change.
    repository.cli().run(&["trust"]).done();
    repository.write(".mcp.json", &SERVERS.replace("secret-program", "other"));
    repository.cli().run(&["trust"]).done();
    assert_eq!(entries(&repository), [entry("create"), entry("change")]);
    repository.cli().run(&["trust", "--revoke"]).done();
    assert_eq!(entries(&repository), [entry("create"), entry("change"), entry("remove")]);
}

#[test]
fn trust_can_be_revoked_while_the_store_is_unreachable() {
    let repository = ClonedRepository::with(&[(".mcp.json", SERVERS)]);
    repository.cli().run(&["trust"]).done();
    let away = repository.cli().env("SHIKIRI_STORE", "postgres://127.0.0.1:1/none");
    let revoked = away.run(&["trust", "--revoke"]).done();
    assert!(revoked.stderr.contains("not in the audit log"), "{}", revoked.stderr);
    repository.cli().run(&["trust", "--revoke"]).refused(4, &["agreed to nothing"]);
}

#[test]
fn revoked_trust_is_audited_where_the_person_says_and_not_where_the_project_says() {
    let repository =
        ClonedRepository::with(&[("shikiri.toml", "store = 'sqlite:../strangers.db'\n")]);
    let strangers = repository.root().join("../strangers.db");
    repository.cli().run(&["trust"]).done();
    assert!(strangers.exists(), "the person agreed to this store");
    std::fs::remove_file(&strangers).unwrap();
    repository.cli().run(&["trust", "--revoke"]).done();
    assert!(!strangers.exists(), "a store was opened that is no longer agreed to");
    let own = repository.cli().env("SHIKIRI_STORE", "sqlite:.shikiri/state.db");
    let log = own.run(&["audit", "--json"]).done().json();
    assert_eq!(log["items"].as_array().unwrap().last().unwrap()["action"], "remove", "{log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn trust_that_is_given_at_the_terminal_is_audited() {
    let repository = ClonedRepository::with(&[(".mcp.json", SERVERS)]);
    let command = repository.cli().command(&["host", "list"]);
    let Some(pane) = Pane::start(&command, SIZE).await else { return };
    pane.sees("[y/N]").await;
    pane.line("y");
    pane.ended().await;
    let told = entries(&repository);
    assert_eq!(told, [(json!("create"), json!(repository.root()), json!([".mcp.json"]))]);
}
