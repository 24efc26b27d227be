//! Whether a server answers for this store, and where. Servers write their addresses into the store;
//! where none is known, the configured address tells whether somebody else's server is there.

use std::net::SocketAddr;
use std::time::Duration;

use hyper::{Method, StatusCode};
use serde::Serialize;
use shikiri_app::App;
use shikiri_model::ids::NodeId;
use shikiri_model::run::NodeProcess;
use shikiri_runtime::run::{NodeState, NodeView};

use crate::client::{Client, reachable};
use crate::config::Config;
use crate::exit::Failure;

/// A server on this machine answers within some milliseconds.
const PATIENCE: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(in crate::cli) enum ServerState {
    Running,
    /// It holds its lease and does not answer.
    NotAnswering,
    /// Its process has gone, or its lease has run out.
    Killed,
    /// The configured address belongs to a server of another store.
    OtherProject,
    /// Something that is not Shikiri has the configured address.
    OtherProgram,
    None,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(in crate::cli) struct ServerFinding {
    pub(in crate::cli) state: ServerState,
    pub(super) url: Option<String>,
    pub(super) version: Option<String>,
    pub(super) node_id: Option<NodeId>,
}

/// What answers at an address.
enum Answerer {
    Shikiri,
    Other,
    Nothing,
}

impl ServerFinding {
    /// The address of a server of the store that answers on this machine.
    pub(in crate::cli) async fn answering(app: &App) -> Result<Option<String>, Failure> {
        let nodes = app.runtime.list_nodes().await?;
        let is_server = |node: &&NodeView| node.node.process == NodeProcess::Server;
        for node in nodes.iter().filter(is_server) {
            if node.state == NodeState::Alive && !is_elsewhere(node) && answers(node).await {
                return Ok(Self::of(ServerState::Running, node).url);
            }
        }
        Ok(None)
    }

    pub(in crate::cli) async fn look(config: &Config, servers: &[&NodeView]) -> Self {
        let alive: Vec<_> = servers.iter().filter(|node| node.state == NodeState::Alive).collect();
        for node in &alive {
            if is_elsewhere(node) || answers(node).await {
                return Self::of(ServerState::Running, node);
            }
        }
        if let Some(node) = alive.first() {
            return Self::of(ServerState::NotAnswering, node);
        }
        let url = Some(format!("http://{}", reachable(config.listen)));
        let (version, node_id) = (None, None);
        match who_answers(config.listen).await {
            Answerer::Shikiri => Self { state: ServerState::OtherProject, url, version, node_id },
            Answerer::Other => Self { state: ServerState::OtherProgram, url, version, node_id },
            Answerer::Nothing => match servers.first() {
                Some(node) => Self::of(ServerState::Killed, node),
                None => Self { state: ServerState::None, url: None, version, node_id },
            },
        }
    }

    fn of(state: ServerState, node: &NodeView) -> Self {
        Self {
            state,
            url: address(node).map(|address| format!("http://{address}")),
            version: Some(node.node.version.clone()),
            node_id: Some(node.node.id.clone()),
        }
    }
}

fn address(node: &NodeView) -> Option<SocketAddr> {
    node.node.address.as_ref()?.parse().ok().map(reachable)
}

/// The address of another machine's server says nothing here.
fn is_elsewhere(node: &NodeView) -> bool {
    rustix::system::uname().nodename().to_string_lossy() != node.node.host
}

async fn answers(node: &NodeView) -> bool {
    match address(node) {
        Some(address) => matches!(who_answers(address).await, Answerer::Shikiri),
        None => false,
    }
}

async fn who_answers(address: SocketAddr) -> Answerer {
    let client = Client::new(address, String::new());
    let asked = tokio::time::timeout(PATIENCE, client.request(Method::GET, "/healthz", None));
    match asked.await {
        Ok(Ok((StatusCode::OK, body))) if body["status"] == "ok" => Answerer::Shikiri,
        Ok(Ok(_)) => Answerer::Other,
        Ok(Err(_)) | Err(_) => Answerer::Nothing,
    }
}
