//! Calls that their clients may give up by name, with `notifications/cancelled`.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use serde_json::Value;
use shikiri_model::ids::ConnectionId;
use tokio_util::sync::CancellationToken;

use super::{Door, lock};

/// Those that this node is answering, by connection and id.
#[derive(Default)]
pub(super) struct OpenCalls(Mutex<HashMap<Name, CancellationToken>>);

type Name = (ConnectionId, String);

fn name(connection: &ConnectionId, id: &Value) -> Name {
    (connection.clone(), id.to_string())
}

impl OpenCalls {
    /// What has been answered, or is answered by another node, is not here.
    pub(super) fn give_up(&self, connection: &ConnectionId, id: &Value) {
        if let Some(call) = lock(&self.0).get(&name(connection, id)) {
            call.cancel();
        }
    }
}

/// A call that is being answered; over when dropped.
pub(super) struct OpenCall {
    door: Arc<Door>,
    name: Name,
    given_up: CancellationToken,
}

impl OpenCall {
    pub(super) fn begin(door: &Arc<Door>, connection: &ConnectionId, id: &Value) -> Self {
        let name = name(connection, id);
        let given_up = door.gate.draining().child_token();
        lock(&door.open_calls.0).insert(name.clone(), given_up.clone());
        Self { door: Arc::clone(door), name, given_up }
    }

    /// Cancelled when the client gives the call up, and when the process drains.
    pub(super) fn given_up(&self) -> &CancellationToken {
        &self.given_up
    }
}

impl Drop for OpenCall {
    fn drop(&mut self) {
        lock(&self.door.open_calls.0).remove(&self.name);
    }
}
