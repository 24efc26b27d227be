//! The servers that are compared, each in a process of its own: ours, bare rmcp, and the official
//! TypeScript and Python servers where their programs are given in the environment.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{env, fs};

use anyhow::{Context, Result};

use super::caller::{Caller, Era, Tool};
use crate::child::Process;
use crate::world::World;

const TYPESCRIPT_SERVER: &str = include_str!("../../peers/server.mjs");
const PYTHON_SERVER: &str = include_str!("../../peers/server.py");

/// For the first calls of a server.
const PATIENCE: Duration = Duration::from_secs(10);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    Ours,
    Rmcp,
    TypeScript,
    Python,
}

impl Kind {
    pub(super) const ALL: [Self; 4] = [Self::Ours, Self::Rmcp, Self::TypeScript, Self::Python];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Ours => "Shikiri",
            Self::Rmcp => "bare rmcp",
            Self::TypeScript => "TypeScript",
            Self::Python => "Python",
        }
    }
}

pub(super) struct Server {
    process: Process,
    address: SocketAddr,
    key: Option<String>,
}

impl Server {
    fn listening(mut process: Process) -> Result<Self> {
        let address = process.hear_word("listening")?.parse().context("an address")?;
        Ok(Self { process, address, key: None })
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(super) fn key(&self) -> Option<&str> {
        self.key.as_deref()
    }

    pub(super) fn process_id(&self) -> u32 {
        self.process.id()
    }
}

/// Starts servers, and knows which cannot be had.
pub(super) struct Servers {
    scratch: PathBuf,
    missing: BTreeMap<Kind, String>,
}

impl Servers {
    /// Tries each one once, in both eras.
    pub(super) fn find(world: &World) -> Self {
        let scratch = world.scratch().to_path_buf();
        let mut servers = Self { scratch, missing: BTreeMap::new() };
        for kind in Kind::ALL {
            if let Err(error) = servers.try_out(world, kind) {
                servers.missing.insert(kind, format!("no {}: {error:#}", kind.name()));
            }
        }
        servers
    }

    fn try_out(&self, world: &World, kind: Kind) -> Result<()> {
        let server = self.start(kind, "trial")?;
        for era in Era::ALL {
            let calling = async {
                let mut caller = Caller::open(server.address(), era, server.key()).await?;
                caller.call(Tool::Echo).await?;
                caller.call(Tool::Burst).await
            };
            let trial = async { tokio::time::timeout(PATIENCE, calling).await? };
            world.runtime.block_on(trial).with_context(|| era.version())?;
        }
        Ok(())
    }

    /// Why it cannot be measured, if so.
    pub(super) fn missing(&self, kind: Kind) -> Option<&str> {
        self.missing.get(&kind).map(String::as_str)
    }

    /// Those that can be measured, all fresh; `occasion` names their databases.
    pub(super) fn start_all(&self, occasion: &str) -> Result<Vec<(Kind, Server)>> {
        let there = Kind::ALL.into_iter().filter(|kind| self.missing(*kind).is_none());
        there.map(|kind| Ok((kind, self.start(kind, occasion)?))).collect()
    }

    pub(super) fn start(&self, kind: Kind, occasion: &str) -> Result<Server> {
        match kind {
            Kind::Ours => {
                let database = self.scratch.join(format!("mcp-{occasion}.db"));
                let process = Process::role(["mcp-ours", &database.to_string_lossy()])?;
                let mut server = Server::listening(process)?;
                server.key = Some(server.process.hear_word("key")?);
                Ok(server)
            }
            Kind::Rmcp => Server::listening(Process::role(["mcp-bare"])?),
            Kind::TypeScript => {
                let node = given("SHIKIRI_PEER_NODE")?;
                let script = typescript(&self.scratch, &given("SHIKIRI_PEER_TS")?)?;
                Server::listening(Process::program(&node, &[&script])?)
            }
            Kind::Python => {
                let python = given("SHIKIRI_PEER_PYTHON")?;
                let script = self.scratch.join("mcp_server.py");
                fs::write(&script, PYTHON_SERVER)?;
                Server::listening(Process::program(&python, &[&script])?)
            }
        }
    }
}

fn given(variable: &str) -> Result<PathBuf> {
    let place = env::var_os(variable).map(PathBuf::from);
    place.with_context(|| format!("{variable} is not set"))
}

/// The script in a folder of its own beside the given packages: Node looks for them there.
fn typescript(scratch: &Path, packages: &Path) -> Result<PathBuf> {
    let folder = scratch.join("typescript");
    let script = folder.join("server.mjs");
    if !script.exists() {
        fs::create_dir_all(&folder)?;
        symlink(packages.join("node_modules"), folder.join("node_modules"))?;
        fs::write(&script, TYPESCRIPT_SERVER)?;
    }
    Ok(script)
}
