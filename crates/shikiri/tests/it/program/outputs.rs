//! What scripts read: JSON that parses, documents that agree, keys that are shown once.

use serde_json::Value;
use shikiri_testkit::TestApp;

use super::fresh;
use crate::PROGRAM;

#[test]
fn every_read_command_prints_json_on_request() {
    let (_folder, cli) = fresh();
    let tenant = cli.run(&["tenants", "create", "a", "--name", "Aé", "--json"]).done().json();
    assert_eq!((&tenant["id"], &tenant["name"]), (&"a".into(), &"Aé".into()));
    let run = cli.run(&["runs", "start", "long_running_agent", "--json"]).done().json();
    let run = run["id"].as_str().unwrap();
    let reads: [&[&str]; 7] = [
        &["tenants", "list"],
        &["tenants", "show", "a"],
        &["keys", "list", "--tenant", "a"],
        &["runs", "list"],
        &["runs", "show", run],
        &["db", "check"],
        &["doctor"],
    ];
    for arguments in reads {
        let mut json = arguments.to_vec();
        json.push("--json");
        let ended = cli.run(&json).done();
        assert!(!ended.json().is_null(), "{arguments:?}");
        assert_eq!(ended.stderr, "", "{arguments:?}");
        let plain = cli.run(arguments).done();
        assert!(!plain.stdout.contains('\u{1b}'), "colour without a terminal: {arguments:?}");
    }
}

