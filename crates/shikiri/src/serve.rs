//! The server: a node that executes runs, with the REST API and the MCP endpoint, in one process.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper::Method;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::json;
use shikiri_app::App;
use shikiri_mcp::McpService;
use shikiri_model::run::NodeProcess;
use shikiri_runtime::run::{NodePlace, WorkerNode};
use shikiri_teams::Coordinator;
use shikiri_tenancy::gate::{AccessGate, GateOptions};
use shikiri_web::{BindError, WebOptions, WebServer};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::client::{Client, reachable};
use crate::config::{Config, Durability};
use crate::exit::{Exit, Failure};
use crate::lane_files;
use crate::output::Output;
use crate::signals::Signals;
use crate::store_url::StoreUrl;
use crate::wiring::{self, Access, Offer};

/// Each of thousands of streams needs an open file.
const WANTED_FILES: u64 = 65_536;

/// A server that is up.
pub struct Running {
    address: SocketAddr,
    app: App,
    mcp: Arc<McpService>,
    node: WorkerNode,
    coordinator: Coordinator,
    drain: CancellationToken,
    server: JoinHandle<std::io::Result<()>>,
}

/// How long a program that has our port may take to say what it is.
const ANSWER_WAIT: Duration = Duration::from_secs(1);
/// How long the start waits to become a node. An unavailable store is connected later.
const JOIN_WAIT: Duration = Duration::from_secs(5);

impl Running {
    /// Opens the store, binds the address and starts to execute runs. When this returns, the server
    /// answers.
    pub async fn start(config: &Config, offer: Offer) -> Result<Self, Failure> {
        let options = web_options(config);
        // First, because a failure here has changed nothing.
        let listener = match shikiri_web::bind(&options).await {
            Ok(listener) => listener,
            Err(error) => return Err(not_bound(error).await),
        };
        let address = listener.local_addr().map_err(|error| Failure::told(Exit::Failed, error))?;
        let app = wiring::open_app(config, &offer, Access::Write).await?;
        wiring::ensure_sealed(&app).await?;
        // A bill that cannot be read fails the reports that need it, not the server.
        if let Err(error) = app.tenancy.total_old_bills().await {
            tracing::error!(%error, "bills from before are not in the totals");
        }
        wiring::ensure_admin_key(&app, config).await?;
        lane_files::take_in(&app, config).await;
        // Before other programs are started, which would share this process's cgroup.
        app.executions.confinement().await;
        let place = NodePlace { process: NodeProcess::Server, address: Some(address) };
        let node = app.start_worker_at(place);
        // A client may request an execution as soon as the line `listening on` is printed.
        let _ = tokio::time::timeout(JOIN_WAIT, node.joined()).await;
        let drain = CancellationToken::new();
        // One gate for REST and MCP, so that their requests count together.
        let gate = AccessGate::new(app.tenancy.clone(), gate_options(config));
        let mcp = McpService::new(app.clone(), offer.extras, offer.mcp);
        let mcp_routes = shikiri_mcp::router(Arc::clone(&mcp), Arc::clone(&gate));
        let server = WebServer::new(app.clone(), gate, options).mount(mcp_routes);
        let server = tokio::spawn(server.serve(listener, drain.clone()));
        // The agents that it starts connect back to this process.
        let own = reachable(address);
        let coordinator = Coordinator::start(app.teams.clone(), format!("http://{own}/mcp"));
        Ok(Self { address, app, mcp, node, coordinator, drain, server })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn app(&self) -> &App {
        &self.app
    }

    pub fn mcp(&self) -> &Arc<McpService> {
        &self.mcp
    }

    /// Resolves if the server ends unexpectedly.
    pub async fn ended(&mut self) -> Failure {
        let why = match (&mut self.server).await {
            Ok(Ok(())) => "it stopped".to_owned(),
            Ok(Err(error)) => error.to_string(),
            Err(error) => error.to_string(),
        };
        Failure::new(Exit::Failed, format!("the server ended ({why})"), "start it again")
    }

    /// Becomes unready at once, ends streams so that they can be resumed, and hands runs back.
    pub async fn drain(self) -> Result<(), Failure> {
        self.drain.cancel();
        let (server, (), ()) =
            tokio::join!(self.server, self.node.leave(), self.coordinator.leave());
        let served = server.map_err(|error| Failure::told(Exit::Failed, error))?;
        served.map_err(|error| Failure::told(Exit::Failed, error))
    }
}

/// Serves until a signal arrives (or, if wanted, stdin closes), then drains. A second signal ends
/// it at once.
pub async fn run(config: &Config, offer: Offer, stop_with_stdin: bool) -> Result<(), Failure> {
    let mut signals = Signals::catch()?;
    raise_file_limit();
    let mut running = tokio::select! {
        started = Running::start(config, offer) => started?,
        signal = signals.next() => return Err(Failure::Stopped(signal)),
    };
    announce(config, running.address());
    tokio::select! {
        signal = signals.next() => tracing::info!(signal, "draining"),
        () = stdin_end(), if stop_with_stdin => tracing::info!("stdin ended; draining"),
        failure = running.ended() => return Err(failure),
    }
    tokio::select! {
        drained = running.drain() => drained?,
        signal = signals.next() => {
            // Exits at once: a destructor might wait for the same thing as the drain.
            std::process::exit(i32::from(Failure::Stopped(signal).code()));
        }
    }
    tracing::info!("stopped");
    Ok(())
}

fn announce(config: &Config, address: SocketAddr) {
    let durability = match (&config.store, config.durability) {
        (StoreUrl::Postgres(_), _) => "PostgreSQL's own, never off",
        (StoreUrl::Sqlite(_), Durability::Full) => "full: commits survive a power cut",
        (StoreUrl::Sqlite(_), Durability::Normal) => "normal: commits survive a crash",
    };
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        store = %config.store,
        durability,
        node_lease_seconds = config.runtime.node_lease.as_secs_f64(),
        retention_days = config.runtime.retention.as_secs_f64() / 86_400.0,
        "serving on http://{address}"
    );
    // Stdout may have no reader; the server continues.
    let _ = Output::stdout().line(&format!("listening on http://{address}"));
}

