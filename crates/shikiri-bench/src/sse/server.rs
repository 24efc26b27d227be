//! A server as the benchmark sees it: a child that says where it listens (`listening ADDRESS`),
//! and that opens its gate when told to.

use std::net::SocketAddr;
use std::path::Path;

use anyhow::{Context, Result};

use super::starlette::Starlette;
use crate::child::Process;

pub(crate) struct Server {
    process: Process,
    address: SocketAddr,
    /// Shikiri's wants one, and has runs to be started.
    key: Option<String>,
}

impl Server {
    pub(crate) fn bare() -> Result<Self> {
        Self::listening(Process::role(["bare"])?)
    }

    /// Shikiri, on a database of its own.
    pub(crate) fn product(database: &Path) -> Result<Self> {
        let mut server = Self::listening(Process::role(["product", &database.to_string_lossy()])?)?;
        server.key = Some(server.process.hear_word("key")?);
        Ok(server)
    }

    pub(super) fn starlette(starlette: &Starlette, database: &Path) -> Result<Self> {
        Self::listening(Process::program(&starlette.python, &[&starlette.script, database])?)
    }

    fn listening(mut process: Process) -> Result<Self> {
        let address = process.hear_word("listening")?.parse().context("an address")?;
        Ok(Self { process, address, key: None })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn key(&self) -> Option<&str> {
        self.key.as_deref()
    }

    pub(crate) fn process_id(&self) -> u32 {
        self.process.id()
    }

    /// Lets the waiting producers go; when that was, in nanoseconds.
    pub(crate) fn go(&mut self, producers: usize) -> Result<u64> {
        self.process.say(&format!("go {producers}"))?;
        Ok(self.process.hear_word("went")?.parse()?)
    }
}
