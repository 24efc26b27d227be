//! Calls that their clients may cancel by id, with `notifications/cancelled`.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use serde_json::Value;
use shikiri_model::ids::ConnectionId;
use tokio_util::sync::CancellationToken;

use super::{McpEndpoint, lock};

/// The calls that this node is answering, by connection and id.
#[derive(Default)]
pub(super) struct OpenCalls(Mutex<HashMap<OpenCallKey, CancellationToken>>);

type OpenCallKey = (ConnectionId, String);

fn name(connection: &ConnectionId, id: &Value) -> OpenCallKey {
    (connection.clone(), id.to_string())
}

impl OpenCalls {
    /// Does nothing for a call that was answered, or that another node answers.
    pub(super) fn cancel_call(&self, connection: &ConnectionId, id: &Value) {
        if let Some(call) = lock(&self.0).get(&name(connection, id)) {
            call.cancel();
        }
    }
}

/// A call that is being answered; over when dropped.
pub(super) struct OpenCall {
    endpoint: Arc<McpEndpoint>,
    name: OpenCallKey,
    cancel_token: CancellationToken,
}

impl OpenCall {
    pub(super) fn begin(
        endpoint: &Arc<McpEndpoint>,
        connection: &ConnectionId,
        id: &Value,
    ) -> Self {
        let name = name(connection, id);
        let cancel_token = endpoint.gate.draining().child_token();
        lock(&endpoint.open_calls.0).insert(name.clone(), cancel_token.clone());
        Self { endpoint: Arc::clone(endpoint), name, cancel_token }
    }

    /// Cancelled when the client cancels the call, and when the process drains.
    pub(super) fn cancel_token(&self) -> &CancellationToken {
        &self.cancel_token
    }
}

impl Drop for OpenCall {
    fn drop(&mut self) {
        lock(&self.endpoint.open_calls.0).remove(&self.name);
    }
}
