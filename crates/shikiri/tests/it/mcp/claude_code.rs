//! The real Claude Code as a client: the newest version, which speaks the newer era of the
//! protocol, and the oldest that is supported, which speaks the older one. The model is scripted.

mod recorder;

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};
use shikiri_model::connection::Connection;
use shikiri_model::ids::TenantId;
use shikiri_model::record::{Document as _, RecordQuery};
use shikiri_store::sqlite::{SqliteOptions, SqliteStore};
use shikiri_store::{Store as _, store};
use shikiri_testkit::{ClaudeCli, FakeModel, Gate, Reply, TestApp, peer, wait_until};

use self::recorder::Recorder;
use crate::PROGRAM;

const PATIENCE: Duration = Duration::from_secs(60);
const LONG_RUNNING: &str = "mcp__shikiri__long_running_agent";
const TRAVEL: &str = "mcp__shikiri__travel_agent";

/// Each version, with the revision of the protocol that it speaks to us.
fn versions() -> impl Iterator<Item = (PathBuf, &'static str)> {
    let known = [("SHIKIRI_PEER_CLAUDE", "2026-07-28"), ("SHIKIRI_PEER_CLAUDE_OLD", "2025-11-25")];
    known.into_iter().filter_map(|(variable, protocol)| Some((peer(variable)?, protocol)))
}

/// Says what the tools gave back.
fn repeat() -> Reply {
    Reply::with(|request| Reply::text(&request.tool_results()[0].text))
}

fn connected(program: &Path, model: &FakeModel, app: &TestApp, recorder: &Recorder) -> ClaudeCli {
    let key = format!("Bearer {}", app.admin_key());
    ClaudeCli::new(program, model).mcp_http("shikiri", &recorder.url(), &[("Authorization", &key)])
}

/// What stands in the streams of all connections about calls.
async fn calls(data_folder: &Path) -> Vec<Value> {
    let file = data_folder.join("state.db");
    let store = SqliteStore::open(&file, SqliteOptions::default()).unwrap();
    let tenant = TenantId::local();
    let kind = Connection::KIND;
    let query = RecordQuery { kind, tenant: Some(tenant.clone()), limit: 10, ..Default::default() };
    let mut calls = Vec::new();
    for record in store.list(query).await.unwrap() {
        let connection = store::decode::<Connection>(&record).unwrap().value;
        let page = store.read(&tenant, &connection.stream(), 0, usize::MAX).await.unwrap();
        let events = page.chunks.iter().flat_map(|chunk| chunk.events());
        for event in events.filter(|event| event.kind == "call") {
            calls.push(serde_json::from_str(event.data).unwrap());
        }
    }
    calls
}


#[tokio::test(flavor = "multi_thread")]
async fn explore_kill() {
    for (program, protocol) in versions() {
        let mut app = TestApp::new(PROGRAM).env("SHIKIRI_NODE_LEASE_SECONDS", 1).start().await;
        let recorder = Recorder::start(app.port()).await;
        let model = FakeModel::start().await;
        let input = json!({ "steps": 10, "step_ms": 100 });
        let again = json!({ "steps": 2, "step_ms": 1 });
        model.script("work", [Reply::call(LONG_RUNNING, input), Reply::call(LONG_RUNNING, again), repeat()]);
        let claude = connected(&program, &model, &app, &recorder);
        let running = claude.print("work");
        let start = std::time::Instant::now();
        let killing = async {
            wait_until("progress", PATIENCE, async || recorder.told().iter().any(|m| m["method"] == "notifications/progress")).await;
            eprintln!("killing at {:?}", start.elapsed());
            app.restart().await;
            eprintln!("restarted at {:?}", start.elapsed());
        };
        let (ended, ()) = tokio::join!(running, killing);
        eprintln!("=== {protocol}: {}", ended.text());
        eprintln!("took {:?}", start.elapsed());
        for m in model.messages() { eprintln!("tool results {:?}", m.tool_results()); }
        eprintln!("{}", recorder.transcript());
        eprintln!("calls {:#?}", calls(&app.data_folder()).await);
        let runs = app.client().get("/v1/tenants/local/runs").await.expect(200);
        eprintln!("runs {:#}", runs);
        let _ = (Gate::new(), TRAVEL, PATIENCE);
    }
}
