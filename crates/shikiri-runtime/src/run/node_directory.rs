//! The nodes of a store: which processes they are, where they answer, and whether they live.

use shikiri_model::ids::{NodeId, TenantId};
use shikiri_model::record::{Document, RecordChange, RecordQuery, StoredDocument};
use shikiri_model::run::NodeRecord;
use shikiri_model::time::Timestamp;
use shikiri_store::{Commit, CommitError, StoreExt};

use super::run_handler::NodePlace;
use crate::error::AppError;
use crate::runtime::Runtime;

/// More nodes than a store ever has at once.
const MOST_NODES: u32 = 100;

/// A node as others see it.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeView {
    pub node: NodeRecord,
    pub state: NodeState,
    pub started_at: Timestamp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeState {
    Alive,
    /// Its lease has expired or its process is gone. Its runs wait for another node.
    Gone,
}

impl Runtime {
    /// The nodes of this store, newest first, with those that died and that no other node has swept
    /// yet.
    pub async fn list_nodes(&self) -> Result<Vec<NodeView>, AppError> {
        let query = RecordQuery {
            newest_first: true,
            limit: MOST_NODES,
            ..RecordQuery::of::<NodeRecord>(&TenantId::system())
        };
        let mut nodes = Vec::new();
        for StoredDocument { value: node, created_at: started_at, .. } in
            self.list_records::<NodeRecord>(query).await?.0
        {
            let state = match self.is_node_gone(&node.id).await? {
                true => NodeState::Gone,
                false => NodeState::Alive,
            };
            nodes.push(NodeView { node, state, started_at });
        }
        Ok(nodes)
    }
}

/// The record of this process as a node.
pub(super) fn describe_node(id: &NodeId, place: &NodePlace) -> NodeRecord {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    NodeRecord {
        id: id.clone(),
        process: place.process,
        address: place.address.map(|address| address.to_string()),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        host,
        pid: std::process::id(),
    }
}

/// Deletes the record of a node that is gone. One of an earlier version has none.
pub(super) async fn delete_node_record(runtime: &Runtime, node: &NodeId) -> Result<(), AppError> {
    let found = runtime.store.load::<NodeRecord>(&TenantId::system(), node.as_str()).await?;
    let Some(stored) = found else { return Ok(()) };
    let delete = RecordChange::Delete { key: stored.value.key(), version: stored.version };
    match runtime.store.commit(Commit::new().record(delete)).await {
        // Another node was faster.
        Ok(_) | Err(CommitError::Conflict(_)) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