#[test]
fn tenants_and_keys_live_and_end_through_the_command_line() {
    let (_folder, cli) = fresh();
    cli.run(&["tenants", "create", "acme", "--max-streams", "7"]).done();
    cli.run(&["tenants", "create", "acme"]).refused(3, &["acme", "exists"]);
    let set = cli.run(&["tenants", "set", "acme", "--status", "inactive", "--json"]).done().json();
    assert_eq!((&set["status"], &set["limits"]["max_streams"]), (&"inactive".into(), &7.into()));
    let start = ["runs", "start", "long_running_agent", "--tenant", "acme"];
    cli.run(&start).refused(3, &["inactive"]);
    cli.run(&["tenants", "set", "acme", "--status", "active"]).done();

    let made = cli.run(&["keys", "create", "ci", "--tenant", "acme", "--json"]).done().json();
    let (id, secret) = (made["id"].as_str().unwrap(), made["key"].as_str().unwrap());
    let list = cli.run(&["keys", "list", "--tenant", "acme", "--json"]).done();
    assert!(list.stdout.contains(id) && !list.stdout.contains(secret), "{}", list.stdout);
    cli.run(&["keys", "revoke", id]).refused(4, &[id]);
    cli.run(&["keys", "revoke", id, "--tenant", "acme"]).done();
    cli.run(&["keys", "revoke", id, "--tenant", "acme"]).refused(4, &[id]);

    cli.run(&["tenants", "delete", "acme", "--yes"]).done();
    cli.run(&["tenants", "show", "acme"]).refused(4, &["acme"]);
    cli.run(&["keys", "list", "--tenant", "acme"]).refused(4, &["acme"]);
    cli.run(&["tenants", "delete", "local", "--yes"]).refused(3, &["local"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_made_on_the_command_line_opens_the_server_until_revoked() {
    let app = TestApp::new(PROGRAM).start().await;
    let cli = app.cli();
    cli.run(&["tenants", "create", "acme"]).done();
    let secret = cli.run(&["keys", "create", "--tenant", "acme"]).done().stdout.trim().to_owned();
    let client = app.client().with_key(&secret);
    client.get("/v1/tenants/acme").await.expect(200);
    let list = cli.run(&["keys", "list", "--tenant", "acme", "--json"]).done().json();
    cli.run(&["keys", "revoke", list["items"][0]["id"].as_str().unwrap(), "--tenant", "acme"])
        .done();
    // Another process may remember it for a moment.
    shikiri_testkit::until("the key is refused", async || {
        client.get("/v1/tenants/acme").await.status == 401
    })
    .await;
    let raw = std::fs::read(app.data_folder().join("state.db")).unwrap();
    let log = std::fs::read(app.data_folder().join("state.db-wal")).unwrap_or_default();
    for bytes in [raw, log] {
        assert!(!contains(&bytes, secret.as_bytes()), "the key itself lies in the store");
    }
    assert!(!app.log().contains(&secret), "the key itself was logged");
}

#[test]
fn a_command_that_is_not_the_server_makes_no_admin_key() {
    let (folder, cli) = fresh();
    cli.run(&["tenants", "create", "acme"]).done();
    cli.run(&["keys", "create", "--tenant", "acme"]).done();
    cli.run(&["tenants", "list"]).done();
    assert!(!folder.path().join(".shikiri/admin.key").exists());
    let rotated = cli.run(&["keys", "rotate-admin"]).done().stdout;
    assert!(rotated.contains("earlier admin keys that ended: 0\n"), "{rotated}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_admin_key_is_told_of_and_ended_by_rotation() {
    let mut app = TestApp::new(PROGRAM).start().await;
    let first = app.client();
    let tenant = app.tenant("acme").await;
    assert!(!app.log().contains("rotate-admin"), "{}", app.log());
    assert_eq!(app.terminate().await.0, 0);
    let path = app.data_folder().join("admin.key");
    std::fs::remove_file(&path).unwrap();
    app.restart().await;
    shikiri_testkit::until("the log tells of it", async || {
        app.log().contains("`shikiri keys rotate-admin`")
    })
    .await;
    let second = app.client();
    for client in [&first, &second] {
        client.get("/v1/tenants").await.expect(200);
    }

    let rotated = app.cli().run(&["keys", "rotate-admin"]).done();
    let key = app.admin_key();
    assert!(!format!("{}{}", rotated.stdout, rotated.stderr).contains(&key), "it is not shown");
    assert!(rotated.stdout.contains("earlier admin keys that ended: 2\n"), "{}", rotated.stdout);
    app.client().get("/v1/tenants").await.expect(200);
    tenant.client.get("/v1/tenants/acme").await.expect(200);
    for client in [&first, &second] {
        // The server may remember it for a moment.
        shikiri_testkit::until("the old key is refused", async || {
            client.get("/v1/tenants").await.status == 401
        })
        .await;
    }
    std::fs::write(&path, "nonsense").unwrap();
    let next = "`shikiri keys rotate-admin` makes a new one";
    app.cli().run(&["serve", "--listen", "127.0.0.1:0"]).refused(1, &[next]);
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_printed_openapi_document_is_the_served_one() {
    let app = TestApp::new(PROGRAM).start().await;
    let printed = app.cli().run(&["openapi"]).done().json();
    let served = app.client().without_key().get("/openapi.json").await.expect(200);
    assert_eq!(printed, served);
    assert!(printed["openapi"].as_str().unwrap().starts_with("3."), "{}", printed["openapi"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_doctor_looks_at_everything_and_changes_nothing() {
    let (folder, cli) = fresh();
    let findings = cli.run(&["doctor", "--json"]).done().json();
    let checks: Vec<&str> =
        findings.as_array().unwrap().iter().filter_map(|f| f["check"].as_str()).collect();
    for check in ["version", "sqlite", "data folder", "admin key", "disk space", "server"] {
        assert!(checks.contains(&check), "{check} is not in {checks:?}");
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "the doctor made something");

    let app = TestApp::new(PROGRAM).start().await;
    let listen = format!("127.0.0.1:{}", app.port());
    let findings = app.cli().env("SHIKIRI_LISTEN", listen).run(&["doctor", "--json"]).done().json();
    let verdict = |check: &str| -> Value {
        let found = findings.as_array().unwrap().iter().find(|f| f["check"] == check);
        found.unwrap_or_else(|| panic!("no {check}: {findings}"))["verdict"].clone()
    };
    for check in ["version", "sqlite", "data folder", "admin key", "server"] {
        assert_eq!(verdict(check), "ok", "{check}: {findings}");
    }
}
