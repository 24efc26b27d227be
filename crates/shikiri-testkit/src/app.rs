//! `TestApp`: the real server in a temporary folder, on SQLite or PostgreSQL by one switch.

use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::cli::Cli;
use crate::client::Client;
use crate::database::TestDatabase;
use crate::reader::{Cut, Reader};
use crate::server::{Launch, ServerProcess, free_port};

/// Lines of each process that a failed test shows.
const SHOWN_LINES: usize = 200;

/// The environment of a test's server.
#[derive(Debug)]
pub struct Builder {
    launch: Launch,
    args: Vec<String>,
    postgres: bool,
    folder: Option<TempDir>,
}

/// A server with its folder, its database and its log across restarts.
#[derive(Debug)]
pub struct TestApp {
    launch: Launch,
    args: Vec<String>,
    port: u16,
    server: Option<ServerProcess>,
    /// Output of earlier processes.
    past: Vec<String>,
    folder: Option<TempDir>,
    database: Option<TestDatabase>,
}

/// A tenant with a key of its own.
#[derive(Clone, Debug)]
pub struct Tenant {
    pub id: String,
    pub key: String,
    pub client: Client,
}

impl TestApp {
    /// `program` is `env!("CARGO_BIN_EXE_shikiri")`, which only a test of that crate knows.
    #[expect(clippy::new_ret_no_self, reason = "a builder that reads as what it builds")]
    pub fn new(program: impl AsRef<Path>) -> Builder {
        let folder = TempDir::new().expect("a temporary folder");
        let launch = Launch {
            program: program.as_ref().to_owned(),
            root: folder.path().to_owned(),
            store: None,
            env: Vec::new(),
            user: None,
        };
        Builder { launch, args: Vec::new(), postgres: false, folder: Some(folder) }
    }
}

impl Builder {
    /// On a fresh database of the test server; ask `have_postgres` first.
    #[must_use]
    pub fn postgres(mut self) -> Self {
        self.postgres = true;
        self
    }

    /// On this store, which is the test's own.
    #[must_use]
    pub fn store(mut self, url: &str) -> Self {
        self.launch.store = Some(url.to_owned());
        self
    }

    /// In this folder, which is the test's own.
    #[must_use]
    pub fn root(mut self, root: impl AsRef<Path>) -> Self {
        self.folder = None;
        self.launch.root = root.as_ref().to_owned();
        self
    }

    #[must_use]
    pub fn env(mut self, name: &str, value: impl ToString) -> Self {
        self.launch.env.push((name.into(), value.to_string().into()));
        self
    }

    #[must_use]
    pub fn arg(mut self, arg: impl ToString) -> Self {
        self.args.push(arg.to_string());
        self
    }

    /// As another user, which only root can ask for. The folder becomes that user's.
    #[must_use]
    pub fn user(mut self, user: Option<(u32, u32)>) -> Self {
        if let Some((uid, gid)) = user {
            let owned = std::os::unix::fs::chown(&self.launch.root, Some(uid), Some(gid));
            owned.expect("only root can start a server as another user");
        }
        self.launch.user = user;
        self
    }

    /// Starts it and waits until it listens.
    pub async fn start(mut self) -> TestApp {
        let mut database = None;
        if self.postgres {
            let fresh = TestDatabase::create().await;
            self.launch.store = Some(fresh.url().to_owned());
            database = Some(fresh);
        }
        let (port, server) = start_on_a_free_port(&self.launch, &self.args).await;
        TestApp {
            launch: self.launch,
            args: self.args,
            port,
            server: Some(server),
            past: Vec::new(),
            folder: self.folder,
            database,
        }
    }
}

/// Another process may take the port between our check and the server's bind.
async fn start_on_a_free_port(launch: &Launch, args: &[String]) -> (u16, ServerProcess) {
    for _ in 0..5 {
        let port = free_port();
        match ServerProcess::start(launch, port, args).await {
            Ok(server) => return (port, server),
            Err(said) if said.contains("in use") => {}
            Err(said) => panic!("the server did not start: {said}"),
        }
    }
    panic!("found no port on which the server starts");
}

impl TestApp {
    pub fn root(&self) -> &Path {
        &self.launch.root
    }

