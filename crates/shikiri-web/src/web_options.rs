//! Where the server listens, and its limits.

use std::io;
use std::net::SocketAddr;

use tokio::net::{TcpListener, TcpSocket};

#[derive(Clone, Debug)]
pub struct WebOptions {
    pub listen: SocketAddr,
    /// Allows an address that other machines can reach.
    pub allow_remote: bool,
    /// Names under which this server may be called besides loopback ones: `host` or `host:port`.
    pub allowed_hosts: Vec<String>,
    pub max_connections: usize,
    /// Shows `/metrics` to other machines too.
    pub metrics_public: bool,
}

impl Default for WebOptions {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 7420)),
            allow_remote: false,
            allowed_hosts: Vec::new(),
            max_connections: 20_000,
            metrics_public: false,
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum BindError {
    #[error(
        "{0} can be reached from other machines: listen on 127.0.0.1, or add --allow-remote if you mean it"
    )]
    NotLoopback(SocketAddr),
    #[error(
        "{0} is in use: stop the program that listens there, or choose another port with --listen"
    )]
    InUse(SocketAddr),
    #[error("{0} is not an address of this machine: choose another with --listen")]
    NotOurs(SocketAddr),
    #[error("listening on {0} is not permitted: choose a port above 1023 with --listen")]
    Denied(SocketAddr),
    #[error("cannot listen on {address}: {source}")]
    Other { address: SocketAddr, source: io::Error },
}

/// The backlog of connections that wait to be accepted: a burst of reconnecting readers after a
/// restart should not be refused.
const BACKLOG: u32 = 4_096;

/// Binds the address, or explains in one line why not and what to do.
// Async although nothing waits: a socket can be made only inside the runtime.
pub async fn bind(options: &WebOptions) -> Result<TcpListener, BindError> {
    let address = options.listen;
    if !address.ip().is_loopback() && !options.allow_remote {
        return Err(BindError::NotLoopback(address));
    }
    listen(address).map_err(|source| match source.kind() {
        io::ErrorKind::AddrInUse => BindError::InUse(address),
        io::ErrorKind::AddrNotAvailable => BindError::NotOurs(address),
        io::ErrorKind::PermissionDenied => BindError::Denied(address),
        _ => BindError::Other { address, source },
    })
}

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    // A restarted server gets its port back although old connections linger in TIME_WAIT.
    #[cfg(unix)]
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_open_address_needs_a_word_and_a_taken_one_says_what_to_do() {
        let open = WebOptions { listen: ([0, 0, 0, 0], 0).into(), ..WebOptions::default() };
        let refusal = bind(&open).await.unwrap_err().to_string();
        assert!(refusal.contains("--allow-remote"), "{refusal}");
        bind(&WebOptions { allow_remote: true, ..open }).await.unwrap();

        let free = WebOptions { listen: ([127, 0, 0, 1], 0).into(), ..WebOptions::default() };
        let first = bind(&free).await.unwrap();
        let taken = WebOptions { listen: first.local_addr().unwrap(), ..free };
        let refusal = bind(&taken).await.unwrap_err().to_string();
        assert!(refusal.contains("is in use") && refusal.contains("--listen"), "{refusal}");
    }
}