fn gate_options(config: &Config) -> GateOptions {
    let defaults = GateOptions::default();
    GateOptions { max_streams: config.max_streams.unwrap_or(defaults.max_streams), ..defaults }
}

fn web_options(config: &Config) -> WebOptions {
    let defaults = WebOptions::default();
    WebOptions {
        listen: config.listen,
        allow_remote: config.allow_remote,
        allowed_hosts: config.allowed_hosts.clone(),
        max_connections: config.max_connections.unwrap_or(defaults.max_connections),
        metrics_public: config.metrics_public,
    }
}

async fn not_bound(error: BindError) -> Failure {
    match error {
        BindError::InUse(address) if is_shikiri(address).await => {
            let what = format!("{address} is in use: a Shikiri server listens there already");
            let next = "use that one, or for another project choose another port with --listen";
            Failure::new(Exit::Unavailable, what, next)
        }
        BindError::NotLoopback(_) | BindError::Denied(_) => Failure::told(Exit::Refused, error),
        BindError::InUse(_) | BindError::NotOurs(_) => Failure::told(Exit::Unavailable, error),
        BindError::Other { .. } => {
            Failure::new(Exit::Unavailable, error, "choose another address with --listen")
        }
    }
}

/// Whether the program that listens there is a Shikiri server. No key is sent to it.
async fn is_shikiri(address: SocketAddr) -> bool {
    let client = Client::new(address, String::new());
    let asked = client.request(Method::GET, "/healthz", None);
    let answer = tokio::time::timeout(ANSWER_WAIT, asked).await;
    matches!(answer, Ok(Ok((_, health))) if health == json!({ "status": "ok" }))
}

/// Each stream needs a file descriptor, and the usual soft limit is 1,024.
fn raise_file_limit() {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let wanted = maximum.map_or(WANTED_FILES, |maximum| maximum.min(WANTED_FILES));
    if current.is_some_and(|current| current < wanted) {
        let raised = Rlimit { current: Some(wanted), maximum };
        if let Err(error) = setrlimit(Resource::Nofile, raised) {
            tracing::warn!(%error, "cannot raise the limit of open files");
        }
    }
}

/// Resolves when our stdin is closed: the parent process closed it or ended.
pub(crate) async fn stdin_end() {
    let (ended, end) = tokio::sync::oneshot::channel();
    // On its own thread: a runtime would wait for a blocked read at shutdown.
    let spawned = std::thread::Builder::new().name("shikiri-stdin".to_owned()).spawn(move || {
        let _ = std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink());
        let _ = ended.send(());
    });
    match spawned {
        Ok(_) => drop(end.await),
        Err(error) => {
            tracing::warn!(%error, "cannot watch stdin");
            std::future::pending().await
        }
    }
}
