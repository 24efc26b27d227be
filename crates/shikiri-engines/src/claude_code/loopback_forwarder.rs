//! Forwards connections from a run's own loopback to the server's ports that it may use.
//!
//! A run in a network namespace cannot reach the server's loopback. Its supervisor opens listeners
//! inside the namespace and sends them here. Each connection is copied to the same address outside.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use tokio::io::Interest;
use tokio::net::unix::OwnedReadHalf;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

/// Open connections of one run; further ones wait.
const CONNECTIONS: usize = 256;
/// Pause after a failed accept.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Receives the listeners of a run and serves them until the future is dropped.
pub(super) async fn forward(supervisor: OwnedReadHalf) {
    let stream: &tokio::net::UnixStream = supervisor.as_ref();
    let received =
        stream.async_io(Interest::READABLE, || shikiri_sandbox::receive_listeners(stream)).await;
    let listeners = match received {
        Ok(listeners) => listeners,
        Err(error) => {
            tracing::warn!(%error, "a run's ports were not received");
            return;
        }
    };
    let room = Arc::new(Semaphore::new(CONNECTIONS));
    let mut serving = JoinSet::new();
    for listener in listeners {
        let nonblocking = listener.set_nonblocking(true);
        match nonblocking.and_then(|()| TcpListener::from_std(listener)) {
            Ok(listener) => {
                serving.spawn(accept_all(listener, Arc::clone(&room)));
            }
            Err(error) => tracing::warn!(%error, "a run's port cannot be served"),
        }
    }
    serving.join_all().await;
}

async fn accept_all(listener: TcpListener, room: Arc<Semaphore>) {
    let mut connections = JoinSet::new();
    while let Ok(permit) = Arc::clone(&room).acquire_owned().await {
        let inner = match listener.accept().await {
            Ok((inner, _)) => inner,
            // Such as too many open files: existing connections continue.
            Err(error) => {
                tracing::debug!(%error, "a run's connection was not accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        while connections.try_join_next().is_some() {}
        connections.spawn(async move {
            let _permit = permit;
            copy(inner).await
        });
    }
}

async fn copy(mut inner: TcpStream) -> std::io::Result<()> {
    let called = inner.local_addr()?;
    let address: IpAddr = called.ip().to_canonical();
    // Only loopback addresses are forwarded.
    if !address.is_loopback() {
        return Ok(());
    }
    let mut outer = TcpStream::connect(SocketAddr::new(address, called.port())).await?;
    tokio::io::copy_bidirectional(&mut inner, &mut outer).await.map(drop)
}
