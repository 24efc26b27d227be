//! Our side as a client: connections to other people's MCP servers, calls that are kept while they
//! are made, and plans of such calls.

mod audience;
mod calls;
mod notebook;
mod plan_offers;
mod plan_texts;
mod plan_tries;
mod plans;
mod records;
mod speaker;
mod tool_changes;
mod vault;

pub use audience::{Audience, Consent, Shown};
pub use calls::{Called, NewCall};
pub use plan_offers::Survey;
pub use plan_texts::NoText;
pub use plans::PlanAudience;
pub use records::open_calls;
pub use speaker::{Speaker, Speech, Spoken};
pub use tool_changes::ChangedTool;
pub use vault::SealedVault;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use shikiri_client::{Authority, ClientError, Introduction, Offer, Server};
use shikiri_model::host::ServerSpec;
use shikiri_model::ids::TenantId;
use shikiri_model::tool::ToolChange;
use tokio::sync::Mutex;

use crate::app::{App, random};
use crate::error::AppError;

/// How long a server may take to list what it offers.
const LISTING: Duration = Duration::from_secs(20);

type Connection = Arc<Mutex<Option<Arc<Server>>>>;

/// One process that calls servers.
pub struct Host {
    app: App,
    tenant: TenantId,
    servers: Vec<ServerSpec>,
    introduction: Introduction,
    /// Who proves to a server who we are, by its name.
    authorities: HashMap<String, Arc<dyn Authority>>,
    /// One connection per server, made when it is first needed, by whoever needs it first.
    connections: Mutex<HashMap<String, Connection>>,
    /// Whether its one server was named by its address alone.
    by_address: bool,
    /// Who has models speak for servers that ask for it.
    speaker: Option<Arc<dyn Speaker>>,
    /// Tells this process's requests from those of another in the same session.
    prefix: String,
    /// Connections so far: each numbers its requests anew.
    connected: AtomicU64,
}

#[derive(Debug, thiserror::Error)]
pub enum HostError {
    #[error("there is no server {name:?}: known are {known}")]
    NoServer { name: String, known: String },
    #[error("{server} has no tool {tool:?}{}", hint(.near))]
    NoTool { server: String, tool: String, near: Option<String> },
    /// The person has not agreed to what the server says of the tool now.
    #[error(
        "{server} changed what it says of its tool {tool}: look at the difference, and accept it with \
         `shikiri host tools {server} --accept`"
    )]
    Changed { server: String, tool: String },
    /// What a server said or failed to say.
    #[error("{server}: {error}")]
    Server { server: String, error: ClientError },
    /// Before anything was sent.
    #[error("{server} {tool}: cancelled before it was called")]
    Cancelled { server: String, tool: String },
    #[error("{0}")]
    Call(String),
    /// A plan names what there is not.
    #[error("{0}")]
    Plan(String),
    #[error(transparent)]
    App(#[from] AppError),
}

fn hint(near: &Option<String>) -> String {
    near.as_ref().map(|near| format!(": did you mean {near:?}?")).unwrap_or_default()
}

/// What one server has to offer, or why it cannot be said.
pub struct Listed {
    pub server: String,
    pub endpoint: String,
    pub offer: Result<(Arc<Server>, Offer), ClientError>,
    /// How its tools differ from what is known of them.
    pub changes: Vec<ToolChange>,
}

impl Host {
    pub fn new(
        app: App,
        tenant: TenantId,
        servers: Vec<ServerSpec>,
        introduction: Introduction,
    ) -> Result<Self, AppError> {
        let bytes: [u8; 6] = random()?;
        let prefix = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let connections = Mutex::default();
        let by_address = false;
        let speaker = None;
        let authorities = HashMap::new();
        Ok(Self {
            app,
            tenant,
            servers,
            introduction,
            authorities,
            connections,
            by_address,
            speaker,
            prefix,
            connected: AtomicU64::new(0),
        })
    }

    #[must_use]
    pub fn with_speaker(self, speaker: Arc<dyn Speaker>) -> Self {
        Self { speaker: Some(speaker), ..self }
    }

    /// With who proves to each server who we are.
    #[must_use]
    pub fn with_authorities(self, authorities: HashMap<String, Arc<dyn Authority>>) -> Self {
        Self { authorities, ..self }
    }

    /// Its one server was named by its address, so any name means it.
    pub fn by_address(self) -> Self {
        Self { by_address: true, ..self }
    }

    pub fn is_by_address(&self) -> bool {
        self.by_address
    }

    pub fn app(&self) -> &App {
        &self.app
    }

    pub fn servers(&self) -> &[ServerSpec] {
        &self.servers
    }

    /// What proves to one server who we are is nothing to another.
    pub(crate) fn introduction_to(&self, name: &str) -> Introduction {
        let authority = self.authorities.get(name).cloned();
        Introduction { authority, ..self.introduction.clone() }
    }

    pub(crate) fn spec(&self, name: &str) -> Result<&ServerSpec, HostError> {
        self.servers.iter().find(|spec| spec.name == name).ok_or_else(|| {
            let known: Vec<_> = self.servers.iter().map(|spec| spec.name.as_str()).collect();
            let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
            HostError::NoServer { name: name.to_owned(), known }
        })
    }

    /// The connection to a server, made if there is none that lives.
    pub async fn connect(&self, name: &str) -> Result<Arc<Server>, HostError> {
        let spec = self.spec(name)?;
        let place = Arc::clone(self.connections.lock().await.entry(name.to_owned()).or_default());
        let mut place = place.lock().await;
        if let Some(server) = place.as_ref().filter(|server| server.is_alive()) {
            return Ok(Arc::clone(server));
        }
        let introduction = self.introduction_to(name);
        let connected = Server::connect(spec, &introduction, &self.next_prefix()).await;
        let server = connected.map_err(|error| self.told(name, error))?;
        let server = Arc::new(server);
        *place = Some(Arc::clone(&server));
        Ok(server)
    }

    /// For the requests of one more connection: no two of one call have the same id.
    pub(crate) fn next_prefix(&self) -> String {
        format!("{}.{}", self.prefix, self.connected.fetch_add(1, Ordering::Relaxed))
    }

    /// The next call makes a new connection.
    pub(crate) async fn disconnect(&self, name: &str) {
        self.connections.lock().await.remove(name);
    }

    /// What every server offers, all asked at once. One that fails is told beside the others.
    pub async fn list(&self) -> Vec<Listed> {
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
                // What cannot be compared is not offered.
                offer = Err(ClientError::Unreachable(error.to_string()));
                Vec::new()
            });
            Listed { server: spec.name.clone(), endpoint: spec.reach.endpoint(), offer, changes }
        });
        join_all(listing).await
    }

    /// Leaves every server. Sessions that open calls belong to are not ended.
    pub async fn close(&self) {
        let places: Vec<_> =
            self.connections.lock().await.drain().map(|(_, place)| place).collect();
        let open = self.open_calls().await.unwrap_or_default();
        let open = &open;
        let closing = places.iter().map(|place| async move {
            // Who is still connecting has nothing to close.
            let server = place.try_lock().ok().and_then(|mut place| place.take());
            let Some(server) = server else { return };
            let session = server.session();
            let is_needed = session.is_some()
                && open.iter().any(|call| call.value.bookmark.session.as_deref() == session);
            server.close(!is_needed).await;
        });
        join_all(closing).await;
    }

    fn told(&self, server: &str, error: ClientError) -> HostError {
        HostError::Server { server: server.to_owned(), error }
    }
}
