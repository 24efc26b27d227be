//! Clients that open legacy sessions and then do nothing, with the session's stream open or with
//! the connection closed.

use std::net::SocketAddr;

use anyhow::Result;
use clap::Args;
use futures_util::stream::{self, StreamExt, TryStreamExt};

use super::caller::{Caller, Era};
use super::servers::Server;
use crate::child::{self, Process};

/// Handshakes under way.
const AT_ONCE: usize = 32;

#[derive(Args)]
pub(crate) struct Arguments {
    address: SocketAddr,
    #[arg(long)]
    sessions: usize,
    /// Keep each session's stream open
    #[arg(long)]
    streams: bool,
    #[arg(long)]
    key: Option<String>,
}

/// Starts the clients and waits until all have their session.
pub(super) fn start(server: &Server, sessions: usize, streams: bool) -> Result<Process> {
    let (address, sessions) = (server.address().to_string(), sessions.to_string());
    let mut words = vec!["mcp-hold", &address, "--sessions", &sessions];
    words.extend(streams.then_some("--streams"));
    words.extend(server.key().into_iter().flat_map(|key| ["--key", key]));
    let mut clients = Process::role(words)?;
    clients.hear_word("ready")?;
    Ok(clients)
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let opening = (0..arguments.sessions).map(|_| open(arguments));
        let held: Vec<_> = stream::iter(opening).buffer_unordered(AT_ONCE).try_collect().await?;
        child::tell("ready")?;
        // Held until the parent is done.
        child::command().await?;
        drop(held);
        Ok(())
    })
}

/// The caller whose stream is to be held, if one is.
async fn open(arguments: &Arguments) -> Result<Option<Caller>> {
    let mut caller = Caller::open(arguments.address, Era::Legacy, arguments.key.as_deref()).await?;
    if arguments.streams {
        caller.listen().await?;
    }
    Ok(arguments.streams.then_some(caller))
}
