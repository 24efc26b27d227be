//! Decides where a run may connect, by its tenant's policy. The host name is resolved here, every
//! address is checked, and the connection uses only these addresses. A later change of the name has no
//! effect.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use http::Uri;
use hyper_util::client::proxy::matcher::{Intercept, Matcher};
use shikiri_executions::execution::{ResolvedServer, TurnRequest};
use shikiri_executions::servers::address_policy::{is_other_machine, is_public};
use shikiri_model::server::McpServerTransport;
use shikiri_model::tenant::EgressPolicy;

const LOOKUP_TIMEOUT: Duration = Duration::from_secs(5);

pub(super) struct EgressRules {
    policy: EgressPolicy,
    servers: Vec<RunServer>,
    /// The operator's proxies, by the server's environment.
    proxies: Matcher,
    resolver: Arc<dyn HostResolver>,
}

/// An MCP server of the run, which is allowed under every policy.
struct RunServer {
    host: String,
    port: u16,
    /// An admin has allowed a private address.
    allow_private: bool,
}

/// How an allowed connection is made.
#[derive(Debug)]
pub(super) enum EgressRoute {
    Direct(Vec<SocketAddr>),
    OperatorProxy(Intercept),
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum EgressRefusal {
    #[error(
        "a connection to {host}:{port} is refused: the egress policy of this tenant is `none`. An \
         admin can change it: shikiri tenants set TENANT --egress public"
    )]
    NoEgress { host: String, port: u16 },
    #[error(
        "a connection to {host}:{port} is refused: it has no public address, and the egress policy of \
         this tenant is `public`. An admin can change it: shikiri tenants set TENANT --egress open"
    )]
    Private { host: String, port: u16 },
    #[error(
        "a connection to {host}:{port} is refused: {address} is an address of the host itself or a \
         link-local one, which no egress policy allows (this tenant's is `{policy}`)"
    )]
    ThisHost { host: String, port: u16, address: IpAddr, policy: &'static str },
    #[error("a connection to {host}:{port} is refused: it has no address: {reason}")]
    NoAddress { host: String, port: u16, reason: String },
}

/// Finds the addresses of a host.
#[async_trait]
pub(super) trait HostResolver: Send + Sync + 'static {
    async fn lookup(&self, host: &str, port: u16) -> std::io::Result<Vec<SocketAddr>>;
}

/// Resolves names with the system's resolver.
pub(super) struct SystemResolver;

#[async_trait]
impl HostResolver for SystemResolver {
    async fn lookup(&self, host: &str, port: u16) -> std::io::Result<Vec<SocketAddr>> {
        let found = tokio::time::timeout(LOOKUP_TIMEOUT, tokio::net::lookup_host((host, port)));
        let late = || std::io::Error::other("it was not found in time");
        Ok(found.await.map_err(|_| late())??.collect())
    }
}

impl EgressRules {
    pub(super) fn new(request: &TurnRequest) -> Self {
        Self {
            policy: request.egress,
            servers: request.servers.iter().filter_map(RunServer::of).collect(),
            proxies: operator_proxies(&request.env),
            resolver: Arc::new(SystemResolver),
        }
    }

    #[cfg(test)]
    pub(super) fn with_resolver(self, resolver: Arc<dyn HostResolver>) -> Self {
        Self { resolver, ..self }
    }

    /// The route to a host and port if the connection is allowed. `uri` has the same host and port.
    pub(super) async fn authorize_connection(
        &self,
        host: &str,
        port: u16,
        uri: &Uri,
    ) -> Result<EgressRoute, EgressRefusal> {
        self.find_route(host, port, uri).await.map_err(|refusal| self.without_address(refusal))
    }

    /// Under the policy `public`, internal names and unknown names are refused with the same text, so
    /// that a run cannot learn which internal names exist.
    fn without_address(&self, refusal: EgressRefusal) -> EgressRefusal {
        match refusal {
            EgressRefusal::ThisHost { host, port, .. }
            | EgressRefusal::NoAddress { host, port, .. }
                if self.policy == EgressPolicy::Public && host.parse::<IpAddr>().is_err() =>
            {
                EgressRefusal::Private { host, port }
            }
            refusal => refusal,
        }
    }

