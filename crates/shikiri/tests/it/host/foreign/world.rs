//! One server of others, hosts that call it, and a person who watches and answers.

use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use serde_json::{Map, Value, json};
use shikiri_app::{App, AppOptions};
use shikiri_client::ClientOptions;
use shikiri_host::{CallUpdate, Host, NewToolCall, UserInteraction};
use shikiri_model::host::{
    ElicitationForm, FormAnswer, HostCall, HostCallState, HostTransport, ServerSpec,
};
use shikiri_model::ids::TenantId;
use shikiri_store::sqlite::{SqliteOptions, SqliteStore};
use shikiri_testkit::{Follower, peer};
use tempfile::TempDir;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// Nothing here takes longer, on a busy machine either.
const PATIENCE: Duration = Duration::from_secs(90);
/// What a person answers where a text is wanted.
const WORD: &str = "味噌汁";

const PYTHON: &str = include_str!("../servers/counting.py");
const TYPESCRIPT: &str = include_str!("../servers/counting.mjs");
const ON_LOOPBACK: &str = include_str!("../servers/on_loopback.mjs");

pub(super) struct World {
    folder: TempDir,
    reach: HostTransport,
    protocol: Option<String>,
    /// Ends with the world.
    _server: Option<Follower>,
}

impl World {
    pub(super) fn everything_over_stdio() -> Option<Self> {
        let (node, program) = (peer("SHIKIRI_PEER_NODE")?, peer("SHIKIRI_PEER_EVERYTHING")?);
        let text = |path: &Path| path.to_str().unwrap().to_owned();
        let reach = HostTransport::program(&text(&node), &[text(&program), "stdio".to_owned()]);
        Some(Self { folder: TempDir::new().unwrap(), reach, protocol: None, _server: None })
    }

    pub(super) fn everything_over_http() -> Option<Self> {
        let (node, program) = (peer("SHIKIRI_PEER_NODE")?, peer("SHIKIRI_PEER_EVERYTHING")?);
        let folder = TempDir::new().unwrap();
        let preload = folder.path().join("on_loopback.mjs");
        std::fs::write(&preload, ON_LOOPBACK).unwrap();
        let mut command = Command::new(node);
        command.arg("--import").arg(preload).arg(program).arg("streamableHttp");
        Some(Self::over_http(folder, command, None))
    }

    pub(super) fn python() -> Option<Self> {
        let python = peer("SHIKIRI_PEER_PYTHON_OLD")?;
        let folder = TempDir::new().unwrap();
        let script = folder.path().join("counting.py");
        std::fs::write(&script, PYTHON).unwrap();
        let mut command = Command::new(python);
        command.arg(script);
        Some(Self::over_http(folder, command, None))
    }

    /// Speaks this revision, or the newest that both know.
    pub(super) fn typescript(protocol: Option<&str>) -> Option<Self> {
        let (node, packages) = (peer("SHIKIRI_PEER_NODE")?, peer("SHIKIRI_PEER_TS")?);
        let folder = TempDir::new().unwrap();
        let script = folder.path().join("counting.mjs");
        std::fs::write(&script, TYPESCRIPT).unwrap();
        let modules = folder.path().join("node_modules");
        std::os::unix::fs::symlink(packages.join("node_modules"), modules).unwrap();
        let mut command = Command::new(node);
        command.arg(script);
        Some(Self::over_http(folder, command, protocol))
    }

    /// A server that another process has started.
    pub(super) fn at(url: &str) -> Self {
        let reach = HostTransport::Http { url: url.to_owned(), headers: Default::default() };
        Self { folder: TempDir::new().unwrap(), reach, protocol: None, _server: None }
    }

    /// Starts a server that says where it listens.
    fn over_http(folder: TempDir, mut command: Command, protocol: Option<&str>) -> Self {
        command.current_dir(folder.path()).env_clear().env("HOME", folder.path());
        command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
        let mut server = Follower::start(&mut command);
        let address = server.find(PATIENCE, |line| {
            line.strip_prefix("listening ").map(|address| address.trim().to_owned())
        });
        let address = address.unwrap_or_else(|| panic!("no server:\n{}", server.output()));
        let url = format!("http://{address}/mcp");
        let reach = HostTransport::Http { url, headers: Default::default() };
        let protocol = protocol.map(str::to_owned);
        Self { folder, reach, protocol, _server: Some(server) }
    }

    /// A host of its own, as another process would have: only the store is shared.
    pub(super) fn host(&self) -> Arc<Host> {
        let path = self.folder.path().join("state.db");
        let store = SqliteStore::open(&path, SqliteOptions::default()).unwrap();
        let app = App::new(Arc::new(store), Vec::new(), AppOptions::default());
        let spec = ServerSpec {
            name: "it".to_owned(),
            reach: self.reach.clone(),
            oauth: Default::default(),
        };
        let introduction = ClientOptions {
            name: "shikiri-tests".to_owned(),
            version: "1".to_owned(),
            elicitation: true,
            sampling: true,
            authority: None,
            protocol: self.protocol.clone(),
            addresses: Vec::new(),
        };
        Arc::new(
            Host::new(app.executions.clone(), TenantId::local(), vec![spec], introduction).unwrap(),
        )
    }

