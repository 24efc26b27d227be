//! Who gets what: messages that come on a line which several calls share.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::Value;
use tokio::sync::mpsc;

use crate::error::ClientError;
use crate::wire::{Message, key};

/// What reaches an exchange on a shared line.
#[derive(Debug)]
pub(crate) enum Inbound {
    Message(Message),
    /// The line is gone, with everything on it.
    Gone(ClientError),
}

/// Enough for any burst; a server that floods us beyond it waits.
const ROOM: usize = 1_024;

#[derive(Default)]
pub(crate) struct Router {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// In the order of their numbers: the first is the oldest.
    waiting: BTreeMap<u64, Waiting>,
    next: u64,
    gone: Option<ClientError>,
}

struct Waiting {
    id: String,
    to: mpsc::Sender<Inbound>,
}

/// A place at the router, given up when it is dropped.
pub(crate) struct Place {
    router: Arc<Router>,
    number: u64,
    inbox: mpsc::Receiver<Inbound>,
}

impl Router {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for what belongs to the request with this id.
    pub(crate) fn wait(self: &Arc<Self>, id: &str) -> Result<Place, ClientError> {
        let (to, inbox) = mpsc::channel(ROOM);
        let mut state = self.state();
        if let Some(why) = &state.gone {
            return Err(why.clone());
        }
        let number = state.next;
        state.next += 1;
        state.waiting.insert(number, Waiting { id: id.to_owned(), to });
        drop(state);
        Ok(Place { router: Arc::clone(self), number, inbox })
    }

    /// Hands a message on. False if nobody wants it.
    pub(crate) async fn hand(&self, message: Message) -> bool {
        let to = {
            let state = self.state();
            let of = |id: &str| state.waiting.values().find(|waiting| waiting.id == id);
            let found = match &message {
                Message::Answer { id, .. } => of(id),
                Message::Notice { method, params } if method == "notifications/progress" => {
                    params.get("progressToken").and_then(key).and_then(|token| of(&token))
                }
                // It does not say whose it is: the one that has waited longest.
                _ => state.waiting.values().next(),
            };
            found.map(|waiting| waiting.to.clone())
        };
        match to {
            Some(to) => to.send(Inbound::Message(message)).await.is_ok(),
            None => false,
        }
    }

    /// Tells everybody that nothing comes any more.
    pub(crate) fn close(&self, why: &ClientError) {
        let mut state = self.state();
        state.gone.get_or_insert_with(|| why.clone());
        for waiting in state.waiting.values() {
            // A full inbox is emptied first, and then found closed.
            let _ = waiting.to.try_send(Inbound::Gone(why.clone()));
        }
        state.waiting.clear();
    }

    pub(crate) fn gone(&self) -> Option<ClientError> {
        self.state().gone.clone()
    }
}

impl Place {
    pub(crate) async fn next(&mut self) -> Inbound {
        match self.inbox.recv().await {
            Some(inbound) => inbound,
            None => {
                let gone = self.router.gone();
                Inbound::Gone(gone.unwrap_or_else(|| ClientError::Cut("it was closed".to_owned())))
            }
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.router.state().waiting.remove(&self.number);
    }
}

/// The token under which a request wants its progress: its own id.
pub(crate) fn progress_token(id: &str) -> Value {
    Value::String(id.to_owned())
}
