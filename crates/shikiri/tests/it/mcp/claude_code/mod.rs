//! The real Claude Code as a client: the newest version, which speaks the newer era of the
//! protocol, and the oldest that is supported, which speaks the older one. Its model is scripted.

mod calls;
mod cut_off;
mod recorder;

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;
use shikiri_model::connection::McpConnection;
use shikiri_model::ids::TenantId;
use shikiri_model::record::{Document as _, RecordQuery};
use shikiri_model::run::Run;
use shikiri_store::sqlite::{SqliteOptions, SqliteStore};
use shikiri_store::{Store as _, StoreExt as _, store};
use shikiri_testkit::{Builder, ClaudeCli, FakeModel, Reply, TestApp, peer};

use self::recorder::Recorder;
use crate::PROGRAM;

const PATIENCE: Duration = Duration::from_secs(60);
const NEWER: &str = "2026-07-28";
const OLDER: &str = "2025-11-25";

/// Each version, with the revision of the protocol that it speaks to us.
fn versions() -> impl Iterator<Item = (PathBuf, &'static str)> {
    let known = [("SHIKIRI_PEER_CLAUDE", NEWER), ("SHIKIRI_PEER_CLAUDE_OLD", OLDER)];
    known.into_iter().filter_map(|(variable, protocol)| Some((peer(variable)?, protocol)))
}

/// A server, a model, and between the server and its client a listener.
struct World {
    app: TestApp,
    recorder: Recorder,
    model: FakeModel,
}

impl World {
    async fn start() -> Self {
        Self::of(TestApp::new(PROGRAM)).await
    }

    async fn of(app: Builder) -> Self {
        let app = app.start().await;
        let recorder = Recorder::start(app.port()).await;
        Self { app, recorder, model: FakeModel::start().await }
    }

    fn claude(&self, program: &Path) -> ClaudeCli {
        let key = format!("Bearer {}", self.app.admin_key());
        let claude = ClaudeCli::new(program, &self.model);
        claude.mcp_http("shikiri", &self.recorder.url(), &[("Authorization", &key)])
    }
}

/// Calls one of our tools.
fn call(tool: &str, input: Value) -> Reply {
    Reply::call(&format!("mcp__shikiri__{tool}"), input)
}

/// Says what the tool gave back.
fn repeat() -> Reply {
    Reply::with(|request| Reply::text(&request.tool_results()[0].text))
}

/// The JSON among what Claude Code makes of a tool's result: a line for the link, one for the data.
#[track_caller]
fn data(text: &str) -> Value {
    let found = text.lines().find(|line| line.starts_with('{'));
    let data = found.unwrap_or_else(|| panic!("no data in {text:?}"));
    serde_json::from_str(data).unwrap_or_else(|e| panic!("not JSON ({e}): {data}"))
}

/// A call that stands in the stream of a connection, and the origin of the run that it started.
#[derive(Debug)]
struct Noted {
    connection: String,
    call: Value,
    origin: Value,
}

/// The agents' calls that were noted in this folder, oldest first.
async fn noted(data_folder: &Path) -> Vec<Noted> {
    let file = data_folder.join("state.db");
    let store = SqliteStore::open(&file, SqliteOptions::default()).unwrap();
    let tenant = TenantId::local();
    let kind = McpConnection::KIND;
    let query = RecordQuery { kind, tenant: Some(tenant.clone()), limit: 10, ..Default::default() };
    let mut noted = Vec::new();
    for record in store.list(query).await.unwrap() {
        let connection = store::decode::<McpConnection>(&record).unwrap().value;
        let page = store.read(&tenant, &connection.stream(), 0, usize::MAX).await.unwrap();
        let events = page.chunks.iter().flat_map(|chunk| chunk.events());
        for event in events.filter(|event| event.kind == "call") {
            let call: Value = serde_json::from_str(event.data).unwrap();
            let Some(run) = call["run_id"].as_str() else { continue };
            let run = store.load::<Run>(&tenant, run).await.unwrap().expect("the call's run");
            let connection = connection.id.to_string();
            noted.push(Noted { connection, call, origin: run.value.origin.unwrap_or_default() });
        }
    }
    noted
}
