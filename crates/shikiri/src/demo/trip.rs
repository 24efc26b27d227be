//! The second part of the demo: an agent as an MCP tool, whose question survives the server.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use serde_json::{Map, Value, json};
use shikiri_client::{
    CallHandler, CallOwnershipLost, ClientError, ClientOptions, ClientToolCall, FollowOutcome,
    ServerConnection, follow_call,
};
use shikiri_model::host::{
    CallEvent, CallOutcome, ElicitationForm, FormAnswer, HostTransport, OAuthSpec, ResumePoint,
    ServerSpec,
};
use tokio::sync::Mutex as AsyncMutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::child::ServerProcess;
use super::stage::{Scoreboard, Stage, went_wrong};
use crate::exit::Failure;

const DESTINATION: &str = "Kyoto";
const STEP_MS: u64 = 150;
/// For the whole call, including the server's restart.
const LIMIT: Duration = Duration::from_secs(120);
/// The protocol revision with sessions and resumable streams, which this part shows.
const PROTOCOL: &str = "2025-11-25";
const NAME: &str = "demo";

/// Plays it on a running server, and returns the one that is up at the end.
pub(super) async fn play(
    root: &Path,
    server: ServerProcess,
    stage: Stage,
    score: &mut Scoreboard,
) -> Result<ServerProcess, Failure> {
    stage.act("2. The same server for MCP clients: an agent as a tool that asks a person").await?;
    let connection = connect(&server).await?;
    let session = connection.session().ok_or_else(|| went_wrong("there is no session"))?;
    let listed = connection.tools().await.map_err(broke)?;
    stage.line(&format!("session {session}, {} tools", listed.tools.len()))?;
    stage.line(&format!("travel_agent to {DESTINATION}:"))?;
    let caller = Arc::new(TripCaller::new(root, server, stage));
    let outcome = caller.call(&connection).await;
    let server = caller.take_server().await?;
    let FollowOutcome::Over(CallOutcome::Answered(result)) = outcome else {
        return Err(went_wrong("the call never ended"));
    };
    let result = result.get("structuredContent").unwrap_or(&Value::Null);
    let booked = result["booked"] == json!(true);
    stage.prove(booked, &format!("the call that was open has its answer: {result}"))?;
    stage.pause().await;
    score.kills += 1;
    Ok(server)
}

async fn connect(server: &ServerProcess) -> Result<ServerConnection, Failure> {
    let authorization = format!("Bearer {}", server.key()?);
    let headers = BTreeMap::from([("Authorization".to_owned(), authorization)]);
    let url = format!("http://{}/mcp", server.address());
    let reach = HostTransport::Http { url, headers };
    let spec = ServerSpec { name: NAME.to_owned(), reach, oauth: OAuthSpec::default() };
    let options = ClientOptions {
        name: "shikiri-demo".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        elicitation: true,
        sampling: false,
        authority: None,
        protocol: Some(PROTOCOL.to_owned()),
        addresses: Vec::new(),
    };
    ServerConnection::connect(&spec, &options, NAME).await.map_err(broke)
}

/// Shows the progress of a call. When the call asks something, it kills the server and starts it
/// again before it answers.
struct TripCaller {
    root: PathBuf,
    stage: Stage,
    server: AsyncMutex<Option<ServerProcess>>,
    failure: Mutex<Option<Failure>>,
    cancel: CancellationToken,
}

impl TripCaller {
    fn new(root: &Path, server: ServerProcess, stage: Stage) -> Self {
        let (root, server) = (root.to_owned(), AsyncMutex::new(Some(server)));
        Self { root, stage, server, failure: Mutex::default(), cancel: CancellationToken::new() }
    }

    async fn call(self: &Arc<Self>, connection: &ServerConnection) -> FollowOutcome {
        let arguments = Map::from_iter([
            ("destination".to_owned(), json!(DESTINATION)),
            ("step_ms".to_owned(), json!(STEP_MS)),
        ]);
        let tool_call = ClientToolCall {
            tool: "travel_agent",
            schema: None,
            arguments: &arguments,
            repeatable: false,
            key: NAME,
            bookmark: &ResumePoint::default(),
            deadline: Instant::now() + LIMIT,
            cancel: &self.cancel,
        };
        follow_call(connection, &tool_call, &TripHandler(Arc::clone(self))).await
    }

    async fn take_server(&self) -> Result<ServerProcess, Failure> {
        let failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(failure) = failure {
            return Err(failure);
        }
        self.server.lock().await.take().ok_or_else(|| went_wrong("the server is gone"))
    }

    async fn restart_server(&self, question: &str) -> Result<(), Failure> {
        self.stage.line(&format!("it asks: {}", Value::from(question)))?;
        let mut server_slot = self.server.lock().await;
        let server = server_slot.take().ok_or_else(|| went_wrong("the server is gone"))?;
        self.stage.announce_kill(server.pid(), "while the question is open").await?;
        let address = server.address();
        server.kill().await?;
        let server = ServerProcess::start_at(&self.root, address).await?;
        let pid = server.pid();
        *server_slot = Some(server);
        self.stage.line(&format!("server {pid}; the same session answers: yes"))
    }
}

struct TripHandler(Arc<TripCaller>);

#[async_trait]
impl CallHandler for TripHandler {
    async fn record_events(&self, news: Vec<CallEvent>) -> Result<(), CallOwnershipLost> {
        for event in news {
            let CallEvent::Progress(progress) = event else { continue };
            let text = progress.message.unwrap_or_default();
            let shown = self.0.stage.line(&format!("{:>5} %  {text}", progress.progress));
            shown.map_err(|failure| CallOwnershipLost(failure.to_string()))?;
        }
        Ok(())
    }

    async fn ask(&self, form: &ElicitationForm) -> FormAnswer {
        let (caller, question) = (Arc::clone(&self.0), form.message.clone());
        // In a task of its own: while the server is away, this future is not polled.
        let restarting = tokio::spawn(async move {
            let restarted = caller.restart_server(&question).await;
            restarted.map_err(|failure| {
                *caller.failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(failure);
                caller.cancel.cancel();
            })
        });
        match restarting.await {
            Ok(Ok(())) => FormAnswer::Accept(Map::from_iter([
                ("confirm".to_owned(), json!(true)),
                ("notes".to_owned(), json!("window")),
            ])),
            _ => FormAnswer::Cancel,
        }
    }

    async fn visit(&self, _message: &str, _url: &str) -> FormAnswer {
        FormAnswer::Cancel
    }

    async fn sample(&self, _params: &Value) -> Result<Value, String> {
        Err("the demo asks no model".to_owned())
    }
}

fn broke(error: ClientError) -> Failure {
    went_wrong(&error.to_string())
}
