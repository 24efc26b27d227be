//! The MCP host: connections to other MCP servers, durable calls of their tools, and plans of such
//! calls.
//!
//! # One call
//!
//! 1. `shikiri host call` (`crates/shikiri/src/cli/host/`) finds the servers in `.mcp.json`, the store
//!    or `--url`, and opens the store. `tool_calls` connects with `shikiri-client`, which finds out the
//!    server's era, and commits the call before it is sent.
//! 2. `follow_call` of `shikiri-client` follows it. Each `CallEvent` goes to the `CallRecorder`,
//!    which commits it with the new `ResumePoint` and only then shows it to the [`UserInteraction`].
//! 3. A question of the server goes to the [`UserInteraction`] too, while reading continues.
//! 4. A broken stream is resumed, a task is polled, a run is awaited. If the connection is
//!    unusable, a new one is made. The end is an event as well.
//! 5. After `kill -9`, `shikiri host resume` loads the call, and `ResumePoint::resume_method` says
//!    where to continue.
//!
//! `docs/decisions/0011-host.md` explains why. Plans are in `plan_execution` and `plan_attempts`.

mod call_recorder;
mod call_records;
mod plan_attempts;
mod plan_execution;
mod plan_offers;
mod plan_texts;
mod sampling_model;
mod token_store;
mod tool_calls;
mod tool_changes;
mod user_interaction;

pub use call_records::open_calls;
pub use plan_execution::PlanObserver;
pub use plan_offers::ServerSurvey;
pub use plan_texts::TextGenerationError;
pub use sampling_model::{SamplingModel, SamplingRequest, SamplingResponse};
pub use token_store::SealedTokenStore;
pub use tool_calls::{CallFollowResult, NewToolCall};
pub use tool_changes::ChangedTool;
pub use user_interaction::{CallUpdate, SamplingConsent, UserInteraction};

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use shikiri_client::{ClientError, ClientOptions, ServerConnection, ServerToolList, TokenProvider};
use shikiri_executions::Executions;
use shikiri_model::host::ServerSpec;
use shikiri_model::ids::TenantId;
use shikiri_model::tool::ToolChange;
use shikiri_runtime::{AppError, Runtime, random};
use shikiri_tenancy::Tenancy;
use tokio::sync::Mutex;

/// How long a server may take to list its tools.
const LISTING: Duration = Duration::from_secs(20);

type ServerConnectionSlot = Arc<Mutex<Option<Arc<ServerConnection>>>>;

/// One process that calls servers.
pub struct Host {
    runtime: Runtime,
    tenancy: Tenancy,
    /// Provides the engine environment for sampling requests.
    executions: Executions,
    tenant: TenantId,
    servers: Vec<ServerSpec>,
    introduction: ClientOptions,
    /// Token providers by server name.
    authorities: HashMap<String, Arc<dyn TokenProvider>>,
    /// One connection per server, made when it is first needed.
    connections: Mutex<HashMap<String, ServerConnectionSlot>>,
    /// Whether the only server was given by its address.
    by_address: bool,
    /// Answers sampling requests with a model.
    sampling_model: Option<Arc<dyn SamplingModel>>,
    /// Distinguishes this process's request ids from those of another process in the same session.
    prefix: String,
    /// The number of connections so far. Each one numbers its requests from the start.
    connected: AtomicU64,
}

#[derive(Debug, thiserror::Error)]
pub enum HostError {
    #[error("there is no server {name:?}: known are {known}")]
    NoServer { name: String, known: String },
    #[error("{server} has no tool {tool:?}{}", hint(.near))]
    NoTool { server: String, tool: String, near: Option<String> },
    /// The user has not accepted the changed tool definition.
    #[error(
        "{server} changed what it says of its tool {tool}: look at the difference, and accept it with \
         `shikiri host tools {server} --accept`"
    )]
    Changed { server: String, tool: String },
    /// An error at a server.
    #[error("{server}: {error}")]
    Server { server: String, error: ClientError },
    /// Before anything was sent.
    #[error("{server} {tool}: cancelled before it was called")]
    Cancelled { server: String, tool: String },
    #[error("{0}")]
    Call(String),
    /// A plan names a server or tool that does not exist.
    #[error("{0}")]
    Plan(String),
    #[error(transparent)]
    App(#[from] AppError),
}

fn hint(near: &Option<String>) -> String {
    near.as_ref().map(|near| format!(": did you mean {near:?}?")).unwrap_or_default()
}

/// The tools of one server, or the error.
pub struct ServerListing {
    pub server: String,
    pub endpoint: String,
    pub offer: Result<(Arc<ServerConnection>, ServerToolList), ClientError>,
    /// How its tools differ from their pins.
    pub changes: Vec<ToolChange>,
}

