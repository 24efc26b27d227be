//! Routes the messages of a connection that several calls share.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::Value;
use tokio::sync::mpsc;

use crate::error::ClientError;
use crate::rpc_messages::{ServerMessage, key};

/// What an exchange receives on a shared connection.
#[derive(Debug)]
pub(crate) enum RoutedMessage {
    Message(ServerMessage),
    /// The connection is closed.
    Gone(ClientError),
}

/// Capacity of an inbox. A server that sends more has to wait.
const CAPACITY: usize = 1_024;

#[derive(Default)]
pub(crate) struct MessageRouter {
    state: Mutex<RouterState>,
}

#[derive(Default)]
struct RouterState {
    /// By number: the first is the oldest.
    waiting: BTreeMap<u64, RouteEntry>,
    next: u64,
    gone: Option<ClientError>,
}

struct RouteEntry {
    id: String,
    to: mpsc::Sender<RoutedMessage>,
}

/// A subscription for one request. Dropping it ends it.
pub(crate) struct RouterSubscription {
    router: Arc<MessageRouter>,
    number: u64,
    inbox: mpsc::Receiver<RoutedMessage>,
}

impl MessageRouter {
    fn state(&self) -> MutexGuard<'_, RouterState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Subscribes to the messages of the request with this id.
    pub(crate) fn subscribe(self: &Arc<Self>, id: &str) -> Result<RouterSubscription, ClientError> {
        let (to, inbox) = mpsc::channel(CAPACITY);
        let mut state = self.state();
        if let Some(why) = &state.gone {
            return Err(why.clone());
        }
        let number = state.next;
        state.next += 1;
        state.waiting.insert(number, RouteEntry { id: id.to_owned(), to });
        drop(state);
        Ok(RouterSubscription { router: Arc::clone(self), number, inbox })
    }

    /// Passes a message to its exchange. False if it belongs to none.
    pub(crate) async fn dispatch(&self, message: ServerMessage) -> bool {
        let to = {
            let state = self.state();
            let of = |id: &str| state.waiting.values().find(|waiting| waiting.id == id);
            let found = match &message {
                ServerMessage::Answer { id, .. } => of(id),
                ServerMessage::Notice { method, params } if method == "notifications/progress" => {
                    params.get("progressToken").and_then(key).and_then(|token| of(&token))
                }
                // The message names no request: it goes to the oldest one.
                _ => state.waiting.values().next(),
            };
            found.map(|waiting| waiting.to.clone())
        };
        match to {
            Some(to) => to.send(RoutedMessage::Message(message)).await.is_ok(),
            None => false,
        }
    }

    /// Tells all exchanges that the connection is closed.
    pub(crate) fn close(&self, why: &ClientError) {
        let mut state = self.state();
        state.gone.get_or_insert_with(|| why.clone());
        for waiting in state.waiting.values() {
            // The owner of a full inbox reads it first, and then finds it closed.
            let _ = waiting.to.try_send(RoutedMessage::Gone(why.clone()));
        }
        state.waiting.clear();
    }

    pub(crate) fn closed_reason(&self) -> Option<ClientError> {
        self.state().gone.clone()
    }
}

impl RouterSubscription {
    pub(crate) async fn next(&mut self) -> RoutedMessage {
        match self.inbox.recv().await {
            Some(inbound) => inbound,
            None => {
                let gone = self.router.closed_reason();
                RoutedMessage::Gone(
                    gone.unwrap_or_else(|| ClientError::Cut("it was closed".to_owned())),
                )
            }
        }
    }
}

impl Drop for RouterSubscription {
    fn drop(&mut self) {
        self.router.state().waiting.remove(&self.number);
    }
}

/// The progress token of a request: its own id.
pub(crate) fn progress_token(id: &str) -> Value {
    Value::String(id.to_owned())
}
