//! A tenant's MCP server as a target for the MCP client: its addresses are resolved and checked,
//! and neither a user nor a model can be asked.

use std::collections::BTreeMap;
use std::path::Path;

use shikiri_client::{ClientError, ClientOptions, ServerConnection};
use shikiri_model::host::{HostTransport, OAuthSpec, ServerSpec};
use shikiri_model::server::McpServerTransport;
use shikiri_runtime::random;

use super::addresses;

pub(crate) struct McpTarget {
    pub(crate) spec: ServerSpec,
    options: ClientOptions,
    /// Distinguishes our request ids from those of another process in the same session.
    prefix: String,
}

/// Which addresses a server may be at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AddressScope {
    Public,
    /// Private addresses too.
    Any,
    /// Our own server. Its address comes from us, so it is not checked.
    Own,
}

impl McpTarget {
    /// Resolves the server's addresses. A program works in `folder`.
    pub(crate) async fn find(
        name: &str,
        transport: &McpServerTransport,
        headers: &BTreeMap<String, String>,
        scope: AddressScope,
        folder: &Path,
    ) -> Result<Self, String> {
        let reach = host_transport(transport, headers, folder)?;
        let addresses = match (&reach, scope) {
            (HostTransport::Stdio { .. }, _) | (_, AddressScope::Own) => Vec::new(),
            (HostTransport::Http { url, .. } | HostTransport::Sse { url, .. }, _) => {
                addresses(url, scope == AddressScope::Any).await?
            }
        };
        let options = ClientOptions {
            name: "shikiri".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            elicitation: false,
            sampling: false,
            authority: None,
            protocol: None,
            addresses,
        };
        let prefix: [u8; 4] = random().map_err(|error| error.to_string())?;
        let prefix = format!("{:08x}", u32::from_le_bytes(prefix));
        let spec = ServerSpec { name: name.to_owned(), reach, oauth: OAuthSpec::default() };
        Ok(Self { spec, options, prefix })
    }

    pub(crate) async fn connect(&self) -> Result<ServerConnection, ClientError> {
        ServerConnection::connect(&self.spec, &self.options, &self.prefix).await
    }

    pub(crate) fn resume_session(
        &self,
        protocol: &str,
        session: Option<String>,
    ) -> Result<ServerConnection, ClientError> {
        let (spec, options) = (&self.spec, &self.options);
        ServerConnection::resume_session(spec, options, &self.prefix, protocol, session)
    }
}

fn host_transport(
    transport: &McpServerTransport,
    headers: &BTreeMap<String, String>,
    folder: &Path,
) -> Result<HostTransport, String> {
    match transport {
        McpServerTransport::Http { url } => {
            Ok(HostTransport::Http { url: url.clone(), headers: headers.clone() })
        }
        McpServerTransport::Sse { url } => {
            Ok(HostTransport::Sse { url: url.clone(), headers: headers.clone() })
        }
        McpServerTransport::Stdio { command } => {
            let (program, args) = command.split_first().ok_or("has no command")?;
            let mut reach = HostTransport::program(program, args);
            if let HostTransport::Stdio { cwd, .. } = &mut reach {
                *cwd = folder.to_str().map(str::to_owned).filter(|folder| !folder.is_empty());
            }
            Ok(reach)
        }
        McpServerTransport::Openapi { .. } => Err("is described by a document".to_owned()),
    }
}
