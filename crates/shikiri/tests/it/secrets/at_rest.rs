//! What lies on the disk: files that only their owner reads, and secrets that are sealed.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use serde_json::json;
use shikiri_testkit::{Cli, TestApp};
use tempfile::TempDir;

use crate::PROGRAM;

const ENV_SECRET: &str = "canary-of-a-model-7f3b91";
const HEADER_SECRET: &str = "canary-of-a-header-c04e55";

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

/// The files of the data folder that hold one of the two secrets.
fn files_with_secrets(folder: &Path) -> Vec<String> {
    let holds = |bytes: &[u8]| {
        [ENV_SECRET, HEADER_SECRET]
            .iter()
            .any(|secret| bytes.windows(secret.len()).any(|window| window == secret.as_bytes()))
    };
    let files = fs::read_dir(folder).unwrap().flatten().filter(|entry| entry.path().is_file());
    files
        .filter(|entry| holds(&fs::read(entry.path()).unwrap()))
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect()
}

/// A model and a server with a secret each. Gives the server's path.
async fn keep_secrets(app: &TestApp, url: &str) -> String {
    let model = json!({
        "id": "guarded", "engine": "claude-code", "model_name": "m",
        "env": { "ANTHROPIC_API_KEY": ENV_SECRET },
    });
    app.client().post("/v1/models", &model).await.expect(201);
    let server = json!({
        "name": "guarded", "type": "http", "url": url, "allow_private": true,
        "headers_template": { "Authorization": format!("Bearer {HEADER_SECRET}") },
    });
    let made = app.client().post("/v1/tenants/local/mcp-servers", &server).await.expect(201);
    format!("/v1/tenants/local/mcp-servers/{}", made["id"].as_str().unwrap())
}