    /// What the server offers, all of it fit to be called.
    pub(super) async fn tools(&self, host: &Host) -> Vec<String> {
        let listed = host.list().await;
        let (_, offer) = listed[0].offer.as_ref().unwrap();
        assert!(offer.remarks.is_empty(), "{:?}", offer.remarks);
        let mut names: Vec<_> = offer.tools.iter().map(|tool| tool.name.clone()).collect();
        names.sort();
        names
    }

    pub(super) async fn call(
        &self,
        host: &Host,
        tool: &str,
        arguments: &Value,
        watcher: &Watcher,
    ) -> (HostCallState, String) {
        let new = order(tool, arguments);
        let called = host.call_tool(new, watcher, &CancellationToken::new()).await.unwrap();
        super::ended(called)
    }

    /// Calls a tool and is gone when the progress has come so far.
    pub(super) async fn leave(
        &self,
        tool: &str,
        arguments: &Value,
        watcher: &Arc<Watcher>,
        at: u32,
    ) {
        let (host, watching, new) = (self.host(), Arc::clone(watcher), order(tool, arguments));
        let calling = tokio::spawn(async move {
            host.call_tool(new, &*watching, &CancellationToken::new()).await.map(drop)
        });
        watcher.has_seen_progress(f64::from(at)).await;
        calling.abort();
        assert!(calling.await.unwrap_err().is_cancelled());
    }

    /// Takes up the one call that was left, while something else happens. Gives the progress that
    /// was told too.
    pub(super) async fn take_up(
        &self,
        watcher: &Watcher,
        meanwhile: impl AsyncFnOnce(&Watcher),
    ) -> (HostCallState, String, Vec<f64>) {
        let host = self.host();
        let open = host.open_calls().await.unwrap();
        let [call] = open.as_slice() else { panic!("not one call: {open:?}") };
        let cancel = CancellationToken::new();
        let resuming = host.resume_call(&call.value.id, None, watcher, &cancel);
        let both = async { tokio::join!(resuming, meanwhile(watcher)) };
        let (called, ()) = tokio::time::timeout(PATIENCE, both).await.expect("an end in time");
        let (state, text) = super::ended(called.unwrap());
        host.close().await;
        (state, text, watcher.progress())
    }
}

fn order(tool: &str, arguments: &Value) -> NewToolCall {
    NewToolCall {
        server: "it".to_owned(),
        tool: tool.to_owned(),
        arguments: arguments.as_object().cloned().unwrap_or_default(),
        time_limit: PATIENCE,
    }
}

/// Remembers what it is shown, and answers everything.
pub(super) struct Watcher {
    seen: Mutex<Vec<CallUpdate>>,
    more: Notify,
    /// A tool that is called by another host before a question is answered.
    meanwhile: Option<(Arc<Host>, &'static str)>,
}

impl Watcher {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self { seen: Mutex::default(), more: Notify::new(), meanwhile: None })
    }

    pub(super) fn meanwhile(host: Arc<Host>, tool: &'static str) -> Self {
        Self { seen: Mutex::default(), more: Notify::new(), meanwhile: Some((host, tool)) }
    }

    pub(super) fn kinds(&self) -> Vec<&'static str> {
        self.seen.lock().unwrap().iter().map(|shown| shown.kind).collect()
    }

    pub(super) fn progress(&self) -> Vec<f64> {
        let seen = self.seen.lock().unwrap();
        let told = seen.iter().filter(|shown| shown.kind == "progress");
        told.map(|shown| shown.data["progress"].as_f64().unwrap()).collect()
    }

    pub(super) async fn has_seen_progress(&self, wanted: f64) {
        let waiting = async {
            while !self.progress().contains(&wanted) {
                self.more.notified().await;
            }
        };
        let waited = tokio::time::timeout(PATIENCE, waiting).await;
        waited.unwrap_or_else(|_| panic!("no {wanted} in {:?}", self.seen.lock().unwrap()));
    }
}

#[async_trait]
impl UserInteraction for Watcher {
    fn show(&self, _: &HostCall, shown: &CallUpdate) {
        self.seen.lock().unwrap().push(shown.clone());
        self.more.notify_one();
    }

    /// Takes the defaults, and gives the word where a text must be there.
    async fn ask(&self, _: &HostCall, form: &ElicitationForm) -> FormAnswer {
        if let Some((host, tool)) = &self.meanwhile {
            let watcher = Watcher::new();
            let new = order(tool, &json!({}));
            let called = host.call_tool(new, &*watcher, &CancellationToken::new()).await;
            assert_eq!(super::ended(called.unwrap()).0, HostCallState::Completed);
        }
        let answered = form.fields.iter().filter_map(|field| {
            let word = field.required.then(|| json!(WORD));
            Some((field.name.clone(), field.default.clone().or(word)?))
        });
        FormAnswer::Accept(Map::from_iter(answered))
    }

    async fn visit(&self, _: &HostCall, _: &str, _: &str) -> FormAnswer {
        FormAnswer::Decline(Map::new())
    }

    async fn sample(&self, _: &HostCall, params: &Value) -> Result<Value, String> {
        assert_eq!(params["messages"][0]["role"], "user", "{params}");
        let content = json!({ "type": "text", "text": "it rains" });
        Ok(json!({ "role": "assistant", "model": "a model of tests", "content": content }))
    }
}
