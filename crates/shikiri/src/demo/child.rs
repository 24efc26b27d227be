//! A server process of this program, for the demo to kill.

use std::fs::OpenOptions;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, ChildStdin, Command};

use crate::client::Client;
use crate::exit::{Exit, Failure};
use crate::{data_folder, env_vars};

/// Short, so that the demo need not wait long for the run to be requeued.
const NODE_LEASE_SECONDS: &str = "1";
const START_TIMEOUT: Duration = Duration::from_secs(30);
const STOP_TIMEOUT: Duration = Duration::from_secs(20);
/// Ports outside the range of outgoing connections: the port must still be free after the kill.
const PORTS: std::ops::Range<u16> = 20_000..32_000;
const MAX_TRIES: u32 = 5;

pub(super) struct ServerProcess {
    child: Child,
    /// Closed when this process ends, for any reason. The server then stops too.
    _stdin: Option<ChildStdin>,
    address: SocketAddr,
    root: PathBuf,
}

impl ServerProcess {
    /// On any free port.
    pub(super) async fn start(root: &Path) -> Result<Self, Failure> {
        let mut tries = 1;
        loop {
            // Another process may take the port between our check and the server's bind.
            match Self::start_at(root, free_address()).await {
                Err(_) if tries < MAX_TRIES => tries += 1,
                started => return started,
            }
        }
    }

    pub(super) async fn start_at(root: &Path, address: SocketAddr) -> Result<Self, Failure> {
        let mut child = spawn(root, address)?;
        let stdin = child.stdin.take();
        let address = match tokio::time::timeout(START_TIMEOUT, announced(&mut child)).await {
            Ok(Some(address)) => address,
            _ => return Err(not_started(root)),
        };
        Ok(Self { child, _stdin: stdin, address, root: root.to_owned() })
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id().unwrap_or(0)
    }

    pub(super) fn key_file(&self) -> PathBuf {
        self.root.join(".shikiri").join("admin.key")
    }

    pub(super) fn key(&self) -> Result<String, Failure> {
        let key = data_folder::read_key(&self.key_file())?;
        Ok(key.ok_or_else(|| not_started(&self.root))?.reveal().to_owned())
    }

    pub(super) fn client(&self) -> Result<Client, Failure> {
        Ok(Client::new(self.address, self.key()?))
    }

    /// Sends SIGKILL.
    pub(super) async fn kill(mut self) -> Result<ExitStatus, Failure> {
        self.child.start_kill().map_err(|error| Failure::told(Exit::Failed, error))?;
        self.child.wait().await.map_err(|error| Failure::told(Exit::Failed, error))
    }

    /// Sends SIGTERM, and waits until the server has drained.
    pub(super) async fn stop(mut self) -> Result<(), Failure> {
        let pid = self.child.id().and_then(|id| i32::try_from(id).ok());
        if let Some(pid) = pid.and_then(rustix::process::Pid::from_raw) {
            // A server that has ended by itself needs no signal.
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
        match tokio::time::timeout(STOP_TIMEOUT, self.child.wait()).await {
            Ok(Ok(status)) if status.success() => Ok(()),
            Ok(Ok(status)) => Err(ended(&self.root, &format!("the server ended with {status}"))),
            Ok(Err(error)) => Err(Failure::told(Exit::Failed, error)),
            Err(_) => {
                // It did not end when asked.
                let _ = self.child.start_kill();
                Err(ended(&self.root, "the server did not drain in time"))
            }
        }
    }

    /// Resolves if the server ends unexpectedly.
    pub(super) async fn died(&mut self) -> Failure {
        match self.child.wait().await {
            Ok(status) => ended(&self.root, &format!("the server ended with {status}")),
            Err(error) => Failure::told(Exit::Failed, error),
        }
    }
}

fn log_file(root: &Path) -> PathBuf {
    root.join("demo-server.log")
}

fn free_address() -> SocketAddr {
    use std::hash::{BuildHasher as _, RandomState};
    let drawn =
        RandomState::new().hash_one(std::process::id()) % u64::try_from(PORTS.len()).unwrap_or(1);
    let first = PORTS.start + u16::try_from(drawn).unwrap_or(0);
    let ports = (first..PORTS.end).chain(PORTS.start..first);
    let mut addresses = ports.map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
    let free = addresses.find(|address| std::net::TcpListener::bind(address).is_ok());
    free.unwrap_or(SocketAddr::from(([127, 0, 0, 1], 0)))
}

fn spawn(root: &Path, address: SocketAddr) -> Result<Child, Failure> {
    let failed = |error: std::io::Error| {
        let what = format!("cannot start a server process: {error}");
        Failure::new(Exit::Unavailable, what, "free some resources and try again")
    };
    let log = OpenOptions::new().create(true).append(true).open(log_file(root)).map_err(failed)?;
    let program = std::env::current_exe().map_err(failed)?;
    let mut command = Command::new(program);
    command
        .args(["serve", "--stop-with-stdin", "--listen", &address.to_string()])
        .current_dir(root)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(log)
        // Ctrl-C goes to the demo, which then drains the server.
        .process_group(0)
        // A demo that is interrupted needs no drain.
        .kill_on_drop(true);
    // The demo must neither see the user's settings nor change them.
    for name in env_vars::names().filter(|name| name.starts_with("SHIKIRI_")) {
        command.env_remove(name);
    }
    command
        .env(env_vars::CLAUDE_PROJECT_DIR.name, root)
        .env(env_vars::XDG_CONFIG_HOME.name, root.join("no-config"))
        .env("SHIKIRI_NODE_LEASE_SECONDS", NODE_LEASE_SECONDS)
        .env("SHIKIRI_LOG", "info");
    command.spawn().map_err(failed)
}

/// Waits for `listening on http://ADDR`; None if the server ends instead.
async fn announced(child: &mut Child) -> Option<SocketAddr> {
    let mut lines = BufReader::new(child.stdout.take()?).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        if let Some(address) = line.strip_prefix("listening on http://") {
            return address.parse().ok();
        }
    }
    None
}

fn not_started(root: &Path) -> Failure {
    ended(root, "the server did not start")
}

/// Includes the last line of the server's log, which is lost with a temporary folder.
fn ended(root: &Path, what: &str) -> Failure {
    let log = std::fs::read_to_string(log_file(root)).unwrap_or_default();
    let last = log.lines().last().unwrap_or("it said nothing");
    Failure::new(Exit::Failed, what, &format!("its last words: {last}"))
}
