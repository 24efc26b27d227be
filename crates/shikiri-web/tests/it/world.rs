//! A store, an app with small agents, and the door to it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::{HeaderMap, Request, StatusCode};
use axum::response::Response;
use serde_json::{Value, json};
use shikiri_app::{App, AppOptions};
use shikiri_model::event::NewEvent;
use shikiri_model::ids::{RunId, TenantId};
use shikiri_model::run::run_stream;
use shikiri_model::time::Timestamp;
use shikiri_runtime::RuntimeOptions;
use shikiri_runtime::run::{AgentError, DurableAgent, RunContext, WorkerNode};
use shikiri_sqlite::{DatabaseOptions, SqliteDatabase};
use shikiri_store::sqlite::{SqliteDurability, SqliteOptions, SqliteStore};
use shikiri_store::{Commit, StreamAppend, SystemClock};
use shikiri_tenancy::gate::{AccessGate, GateOptions};
use shikiri_testkit::until;
use shikiri_web::{WebOptions, WebServer, bind};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

pub(crate) struct World {
    pub(crate) app: App,
    pub(crate) admin: String,
    router: Router,
    folder: tempfile::TempDir,
}

pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) text: String,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|_| panic!("no JSON: {:?}", self.text))
    }

    /// Status and code of a failure, which must have the one form that failures have.
    pub(crate) fn problem(&self) -> (u16, String) {
        assert_eq!(self.headers["content-type"], "application/problem+json", "{}", self.text);
        let body = self.json();
        assert_eq!(body["status"], self.status.as_u16());
        for field in ["type", "title", "detail"] {
            assert!(body[field].is_string(), "{field} in {}", self.text);
        }
        (self.status.as_u16(), body["code"].as_str().unwrap().to_owned())
    }
}

impl World {
    pub(crate) async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let options =
            SqliteOptions { clock: Arc::new(SystemClock), durability: SqliteDurability::Normal };
        let store = SqliteStore::open(&folder.path().join("state.db"), options).unwrap();
        let agents: Vec<Arc<dyn DurableAgent>> = vec![Arc::new(Echo), Arc::new(Asks)];
        let data = Some(folder.path().to_owned());
        let app = App::new(
            Arc::new(store),
            agents,
            AppOptions {
                runtime: RuntimeOptions { data, ..RuntimeOptions::default() },
                ..AppOptions::default()
            },
        );
        app.tenancy.ensure_local_tenant().await.unwrap();
        let secret = shikiri_tenancy::Tenancy::mint_secret().unwrap();
        app.tenancy.ensure_admin_key(&secret).await.unwrap();
        let gate = AccessGate::new(app.tenancy.clone(), GateOptions::default());
        let router = WebServer::new(app.clone(), gate, WebOptions::default()).router();
        Self { app, admin: secret.reveal().to_owned(), router, folder }
    }

    /// Another program's connection to the database.
    pub(crate) fn database(&self) -> SqliteDatabase {
        let path = self.folder.path().join("state.db");
        SqliteDatabase::open(&path, &DatabaseOptions::default()).unwrap()
    }

    /// A worker that carries runs.
    pub(crate) fn node(&self) -> WorkerNode {
        self.app.start_worker()
    }

    pub(crate) async fn respond(&self, request: Request<Body>) -> Response {
        self.router.clone().oneshot(request).await.unwrap()
    }

    pub(crate) async fn raw(&self, request: Request<Body>) -> Answer {
        let response = self.respond(request).await;
        let (status, headers) = (response.status(), response.headers().clone());
        let reading = to_bytes(response.into_body(), usize::MAX);
        let body = tokio::time::timeout(Duration::from_secs(20), reading).await;
        let body = body.expect("the body ends").unwrap();
        // A file that was put there may hold anything; what is said otherwise is compared as text.
        Answer { status, headers, text: String::from_utf8_lossy(&body).into_owned() }
    }

    /// A call with that key (none if it is empty).
    pub(crate) async fn call(
        &self,
        key: &str,
        method: &str,
        path: &str,
        body: Option<Value>,
    ) -> Answer {
        let mut request = Request::builder().method(method).uri(path).header("host", "localhost");
        if !key.is_empty() {
            request = request.header("authorization", format!("Bearer {key}"));
        }
        let body = match body {
            Some(body) => {
                request = request.header("content-type", "application/json");
                Body::from(body.to_string())
            }
            None => Body::empty(),
        };
        self.raw(request.body(body).unwrap()).await
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.call(&self.admin, "GET", path, None).await
    }

    pub(crate) async fn post(&self, path: &str, body: Value) -> Answer {
        self.call(&self.admin, "POST", path, Some(body)).await
    }

    /// A tenant, and a key of it.
    pub(crate) async fn tenant(&self, id: &str) -> String {
        let made = self.post("/v1/tenants", json!({ "id": id })).await;
        assert_eq!(made.status, StatusCode::CREATED, "{}", made.text);
        let path = format!("/v1/tenants/{id}/keys");
        let key = self.post(&path, json!({ "name": "test" })).await.json();
        key["key"].as_str().unwrap().to_owned()
    }

    pub(crate) async fn run(&self, tenant: &str, agent: &str, input: Value) -> String {
        let body = json!({ "agent": agent, "input": input });
        let made = self.post(&format!("/v1/tenants/{tenant}/runs"), body).await;
        assert_eq!(made.status, StatusCode::CREATED, "{}", made.text);
        made.json()["id"].as_str().unwrap().to_owned()
    }

    /// Waits until the store's clock shows a later moment, and gives it.
    pub(crate) async fn next_moment(&self) -> Timestamp {
        let now = async || self.app.runtime.store().now().await.unwrap();
        let before = now().await;
        until("the clock moves", async || Some(now().await).filter(|now| *now > before)).await
    }

    /// Waits until the run at this path asks, and gives its question.
    pub(crate) async fn question_of(&self, path: &str) -> Value {
        until("the run asks", async || self.get(path).await.json()["questions"].get(0).cloned())
            .await
    }

    /// Adds an event to a run's stream behind everybody's back.
    pub(crate) async fn append(&self, tenant: &str, run: &str, data: Value, close: bool) {
        let (tenant, run) = (tenant.parse::<TenantId>().unwrap(), run.parse::<RunId>().unwrap());
        let event = NewEvent::from_value("log", &data);
        let append =
            StreamAppend { close, ..StreamAppend::new(tenant, run_stream(&run), vec![event]) };
        self.app.runtime.store().commit(Commit::new().append(append)).await.unwrap();
    }

    pub(crate) async fn serve(&self, options: WebOptions) -> Serving {
        let options = WebOptions { listen: ([127, 0, 0, 1], 0).into(), ..options };
        let listener = bind(&options).await.unwrap();
        let address = listener.local_addr().unwrap();
        let drain = CancellationToken::new();
        let gate = AccessGate::new(self.app.tenancy.clone(), GateOptions::default());
        let server = WebServer::new(self.app.clone(), gate, options);
        let ended = tokio::spawn(server.serve(listener, drain.clone()));
        Serving { address, drain, ended }
    }
}