impl Host {
    pub fn new(
        executions: Executions,
        tenant: TenantId,
        servers: Vec<ServerSpec>,
        introduction: ClientOptions,
    ) -> Result<Self, AppError> {
        let bytes: [u8; 6] = random()?;
        let prefix = hex::encode(bytes);
        let connections = Mutex::default();
        let by_address = false;
        let sampling_model = None;
        let authorities = HashMap::new();
        Ok(Self {
            runtime: executions.runtime().clone(),
            tenancy: executions.tenancy().clone(),
            executions,
            tenant,
            servers,
            introduction,
            authorities,
            connections,
            by_address,
            sampling_model,
            prefix,
            connected: AtomicU64::new(0),
        })
    }

    #[must_use]
    pub fn with_speaker(self, sampling_model: Arc<dyn SamplingModel>) -> Self {
        Self { sampling_model: Some(sampling_model), ..self }
    }

    /// Sets the token providers by server name.
    #[must_use]
    pub fn with_authorities(self, authorities: HashMap<String, Arc<dyn TokenProvider>>) -> Self {
        Self { authorities, ..self }
    }

    /// States that the only server was given by its address.
    pub fn by_address(self) -> Self {
        Self { by_address: true, ..self }
    }

    pub fn is_by_address(&self) -> bool {
        self.by_address
    }

    pub fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    pub fn servers(&self) -> &[ServerSpec] {
        &self.servers
    }

    /// The client options for one server, with only that server's token provider.
    pub(crate) fn introduction_to(&self, name: &str) -> ClientOptions {
        let authority = self.authorities.get(name).cloned();
        ClientOptions { authority, ..self.introduction.clone() }
    }

    pub(crate) fn spec(&self, name: &str) -> Result<&ServerSpec, HostError> {
        self.servers.iter().find(|spec| spec.name == name).ok_or_else(|| {
            let known: Vec<_> = self.servers.iter().map(|spec| spec.name.as_str()).collect();
            let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
            HostError::NoServer { name: name.to_owned(), known }
        })
    }

    /// The connection to a server. A new one is made if none is alive.
    pub async fn connect(&self, name: &str) -> Result<Arc<ServerConnection>, HostError> {
        let spec = self.spec(name)?;
        let slot = Arc::clone(self.connections.lock().await.entry(name.to_owned()).or_default());
        let mut slot = slot.lock().await;
        if let Some(server) = slot.as_ref().filter(|server| server.is_alive()) {
            return Ok(Arc::clone(server));
        }
        let introduction = self.introduction_to(name);
        let connected = ServerConnection::connect(spec, &introduction, &self.next_prefix()).await;
        let server = connected.map_err(|error| self.server_error(name, error))?;
        let server = Arc::new(server);
        *slot = Some(Arc::clone(&server));
        Ok(server)
    }

    /// The id prefix for one more connection, so that no two requests of a call share an id.
    pub(crate) fn next_prefix(&self) -> String {
        format!("{}.{}", self.prefix, self.connected.fetch_add(1, Ordering::Relaxed))
    }

    /// Forgets the connection, so that the next call makes a new one.
    pub(crate) async fn disconnect(&self, name: &str) {
        self.connections.lock().await.remove(name);
    }

    /// Lists the tools of all servers in parallel. An error is part of that server's listing.
    pub async fn list(&self) -> Vec<ServerListing> {
        let listing = self.servers.iter().map(|spec| async {
            let asking = async {
                let server = match self.connect(&spec.name).await {
                    Ok(server) => server,
                    Err(HostError::Server { error, .. }) => return Err(error),
                    Err(other) => return Err(ClientError::Unreachable(other.to_string())),
                };
                let offer = server.tools().await?;
                Ok((server, offer))
            };
            let mut offer = match tokio::time::timeout(LISTING, asking).await {
                Ok(offer) => offer,
                Err(_) => Err(ClientError::Slow(LISTING.as_secs())),
            };
            let compared = match &offer {
                Ok((_, offer)) => self.changes(&spec.name, &offer.tools).await,
                Err(_) => Ok(Vec::new()),
            };
            let changes = compared.unwrap_or_else(|error| {
                // Tools that cannot be compared are not offered.
                offer = Err(ClientError::Unreachable(error.to_string()));
                Vec::new()
            });
            ServerListing {
                server: spec.name.clone(),
                endpoint: spec.reach.endpoint(),
                offer,
                changes,
            }
        });
        join_all(listing).await
    }

    /// Closes all connections. Sessions with open calls are not ended.
    pub async fn close(&self) {
        let slots: Vec<_> = self.connections.lock().await.drain().map(|(_, slot)| slot).collect();
        let open = self.open_calls().await.unwrap_or_default();
        let open = &open;
        let closing = slots.iter().map(|slot| async move {
            // A locked slot is still connecting and has nothing to close.
            let server = slot.try_lock().ok().and_then(|mut slot| slot.take());
            let Some(server) = server else { return };
            let session = server.session();
            let is_needed = session.is_some()
                && open.iter().any(|call| call.value.bookmark.session.as_deref() == session);
            server.close(!is_needed).await;
        });
        join_all(closing).await;
    }

    fn server_error(&self, server: &str, error: ClientError) -> HostError {
        HostError::Server { server: server.to_owned(), error }
    }
}
