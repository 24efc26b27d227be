//! The samples of the OpenAPI document, run as they are against a real server.

use std::process::Command;

use serde_json::Value;
use shikiri_testkit::{TestApp, skip};

use crate::PROGRAM;

/// The address that samples name, until it is replaced by the server of the test.
const SERVER: &str = "http://127.0.0.1:7420";

/// The samples with this label that need nothing which a reader has to fill in, and remove nothing.
fn samples(document: &Value, label: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let listed = operation["x-codeSamples"].as_array().unwrap();
            let sample = listed.iter().find(|sample| sample["label"] == label).expect(path);
            let source = sample["source"].as_str().unwrap().to_owned();
            let has_blanks = path.replace("{t}", "").contains('{');
            if method != "delete" && !has_blanks {
                found.push((format!("{method} {path}"), source));
            }
        }
    }
    assert!(found.len() > 25, "too few samples: {}", found.len());
    found
}

/// On a server of its own: samples make things, which can be made once.
async fn run_samples(label: &str, needed: &str, program: &str, further: &str) {
    let version = Command::new(needed).arg("--version").output();
    if !version.is_ok_and(|version| version.status.success()) {
        return skip(label, &format!("{needed} is not installed"));
    }
    let app = TestApp::new(PROGRAM).start().await;
    let client = app.client();
    let document = client.get("/openapi.json").await.expect(200);
    let folder = tempfile::tempdir().unwrap();
    for (operation, source) in samples(&document, label) {
        let source = source.replace(SERVER, client.base());
        let mut command = Command::new(program);
        command.args(["-c", &format!("{source}{further}")]).current_dir(folder.path());
        command.env("SHIKIRI_KEY", client.key().unwrap()).env("NO_PROXY", "127.0.0.1");
        let output = tokio::task::block_in_place(|| command.output().unwrap());
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{operation}: {told}\n{source}");
        assert!(!output.stdout.is_empty(), "{operation} shows nothing:\n{source}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_samples_in_curl_work() {
    // With `-f` curl fails where the server refuses; with `-sS` it shows failures alone.
    run_samples("curl", "curl", "sh", " -sS -f").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_samples_in_python_work() {
    run_samples("Python", "python3", "python3", "").await;
}
