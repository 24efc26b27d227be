//! An MCP server on loopback that requires a login, and its authorization server. It validates
//! requests strictly and counts them. A test can make it lie.

mod server;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use reqwest::Method;
use tokio::task::JoinHandle;

use crate::client::Client;

/// A running fake. Stops when dropped.
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

/// Settings for a test to change, and counters.
#[derive(Debug)]
pub struct Book {
    /// The issuer of tokens for the MCP server, if not this fake.
    pub issuer: Option<String>,
    /// Replaces the true `iss`; an empty one is left out.
    pub told_issuer: Option<String>,
    /// Replaces the true `state`.
    pub told_state: Option<String>,
    /// The lifetime of an access token in seconds.
    pub lifetime: u64,
    /// An additional scope that tool calls need.
    pub wider: Option<String>,
    /// Its MCP server accepts no token.
    pub refuses_all: bool,
    /// Requests to the authorization server, in order: register, authorize, a grant's type.
    pub asked: Vec<String>,
    /// The scopes requested at each login.
    pub scopes: Vec<String>,
    /// Ids of clients that connected, known or not.
    pub clients: BTreeSet<String>,
    /// Faults found in requests.
    pub faults: Vec<String>,
    /// Valid access tokens, with their scopes.
    access: BTreeMap<String, String>,
    /// Valid refresh tokens, with their client and scopes.
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

    /// Revokes all access tokens.
    pub fn revoke_access(&mut self) {
        self.access.clear();
    }

    /// Reduces access tokens to the scope that every call needs.
    pub fn narrow(&mut self) {
        self.access.values_mut().for_each(String::clear);
    }

    /// Revokes all refresh tokens.
    pub fn revoke_refresh(&mut self) {
        self.refresh.clear();
    }

    /// Every secret that it issued: of registrations, codes and tokens.
    pub fn secrets(&self) -> Vec<String> {
        self.drawn.iter().filter(|it| !it.starts_with("client-")).cloned().collect()
    }

    /// A unique text that a search can find.
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

    /// Opens a page as the browser of a person who agrees to everything. Returns the last status.
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