    pub fn data_folder(&self) -> PathBuf {
        self.root().join(".shikiri")
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn server(&mut self) -> &mut ServerProcess {
        self.server.as_mut().expect("a running server")
    }

    /// Its own database, on PostgreSQL.
    pub fn database(&self) -> Option<&TestDatabase> {
        self.database.as_ref()
    }

    /// The output of all processes so far.
    pub fn log(&self) -> String {
        let now = self.server.iter().map(ServerProcess::log);
        self.past.iter().cloned().chain(now).collect::<Vec<_>>().join("\n")
    }

    /// Kills it with SIGKILL: no destructor, flush or exit handler runs.
    pub fn kill9(&mut self) {
        if let Some(mut server) = self.server.take() {
            server.kill9();
            self.past.push(server.log());
        }
    }

    pub fn stop_signal(&self) {
        self.send(Signal::STOP);
    }

    pub fn cont(&self) {
        self.send(Signal::CONT);
    }

    /// Asks it to end, without waiting.
    pub fn ask_to_end(&self) {
        self.send(Signal::TERM);
    }

    fn send(&self, signal: Signal) {
        self.server.as_ref().expect("a running server").signal(signal);
    }

    /// Asks it to end. Returns its exit code and how long it took.
    pub async fn terminate(&mut self) -> (i32, Duration) {
        self.ask_to_end();
        self.ended().await
    }

    /// Waits for the end of a server that was asked to end.
    pub async fn ended(&mut self) -> (i32, Duration) {
        let mut server = self.server.take().expect("a running server");
        let ended = server.wait(Duration::from_secs(30)).await;
        self.past.push(server.log());
        ended
    }

    /// Starts it again on the same port and folder. A process that is still running is killed
    /// first.
    pub async fn restart(&mut self) {
        self.kill9();
        match ServerProcess::start(&self.launch, self.port, &self.args).await {
            Ok(server) => self.server = Some(server),
            Err(said) => panic!("the server did not start again: {said}"),
        }
    }

    /// A second server on the same folder and store, on a port of its own.
    pub async fn another(&self) -> ServerProcess {
        start_on_a_free_port(&self.launch, &self.args).await.1
    }

    /// Sets an environment variable for the next start.
    pub fn set_env(&mut self, name: &str, value: &str) {
        self.launch.env.push((name.into(), value.into()));
    }

    /// Runs the program's other commands in the same folder and on the same store.
    pub fn cli(&self) -> Cli {
        Cli::from_launch(self.launch.clone())
    }

    pub fn admin_key(&self) -> String {
        let path = self.data_folder().join("admin.key");
        let key = std::fs::read_to_string(&path);
        key.unwrap_or_else(|e| panic!("{}: {e}", path.display())).trim().to_owned()
    }

    /// A client with the admin's key.
    pub fn client(&self) -> Client {
        Client::new(&format!("http://127.0.0.1:{}", self.port)).with_key(&self.admin_key())
    }

    /// Creates a tenant and a key for it.
    pub async fn tenant(&self, name: &str) -> Tenant {
        let admin = self.client();
        admin.post("/v1/tenants", &json!({ "id": name, "name": name })).await.expect(201);
        let path = format!("/v1/tenants/{name}/keys");
        let made = admin.post(&path, &json!({ "name": "test" })).await.expect(201);
        let key = made["key"].as_str().unwrap_or_else(|| panic!("no key in {made}")).to_owned();
        let client = admin.with_key(&key);
        Tenant { id: name.to_owned(), key, client }
    }

    /// The tenant `local`, with the admin's key.
    pub fn local(&self) -> Tenant {
        Tenant { id: "local".to_owned(), key: self.admin_key(), client: self.client() }
    }

    /// Starts a run of the tenant `local`.
    pub async fn start_run(&self, agent: &str, input: Value) -> String {
        self.local().start_run(agent, input).await
    }
}

impl Tenant {
    pub fn path(&self, rest: &str) -> String {
        format!("/v1/tenants/{}{rest}", self.id)
    }

    /// Starts a run and returns its id.
    pub async fn start_run(&self, agent: &str, input: Value) -> String {
        let body = json!({ "agent": agent, "input": input });
        let answer = self.client.post(&self.path("/runs"), &body).await;
        assert!(matches!(answer.status, 201 | 202), "{} {}", answer.status, answer.text());
        answer.json()["id"].as_str().expect("a run's id").to_owned()
    }

    pub async fn run(&self, id: &str) -> Value {
        self.client.get(&self.path(&format!("/runs/{id}"))).await.expect(200)
    }

    pub fn events_path(&self, run: &str) -> String {
        self.path(&format!("/runs/{run}/events"))
    }

    /// A reader from the first event.
    pub fn reader(&self, run: &str, cut: Cut) -> Reader {
        Reader::new(&self.client, &self.events_path(run), cut)
    }
}

impl Drop for TestApp {
    fn drop(&mut self) {
        // The server must end before its database is dropped.
        self.kill9();
        if !std::thread::panicking() {
            return;
        }
        for (i, log) in self.past.iter().enumerate() {
            let lines: Vec<_> = log.lines().collect();
            let shown = &lines[lines.len().saturating_sub(SHOWN_LINES)..];
            eprintln!("--- server process {} wrote last:\n{}", i + 1, shown.join("\n"));
        }
        if let Some(folder) = self.folder.take() {
            eprintln!("--- its folder is kept: {}", folder.keep().display());
        }
        if let Some(database) = &self.database {
            eprintln!("--- its database was {}", database.name());
        }
    }
}
