//! An MCP server on loopback that wants its callers to log in, and the authorization server where
//! they do. It checks what it is sent as a strict one would, and counts what happened; a test makes
//! it lie.

mod server;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use reqwest::Method;
use tokio::task::JoinHandle;

use crate::client::Client;

/// A running fake. It ends when dropped.
#[derive(Debug)]
pub struct FakeLogin {
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

#[derive(Debug)]
struct Shared {
    address: SocketAddr,
    book: Mutex<Book>,
}

/// What a test may change, and what has happened.
#[derive(Debug)]
pub struct Book {
    /// Who gives tokens for the MCP server, if not this fake.
    pub issuer: Option<String>,
    /// Sent back as `iss` instead of the truth; an empty one is left out.
    pub told_issuer: Option<String>,
    /// Sent back as `state` instead of the truth.
    pub told_state: Option<String>,
    /// Seconds that an access token is good for.
    pub lifetime: u64,
    /// A scope that calls of tools need, beyond the one that everything needs.
    pub wider: Option<String>,
    /// No token is good for its MCP server.
    pub refuses_all: bool,
    /// What was asked of the authorization server, in order: register, authorize, a grant's type.
    pub asked: Vec<String>,
    /// The scopes that were asked for at each login.
    pub scopes: Vec<String>,
    /// Ids of clients that came here, known or not.
    pub clients: BTreeSet<String>,
    /// What was wrong with requests.
    pub faults: Vec<String>,
    /// Access tokens that are good, with their scopes.
    access: BTreeMap<String, String>,
    /// Refresh tokens that are good, with their client and scopes.
    refresh: BTreeMap<String, (String, String)>,
    codes: BTreeMap<String, Login>,
    /// Registered clients, their secrets and their redirect addresses.
    registered: BTreeMap<String, (String, String)>,
    drawn: Vec<String>,
    port: u16,
}

#[derive(Debug)]
struct Login {
    client: String,
    redirect: String,
    challenge: String,
    scope: String,
}

impl Book {
    fn new(port: u16) -> Self {
        Self {
            issuer: None,
            told_issuer: None,
            told_state: None,
            lifetime: 3_600,
            wider: None,
            refuses_all: false,
            asked: Vec::new(),
            scopes: Vec::new(),
            clients: BTreeSet::new(),
            faults: Vec::new(),
            access: BTreeMap::new(),
            refresh: BTreeMap::new(),
            codes: BTreeMap::new(),
            registered: BTreeMap::new(),
            drawn: Vec::new(),
            port,
        }
    }

    /// No access token is good any more.
    pub fn revoke_access(&mut self) {
        self.access.clear();
    }

    /// Access tokens are good for nothing any more but proving who one is.
    pub fn narrow(&mut self) {
        self.access.values_mut().for_each(String::clear);
    }

    /// No refresh token is good any more.
    pub fn revoke_refresh(&mut self) {
        self.refresh.clear();
    }

    /// Every secret that it ever gave away: of registrations, codes and tokens.
    pub fn secrets(&self) -> Vec<String> {
        self.drawn.iter().filter(|it| !it.starts_with("client-")).cloned().collect()
    }

    /// Something that no other has, and that a search finds.
    fn draw(&mut self, kind: &str) -> String {
        let drawn = format!("{kind}-of-fake-{}-{:06}", self.port, self.drawn.len());
        self.drawn.push(drawn.clone());
        drawn
    }
}

impl FakeLogin {
    pub async fn start() -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("its address");
        let shared = Arc::new(Shared { address, book: Mutex::new(Book::new(address.port())) });
        let router = server::router(Arc::clone(&shared));
        let task = tokio::spawn(async move {
            let _ = axum::serve(listener, router).await;
        });
        Self { shared, task }
    }

    /// The MCP server's address.
    pub fn url(&self) -> String {
        format!("{}/mcp", self.issuer())
    }

    pub fn issuer(&self) -> String {
        self.shared.issuer()
    }

    pub fn book(&self) -> MutexGuard<'_, Book> {
        self.shared.book()
    }

    /// Opens a page as a browser would whose person agrees to everything. Gives the last status.
    pub async fn visit(page: &str) -> u16 {
        let client = Client::new("");
        let mut page = page.to_owned();
        loop {
            let answer = client.try_send(client.request(Method::GET, &page)).await;
            let answer = answer.unwrap_or_else(|error| panic!("cannot open {page}: {error}"));
            match answer.header("location") {
                Some(next) => page = next.to_owned(),
                None => return answer.status,
            }
        }
    }
}

impl Shared {
    fn issuer(&self) -> String {
        format!("http://{}", self.address)
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for FakeLogin {
    fn drop(&mut self) {
        self.task.abort();
    }
}