    async fn find_route(
        &self,
        host: &str,
        port: u16,
        uri: &Uri,
    ) -> Result<EgressRoute, EgressRefusal> {
        let host = bare(host);
        let server = self.servers.iter().find(|server| server.is_at(&host, port));
        if self.policy == EgressPolicy::None && server.is_none() {
            return Err(EgressRefusal::NoEgress { host, port });
        }
        let found = self.resolver.lookup(&host, port).await;
        let proxy = self.proxies.intercept(uri);
        let addresses = match (found, &proxy) {
            (Ok(addresses), _) if !addresses.is_empty() => addresses,
            // With a proxy, only the proxy may be able to resolve external names.
            (_, Some(_)) => Vec::new(),
            (Ok(_), None) => {
                return Err(EgressRefusal::NoAddress {
                    host,
                    port,
                    reason: "none was found".to_owned(),
                });
            }
            (Err(error), None) => {
                return Err(EgressRefusal::NoAddress { host, port, reason: error.to_string() });
            }
        };
        for address in &addresses {
            self.judge_address(&host, port, address.ip(), server)?;
        }
        match proxy {
            Some(proxy) => Ok(EgressRoute::OperatorProxy(proxy)),
            None => Ok(EgressRoute::Direct(addresses)),
        }
    }

    fn judge_address(
        &self,
        host: &str,
        port: u16,
        address: IpAddr,
        server: Option<&RunServer>,
    ) -> Result<(), EgressRefusal> {
        let address = address.to_canonical();
        let host = || host.to_owned();
        if server.is_some_and(|server| server.allow_private) {
            return Ok(());
        }
        if !is_other_machine(address) || is_own_address(address) {
            let policy = self.policy.as_str();
            return Err(EgressRefusal::ThisHost { host: host(), port, address, policy });
        }
        if self.policy != EgressPolicy::Open && !is_public(address) {
            return Err(EgressRefusal::Private { host: host(), port });
        }
        Ok(())
    }
}

impl RunServer {
    fn of(server: &ResolvedServer) -> Option<Self> {
        let (McpServerTransport::Http { url } | McpServerTransport::Sse { url }) =
            &server.transport
        else {
            return None;
        };
        let uri: Uri = url.parse().ok()?;
        let usual = if uri.scheme_str() == Some("https") { 443 } else { 80 };
        Some(Self {
            host: bare(uri.host()?),
            port: uri.port_u16().unwrap_or(usual),
            allow_private: server.allow_private || server.is_own,
        })
    }

    fn is_at(&self, host: &str, port: u16) -> bool {
        self.host == host && self.port == port
    }
}

/// A host name in the form for comparisons.
fn bare(host: &str) -> String {
    let host = host.trim_start_matches('[').trim_end_matches(']');
    host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase()
}

fn operator_proxies(env: &BTreeMap<String, String>) -> Matcher {
    let set = |name: &str| {
        let value = env.get(name).or_else(|| env.get(&name.to_ascii_lowercase()));
        value.map(|value| value.trim().to_owned()).unwrap_or_default()
    };
    let builder = Matcher::builder().all(set("ALL_PROXY")).http(set("HTTP_PROXY"));
    builder.https(set("HTTPS_PROXY")).no(set("NO_PROXY")).build()
}

/// Whether an address belongs to a network interface of this host: then it is also the source address
/// of a packet to it. No packet is sent.
fn is_own_address(address: IpAddr) -> bool {
    let any = match address {
        IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    };
    let local = UdpSocket::bind((any, 0)).and_then(|socket| {
        // Any port will do.
        socket.connect((address, 9))?;
        socket.local_addr()
    });
    local.is_ok_and(|local| local.ip() == address)
}
