//! `shikiri serve` in a folder of its own, and what is set up there over REST.

use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::child::Process;
use crate::sse::http::Connection;

const TENANT: &str = "/v1/tenants/local";
pub(super) const PASSKEY: &str = "bench";

/// The program, which is built beside the benchmark.
pub(super) fn program() -> Result<PathBuf> {
    let program = std::env::current_exe()?.with_file_name("shikiri");
    ensure!(program.exists(), "no {}: run this as `cargo xtask bench`", program.display());
    Ok(program)
}

/// A command of the program in a folder, on its file there or on a database.
pub(super) fn command(folder: &Path, store: Option<&str>) -> Result<Command> {
    let mut command = Command::new(program()?);
    command.current_dir(folder).env_clear().env("HOME", folder).env("NO_COLOR", "1");
    if let Some(store) = store {
        command.env("SHIKIRI_STORE", store);
        // Nodes of one store share its key; each has a folder of its own here.
        let shared = folder.parent().unwrap_or(folder).join("sealing.key");
        command.env("SHIKIRI_SEALING_KEY_FILE", shared);
    }
    Ok(command)
}

/// A running server. It is killed when dropped.
pub(super) struct Server {
    process: Process,
    pub(super) address: SocketAddr,
    pub(super) key: String,
    log: PathBuf,
}

impl Server {
    pub(super) fn start(folder: &Path, store: Option<&str>) -> Result<Self> {
        fs::create_dir_all(folder)?;
        let log = folder.join("log.txt");
        let mut command = command(folder, store)?;
        command.args(["serve", "--listen", "127.0.0.1:0"]).stderr(Stdio::from(File::create(&log)?));
        let mut process = Process::start(&mut command)?;
        let address = process.hear_word("listening on http://")?;
        let address = address.parse().context("an address")?;
        let key = fs::read_to_string(folder.join(".shikiri/admin.key"))?.trim().to_owned();
        Ok(Self { process, address, key, log })
    }

    pub(super) fn process_id(&self) -> u32 {
        self.process.id()
    }

    /// Lines of its log in which a lock or a fault is told of.
    pub(super) fn complaints(&self) -> Result<usize> {
        let words = ["ERROR", "locked", "busy", "panicked"];
        let log = fs::read_to_string(&self.log)?;
        Ok(log.lines().filter(|line| words.iter().any(|word| line.contains(word))).count())
    }

    pub(super) async fn post(&self, path: &str, body: Value) -> Result<Value> {
        let mut connection = Connection::open(self.address).await?;
        let (path, body) = (format!("{TENANT}{path}"), body.to_string());
        let answer = connection.post(&path, Some(&self.key), &body).await?;
        Ok(serde_json::from_slice(&answer)?)
    }

    pub(super) async fn get(&self, path: &str) -> Result<Value> {
        let mut connection = Connection::open(self.address).await?;
        connection.send("GET", &format!("{TENANT}{path}"), Some(&self.key), "").await?;
        Ok(serde_json::from_slice(&connection.answer().await?)?)
    }

    /// A project of ann and ben. The first one makes them.
    pub(super) async fn project(&self, name: &str, is_first: bool) -> Result<()> {
        self.post("/projects", json!({ "id": name })).await?;
        for agent in ["ann", "ben"] {
            let mut body = json!({ "id": agent });
            if is_first {
                body["passkey"] = json!(PASSKEY);
            }
            self.post(&format!("/projects/{name}/agents"), body).await?;
        }
        Ok(())
    }
}
