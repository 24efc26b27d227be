//! schemathesis reads `/openapi.json`, makes up requests, right and wrong ones, and judges every
//! answer by the document: no fault of the server, no status and no kind of content that is not
//! described, no body of another shape.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};
use shikiri_testkit::{Client, Follower, TestApp, long, peer};

use super::kit::Talk;
use crate::PROGRAM;

/// How long it goes on making up requests: longer where a busy machine got through too few.
fn seconds() -> &'static [u64] {
    if long() { &[600] } else { &[30, 60, 120, 240] }
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_is_asked_the_answer_is_one_that_is_described() {
    let Some(python) = peer("SHIKIRI_PEER_SCHEMATHESIS") else { return };
    let app = TestApp::new(PROGRAM)
        .env("SHIKIRI_DURABILITY", "normal")
        // A model made up here may name an engine that would start a program.
        .env("SHIKIRI_CLAUDE_BIN", "/nowhere/claude")
        .env("SHIKIRI_LOCK_WAIT_SECONDS", "0.2")
        .env("SHIKIRI_EXECUTION_TIMEOUT_SECONDS", "2")
        .start()
        .await;
    let known = Known::make(&app).await;
    let work = tempfile::tempdir().unwrap();
    let config = work.path().join("schemathesis.toml");
    std::fs::write(&config, known.config()).unwrap();

    let mut missing = None;
    for seconds in seconds() {
        let mut judge = Follower::start(&mut command(&python, work.path(), &app, *seconds));
        let code = judge.wait(Duration::from_secs(seconds + 240));
        assert_eq!(code, 0, "{}", judge.output());
        assert!(!app.log().contains("panicked"), "{}", app.log());
        missing = most_were_reached(&app.client()).await.err();
        if missing.is_none() {
            break;
        }
    }
    assert_eq!(missing, None);
}

fn command(python: &Path, work: &Path, app: &TestApp, seconds: u64) -> Command {
    let mut command = Command::new(python);
    command.current_dir(work).env_clear().env("HOME", work);
    command.args(["-m", "schemathesis.cli", "--config-file", "schemathesis.toml", "run"]);
    command.arg(format!("{}/openapi.json", app.client().base()));
    command.args(["--header", &format!("Authorization: Bearer {}", app.admin_key())]);
    command.args(["--phases", "coverage,fuzzing,stateful", "--workers", "1"]);
    command.args(["--max-examples", "20", "--max-time", &seconds.to_string()]);
    command.args(["--request-timeout", "60", "--generation-database", "none", "--no-color"]);
    command.args(["--suppress-health-check", "all", "--warnings", "off"]);
    if let Ok(seed) = std::env::var("SHIKIRI_SEED") {
        command.args(["--seed", &seed]);
    }
    command
}

/// Things that are there, so that not every request ends at an id that is not.
struct Known {
    /// What a parameter of a path usually is.
    usual: Vec<(&'static str, String)>,
    /// Except for what would spoil it for all the others.
    expendable: Vec<(&'static str, &'static str, String)>,
    /// A server that can be tried: no process listens there.
    closed: String,
}

impl Known {
    async fn make(app: &TestApp) -> Self {
        let admin = app.client();
        for id in ["changed", "doomed"] {
            admin.post("/v1/tenants", &json!({ "id": id })).await.expect(201);
        }
        let tenant = app.tenant("fuzz").await;
        let offline = json!({ "model_id": "offline" });
        admin.patch("/v1/tenants/fuzz", &offline).await.expect(200);
        let changed = json!({ "id": "changed", "engine": "offline" });
        admin.post("/v1/models", &changed).await.expect(201);
        let talk = Talk::start(&tenant).await;
        let file = tenant.client.request(Method::PUT, &talk.path("/files/notes.txt")).body("x");
        tenant.client.send(file).await.expect(201);
        let told = talk.say("#offline tools=2 subagents=1").await;
        let execution = told[0].data["execution_id"].as_str().unwrap().to_owned();
        let run = tenant.start_run("long_running_agent", json!({ "steps": 1, "step_ms": 1 })).await;
        let make = async |what: &str, body: Value| {
            let made = admin.post(&tenant.path(what), &body).await.expect(201);
            made["id"].as_str().unwrap_or_default().to_owned()
        };
        let server = |name: &str| json!({ "name": name, "type": "http", "url": "http://127.0.0.1:9/", "allow_private": true });
        make("/skills", json!({ "name": "skill", "content": "x" })).await;
        make("/projects", json!({ "id": "team" })).await;
        for agent in ["mia", "ben"] {
            make("/projects/team/agents", json!({ "id": agent })).await;
        }
        let task = json!({ "title": "x", "assignee": "mia" });
        let task = make("/projects/team/tasks", task).await;
        let key = make("/keys", json!({ "name": "spare" })).await;
        let closed = make("/mcp-servers", server("closed")).await;
        Self {
            expendable: vec![
                ("DELETE /v1/tenants/{t}", "t", "doomed".to_owned()),
                ("PATCH /v1/tenants/{t}", "t", "changed".to_owned()),
                ("PATCH /v1/models/{m}", "m", "changed".to_owned()),
                (
                    "DELETE /v1/tenants/{t}/conversations/{c}",
                    "c",
                    make("/conversations", json!({})).await,
                ),
                (
                    "POST /v1/tenants/{t}/conversations/{c}/archive",
                    "c",
                    make("/conversations", json!({})).await,
                ),
                (
                    "PATCH /v1/tenants/{t}/mcp-servers/{s}",
                    "s",
                    make("/mcp-servers", server("changed")).await,
                ),
                (
                    "DELETE /v1/tenants/{t}/mcp-servers/{s}",
                    "s",
                    make("/mcp-servers", server("doomed")).await,
                ),
            ],
            usual: vec![
                ("path.t", "fuzz".to_owned()),
                ("path.c", talk.id),
                ("path.e", execution),
                ("path.r", run),
                ("path.s", closed.clone()),
                ("path.m", "offline".to_owned()),
                ("path.name", "skill".to_owned()),
                ("path.key", key),
                ("path.path", "notes.txt".to_owned()),
                ("path.p", "team".to_owned()),
                ("path.task", task),
                ("body.from_agent_id", "mia".to_owned()),
                ("body.to_agent_id", "ben".to_owned()),
                ("body.assignee", "mia".to_owned()),
                ("body.model_id", "offline".to_owned()),
                // Most do not wait for the stream.
                ("header.Prefer", "respond-async".to_owned()),
            ],
            closed,
        }
    }

