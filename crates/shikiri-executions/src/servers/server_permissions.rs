//! Permissions of a tenant's servers: only an admin may allow programs and private addresses.

use std::time::Duration;

use hyper::Uri;
use shikiri_model::key::KeyScope;
use shikiri_model::server::{McpServer, McpServerTransport, spec_url};
use shikiri_runtime::AppError;

use super::address_policy;
use crate::Executions;

/// Timeout for resolving a name.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(2);

impl Executions {
    /// Checks that a server's address is allowed; the error says why not. Names are resolved each
    /// time, since their addresses may change. Programs have no address and pass.
    pub(crate) async fn reachable(&self, server: &McpServer) -> Result<(), String> {
        match &server.transport {
            McpServerTransport::Http { url } | McpServerTransport::Sse { url } => {
                is_in_reach(url, server.allow_private).await
            }
            // An address inside a document is resolved when it is read, and at each call.
            McpServerTransport::Openapi { spec, url } => {
                for url in spec_url(spec).into_iter().chain(url.as_deref()) {
                    is_in_reach(url, server.allow_private).await?;
                }
                Ok(())
            }
            McpServerTransport::Stdio { .. } => Ok(()),
        }
    }
}

/// Checks that the address of a URL may be reached.
pub(super) async fn is_in_reach(url: &str, allow_private: bool) -> Result<(), String> {
    let uri = address_policy::uri(url)?;
    let found = tokio::time::timeout(LOOKUP_TIMEOUT, super::addresses(url, allow_private)).await;
    found.unwrap_or_else(|_| Err(slow(&uri))).map(drop)
}

fn slow(uri: &Uri) -> String {
    format!("the address of {} was not found within 2 s", uri.host().unwrap_or_default())
}

/// Refuses changes that need the admin key: a server that is or was a program, and one with
/// `allow_private`, unless it had that before and its transport stays the same.
pub(super) fn check_permission(
    by: &KeyScope,
    before: Option<&McpServer>,
    after: &McpServer,
) -> Result<(), AppError> {
    if *by == KeyScope::Admin {
        return Ok(());
    }
    let is_program =
        |server: &McpServer| matches!(server.transport, McpServerTransport::Stdio { .. });
    if before.is_some_and(is_program) || is_program(after) {
        return refuse("a server of type stdio starts a program here: making or changing one");
    }
    let is_unchanged =
        |before: &McpServer| before.allow_private && before.transport == after.transport;
    if after.allow_private && !before.is_some_and(is_unchanged) {
        return refuse("allow_private opens this machine's own network: setting it, or moving it,");
    }
    Ok(())
}

fn refuse(what: &str) -> Result<(), AppError> {
    Err(AppError::Forbidden(format!("{what} needs the admin key")))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use crate::test_support::executions_in;
    use shikiri_model::ids::{ServerId, TenantId};
    use shikiri_model::models::ActiveStatus;
    use shikiri_model::time::Timestamp;

    use super::*;

    fn server(transport: McpServerTransport, allow_private: bool) -> McpServer {
        McpServer {
            id: ServerId::mint(Timestamp::from_millis(0), [0; 10]),
            tenant: TenantId::local(),
            name: "s".to_owned(),
            transport,
            headers_template: BTreeMap::new(),
            allowed_tools: None,
            allow_private,
            status: ActiveStatus::Active,
        }
    }

    #[tokio::test]
    async fn a_private_address_is_within_reach_only_where_that_is_allowed() {
        let folder = tempfile::tempdir().unwrap();
        let executions = executions_in(folder.path()).await;
        let reach = async |url: &str, allow_private| {
            let http = server(McpServerTransport::Http { url: url.to_owned() }, allow_private);
            let sse = server(McpServerTransport::Sse { url: url.to_owned() }, allow_private);
            let (http, sse) = (executions.reachable(&http).await, executions.reachable(&sse).await);
            assert_eq!(http, sse);
            http
        };
        for url in [
            "http://127.0.0.1:1/",
            "http://localhost/mcp",
            "https://[::1]:8443/",
            "http://169.254.169.254/latest/meta-data",
            "http://10.0.0.1",
            "http://[fd00::1]/",
            "http://0.0.0.0:80/",
            "http://224.0.0.1/",
        ] {
            let refused = reach(url, false).await.unwrap_err();
            assert!(refused.contains("private address"), "{url}: {refused}");
            assert_eq!(reach(url, true).await, Ok(()), "{url}");
        }
        assert_eq!(reach("https://1.1.1.1/mcp", false).await, Ok(()));
        let unknown = reach("http://nowhere.invalid/", true).await.unwrap_err();
        assert!(unknown.contains("nowhere.invalid"), "{unknown}");
        let program = server(McpServerTransport::Stdio { command: vec!["x".to_owned()] }, false);
        assert_eq!(executions.reachable(&program).await, Ok(()));
    }
}