/// A server on a port of its own.
pub(crate) struct Serving {
    pub(crate) address: SocketAddr,
    pub(crate) drain: CancellationToken,
    pub(crate) ended: JoinHandle<std::io::Result<()>>,
}

/// Gives its input back.
struct Echo;

#[async_trait]
impl DurableAgent for Echo {
    fn name(&self) -> &'static str {
        "echo"
    }

    fn description(&self) -> &'static str {
        "Gives its input back"
    }

    fn input_schema(&self) -> Value {
        json!({ "type": "object" })
    }

    fn check(&self, input: &Value) -> Result<(), String> {
        if input["bad"] == true { Err("must not be bad".to_owned()) } else { Ok(()) }
    }

    async fn run(&self, context: RunContext, input: Value) -> Result<Value, AgentError> {
        context.progress(1.0, 2.0, "half way").await;
        Ok(input)
    }
}

/// Asks a person and tells what was answered, and what it was given meanwhile.
struct Asks;

#[async_trait]
impl DurableAgent for Asks {
    fn name(&self) -> &'static str {
        "asks"
    }

    fn description(&self) -> &'static str {
        "Asks a person"
    }

    fn input_schema(&self) -> Value {
        json!({ "type": "object" })
    }

    fn check(&self, _: &Value) -> Result<(), String> {
        Ok(())
    }

    fn check_update(&self, update: &Value) -> Result<(), String> {
        if update["hint"].is_string() { Ok(()) } else { Err("needs a hint".to_owned()) }
    }

    async fn run(&self, context: RunContext, _: Value) -> Result<Value, AgentError> {
        let schema = json!({ "type": "object" });
        let answer = context.ask_human(schema, "Which colour?", None).await;
        Ok(json!({ "accepted": answer.accepted(), "updates": context.updates().await }))
    }
}
