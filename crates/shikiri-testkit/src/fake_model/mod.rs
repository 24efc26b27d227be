//! A fake model API on loopback: tests run the real Claude Code against it and decide what "the
//! model" says.
//!
//! A script belongs to words that the user says. A request is answered by the script whose words
//! came last in its conversation. The number of assistant messages since then selects the reply. So
//! one model serves many conversations and subagents at once, in any order, and a repeated request
//! gets the same reply. `answer` handles everything else: it is asked first and sees the whole
//! request.

mod bedrock;
mod reply;
mod request;
mod server;
mod signature;
mod spent;
#[cfg(test)]
mod tests;
mod wire;

use std::fmt;
use std::net::SocketAddr;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use tokio::task::JoinHandle;

pub use reply::{Gate, Reply, Usage};
pub use request::{ModelRequest, ToolResult};
pub use spent::Spent;

use crate::kept::Kept;

/// A running fake. Stops when dropped.
#[derive(Debug)]
pub struct FakeModel {
    shared: Arc<Shared>,
    address: SocketAddr,
    server: JoinHandle<()>,
}

/// State that the test and the server share.
#[derive(Debug)]
struct Shared {
    rules: Mutex<Rules>,
    requests: Kept<ModelRequest>,
    unscripted: Kept<ModelRequest>,
    answered: AtomicUsize,
    spent: spent::Book,
    keys: OnceLock<signature::Keys>,
}

type Answer = Box<dyn Fn(&ModelRequest) -> Option<Reply> + Send>;

#[derive(Default)]
struct Rules {
    answers: Vec<Answer>,
    scripts: Vec<(String, Vec<Reply>)>,
}

impl FakeModel {
    pub async fn start() -> Self {
        let shared = Arc::new(Shared {
            rules: Mutex::default(),
            requests: Kept::new(),
            unscripted: Kept::new(),
            answered: AtomicUsize::new(0),
            spent: spent::Book::default(),
            keys: OnceLock::new(),
        });
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("its address");
        let router = server::router(Arc::clone(&shared));
        let server = tokio::spawn(async move {
            let _ = axum::serve(listener, router).await;
        });
        Self { shared, address, server }
    }

    /// The URL for `ANTHROPIC_BASE_URL` or `ANTHROPIC_BEDROCK_BASE_URL`.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// From now on, requests to Bedrock must be signed with these keys.
    pub fn require_keys(&self, id: &str, secret: &str) {
        let keys = signature::Keys { id: id.to_owned(), secret: secret.to_owned() };
        let _ = self.shared.keys.set(keys);
    }

    /// Sets the successive replies to a user who says `words`.
    pub fn script(&self, words: &str, replies: impl IntoIterator<Item = Reply>) {
        let script = (words.to_owned(), replies.into_iter().collect());
        self.shared.rules.lock().unwrap_or_else(PoisonError::into_inner).scripts.push(script);
    }

    /// Sets a rule that looks at the whole request. None leaves the request to the next rule.
    pub fn answer(&self, answer: impl Fn(&ModelRequest) -> Option<Reply> + Send + 'static) {
        let mut rules = self.shared.rules.lock().unwrap_or_else(PoisonError::into_inner);
        rules.answers.push(Box::new(answer));
    }

    /// All requests so far, in the order of arrival.
    pub fn requests(&self) -> Vec<ModelRequest> {
        self.shared.requests.all()
    }

    /// Requests for a message.
    pub fn messages(&self) -> Vec<ModelRequest> {
        self.requests().into_iter().filter(ModelRequest::is_message).collect()
    }

    /// Requests for a message that no rule answered. They got a plain text.
    pub fn unscripted(&self) -> Vec<ModelRequest> {
        self.shared.unscripted.all()
    }

    /// The reported tokens, message by message: the bill, by the API's own count.
    pub fn spent(&self) -> Vec<Spent> {
        self.shared.spent.all()
    }

    /// Waits for a request; fails the test after `patience`.
    pub async fn asked(
        &self,
        patience: Duration,
        wanted: impl Fn(&ModelRequest) -> bool,
    ) -> ModelRequest {
        let first = |requests: &[ModelRequest]| requests.iter().find(|r| wanted(r)).cloned();
        match self.shared.requests.find(patience, first).await {
            Some(request) => request,
            None => panic!("not asked within {patience:?}: {:#?}", self.requests()),
        }
    }
}

impl Drop for FakeModel {
    fn drop(&mut self) {
        self.server.abort();
    }
}

impl Rules {
    fn reply(&self, request: &ModelRequest) -> Option<Reply> {
        if let Some(reply) = self.answers.iter().find_map(|answer| answer(request)) {
            return Some(reply);
        }
        let mut latest = None;
        for (words, replies) in &self.scripts {
            let said = request.said_at(words);
            // If one message has the words of two scripts, the first script wins.
            if said > latest.map(|(position, _)| position) {
                latest = said.map(|position| (position, replies));
            }
        }
        let (position, replies) = latest?;
        replies.get(request.turns_since(position)).cloned()
    }
}

impl fmt::Debug for Rules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rules").field("scripts", &self.scripts).finish_non_exhaustive()
    }
}