    /// Everything that the document describes is tried. What is not judged has its reason here.
    fn config(&self) -> String {
        let mut words = String::new();
        let mut uses = "[parameters]\n".to_owned();
        for (index, (parameter, value)) in self.usual.iter().enumerate() {
            let _ = write!(words, "[dictionaries.usual{index}]\nvalues = [{value:?}]\n");
            let _ = writeln!(
                uses,
                "{parameter:?} = {{ dictionary = \"usual{index}\", probability = 0.9 }}"
            );
        }
        let mut exceptions = String::new();
        for (operation, parameter, value) in &self.expendable {
            let _ = writeln!(
                exceptions,
                "[[operations]]\ninclude-name = {operation:?}\n\
                 parameters = {{ \"path.{parameter}\" = {value:?} }}"
            );
        }
        // Only at the one that is there: those made up here name programs and strangers' machines.
        let check = format!(
            "[[operations]]\ninclude-name = \"POST /v1/tenants/{{t}}/mcp-servers/{{s}}/check\"\n\
             parameters = {{ \"path.t\" = \"fuzz\", \"path.s\" = {:?} }}\n\
             phases = {{ stateful = {{ enabled = false }} }}\n",
            self.closed
        );
        format!("{CHECKS}{words}{uses}{exceptions}{check}{STREAMS}{ENGINES}")
    }
}

const CHECKS: &str = "
[checks]
enabled = false
not_a_server_error = { enabled = true }
status_code_conformance = { enabled = true }
content_type_conformance = { enabled = true }
response_schema_conformance = { enabled = true }
";

/// The document describes a stream as text; schemathesis would compare each event with that.
const STREAMS: &str = r#"
[[operations]]
include-path-regex = "/events$"
checks = { response_schema_conformance = { enabled = false } }
"#;

/// 503 says that an engine cannot run here, which is so for all but one.
const ENGINES: &str = r#"
[[operations]]
include-name = "POST /v1/tenants/{t}/conversations/{c}/executions"
[operations.checks]
response_schema_conformance = { enabled = false }
not_a_server_error = { enabled = true, expected-statuses = ["2xx", "4xx", 503] }
"#;

/// A run in which everything was refused would prove nothing.
async fn most_were_reached(client: &Client) -> Result<(), String> {
    let document = client.get("/openapi.json").await.expect(200);
    let paths = document["paths"].as_object().unwrap().values();
    let all: usize = paths.map(|path| path.as_object().unwrap().len()).sum();
    let metrics = client.get("/metrics").await.text();
    let succeeded: BTreeSet<&str> = metrics
        .lines()
        .filter(|line| line.starts_with("shikiri_requests_total{"))
        .filter_map(|line| line.split_once("\",status=\"2"))
        .map(|(operation, _)| operation)
        .collect();
    if succeeded.len() * 4 > all * 3 {
        return Ok(());
    }
    Err(format!("of {all} only these worked: {succeeded:#?}"))
}