/// Whether the server in the path is sent its header, as it was once given.
async fn sends_its_header(app: &TestApp, path: &str, listener: &tokio::net::TcpListener) -> bool {
    use tokio::io::AsyncReadExt as _;
    let (client, check) = (app.client(), format!("{path}/check"));
    let checking = tokio::spawn(async move { client.post(&check, &json!({})).await });
    let (mut stream, _) = listener.accept().await.unwrap();
    let mut head = vec![0; 8_192];
    let count = stream.read(&mut head).await.unwrap();
    drop(stream);
    checking.await.unwrap();
    String::from_utf8_lossy(&head[..count]).contains(&format!("Bearer {HEADER_SECRET}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn backups_and_exports_are_only_for_their_owner() {
    let app = TestApp::new(PROGRAM).start().await;
    let backup = app.root().join("backup.db");
    let export = app.root().join("lanes.json");
    app.cli().run(&["db", "backup", backup.to_str().unwrap()]).done();
    app.cli().run(&["lanes", "export", export.to_str().unwrap()]).done();
    assert_eq!((mode(&backup), mode(&export)), (0o600, 0o600));
    // A file that others could read is closed before anything is written to it.
    fs::set_permissions(&export, fs::Permissions::from_mode(0o644)).unwrap();
    app.cli().run(&["lanes", "export", export.to_str().unwrap()]).done();
    assert_eq!(mode(&export), 0o600);
}

#[test]
fn a_restored_store_is_only_for_its_owner() {
    let folder = TempDir::new().unwrap();
    let cli = Cli::new(PROGRAM, folder.path());
    cli.run(&["tenants", "create", "kept"]).done();
    let backup = folder.path().join("backup.db");
    cli.run(&["db", "backup", backup.to_str().unwrap()]).done();
    fs::set_permissions(&backup, fs::Permissions::from_mode(0o644)).unwrap();
    cli.run(&["db", "restore", backup.to_str().unwrap()]).done();
    assert_eq!(mode(&folder.path().join(".shikiri/state.db")), 0o600);
}

#[tokio::test(flavor = "multi_thread")]
async fn secrets_of_models_and_servers_are_sealed_in_the_store() {
    let mut app = TestApp::new(PROGRAM).start().await;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    let path = keep_secrets(&app, &url).await;
    assert_eq!(files_with_secrets(&app.data_folder()), Vec::<String>::new());
    let backup = app.root().join("backup");
    fs::create_dir(&backup).unwrap();
    app.cli().run(&["db", "backup", backup.join("b.db").to_str().unwrap()]).done();
    assert_eq!(files_with_secrets(&backup), Vec::<String>::new());
    // Sealed is not lost: neither now, nor by another process.
    assert!(sends_its_header(&app, &path, &listener).await);
    assert_eq!(app.terminate().await.0, 0);
    assert_eq!(files_with_secrets(&app.data_folder()), Vec::<String>::new());
    app.restart().await;
    assert!(sends_its_header(&app, &path, &listener).await);
    assert_eq!(mode(&app.data_folder().join("sealing.key")), 0o600);
}

/// The store as a program without sealing left it: plain values and no key.
fn unseal(folder: &Path) {
    let options = shikiri_sqlite::DatabaseOptions::default();
    let database =
        shikiri_sqlite::SqliteDatabase::open(&folder.join("state.db"), &options).unwrap();
    let set = |kind: &str, path: &str, value: &str| {
        format!(
            "UPDATE records SET doc = json_set(doc, '{path}', '{value}')
             WHERE kind = '{kind}' AND json_extract(doc, '{path}') IS NOT NULL;"
        )
    };
    database
        .execute_batch(&format!(
            "{} {} DELETE FROM records WHERE kind = 'sealing_key';
             PRAGMA wal_checkpoint(TRUNCATE);",
            set("model", "$.env.ANTHROPIC_API_KEY", ENV_SECRET),
            set(
                "mcp_server",
                "$.headers_template.Authorization",
                &format!("Bearer {HEADER_SECRET}")
            ),
        ))
        .unwrap();
    let _ = fs::remove_file(folder.join("sealing.key"));
}

#[tokio::test(flavor = "multi_thread")]
async fn plain_secrets_of_an_older_store_are_sealed_at_the_first_start() {
    let mut app = TestApp::new(PROGRAM).start().await;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    let path = keep_secrets(&app, &url).await;
    assert_eq!(app.terminate().await.0, 0);
    unseal(&app.data_folder());
    assert_eq!(files_with_secrets(&app.data_folder()), ["state.db"]);
    app.restart().await;
    assert!(sends_its_header(&app, &path, &listener).await, "nothing is lost");
    assert_eq!(app.terminate().await.0, 0);
    assert_eq!(files_with_secrets(&app.data_folder()), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_with_another_sealing_key_refuses_to_start() {
    let mut app = TestApp::new(PROGRAM).start().await;
    keep_secrets(&app, "http://127.0.0.1:9/mcp").await;
    assert_eq!(app.terminate().await.0, 0);
    let key = app.data_folder().join("sealing.key");
    let kept = fs::read_to_string(&key).unwrap();
    let serve = ["serve", "--listen", "127.0.0.1:0"];
    fs::write(&key, "0".repeat(64)).unwrap();
    app.cli().run(&serve).refused(3, &["sealing.key", "another key", "SHIKIRI_SEALING_KEY_FILE"]);
    fs::remove_file(&key).unwrap();
    app.cli().run(&serve).refused(3, &["sealing.key", "SHIKIRI_SEALING_KEY_FILE"]);
    assert!(!key.exists(), "a store that has a key is given no second one");
    // Looking needs no key.
    app.cli().run(&["models", "list"]).done();
    app.cli().run(&["tenants", "list"]).done();
    assert_eq!(app.cli().run(&["doctor"]).code, 1);
    let elsewhere = app.root().join("shared.key");
    fs::write(&elsewhere, kept).unwrap();
    fs::set_permissions(&elsewhere, fs::Permissions::from_mode(0o600)).unwrap();
    app.set_env("SHIKIRI_SEALING_KEY_FILE", elsewhere.to_str().unwrap());
    app.restart().await;
    app.cli().run(&["doctor"]).done();
}
