//! What of this machine and its network a tenant's servers may use: programs and private addresses
//! are the admin's to give.

use std::time::Duration;

use hyper::Uri;
use shikiri_model::key::KeyScope;
use shikiri_model::server::{McpServer, Transport, spec_url};

use super::address;
use crate::app::App;
use crate::error::AppError;

/// For finding out where a name points.
const LOOKUP: Duration = Duration::from_secs(2);

impl App {
    /// Whether a server is at an address that it may be at; the error says why not. Names are looked
    /// up each time, since they may point elsewhere by now. Programs have no address and pass.
    pub(crate) async fn reachable(&self, server: &McpServer) -> Result<(), String> {
        match &server.transport {
            Transport::Http { url } | Transport::Sse { url } => {
                is_in_reach(url, server.allow_private).await
            }
            // The address in a document is looked up when that is read, and at each call.
            Transport::Openapi { spec, url } => {
                for url in spec_url(spec).into_iter().chain(url.as_deref()) {
                    is_in_reach(url, server.allow_private).await?;
                }
                Ok(())
            }
            Transport::Stdio { .. } => Ok(()),
        }
    }
}

/// Whether an address may be reached.
pub(super) async fn is_in_reach(url: &str, allow_private: bool) -> Result<(), String> {
    let uri = address::uri(url)?;
    let found = tokio::time::timeout(LOOKUP, address::resolve(&uri, allow_private)).await;
    found.unwrap_or_else(|_| Err(slow(&uri))).map(drop)
}

fn slow(uri: &Uri) -> String {
    format!("the address of {} was not found within 2 s", uri.host().unwrap_or_default())
}

/// Refuses a tenant what is the admin's: a server that is or was a program, and one that may be at a
/// private address, unless it was so before and stays where it is.
pub(super) fn permit(
    by: &KeyScope,
    before: Option<&McpServer>,
    after: &McpServer,
) -> Result<(), AppError> {
    if *by == KeyScope::Admin {
        return Ok(());
    }
    let is_program = |server: &McpServer| matches!(server.transport, Transport::Stdio { .. });
    if before.is_some_and(is_program) || is_program(after) {
        return refuse("a server of type stdio starts a program here: making or changing one");
    }
    let stays = |before: &McpServer| before.allow_private && before.transport == after.transport;
    if after.allow_private && !before.is_some_and(stays) {
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
    use std::sync::Arc;

    use shikiri_model::ids::{ServerId, TenantId};
    use shikiri_model::models::Status;
    use shikiri_model::time::Timestamp;
    use shikiri_store::sqlite::{SqliteOptions, SqliteStore};

    use super::*;
    use crate::app::AppOptions;

    fn server(transport: Transport, allow_private: bool) -> McpServer {
        McpServer {
            id: ServerId::mint(Timestamp::from_millis(0), [0; 10]),
            tenant: TenantId::local(),
            name: "s".to_owned(),
            transport,
            headers_template: BTreeMap::new(),
            allowed_tools: None,
            allow_private,
            status: Status::Active,
        }
    }

    #[tokio::test]
    async fn a_private_address_is_within_reach_only_where_that_is_allowed() {
        let folder = tempfile::tempdir().unwrap();
        let store = SqliteStore::open(&folder.path().join("state.db"), SqliteOptions::default());
        let app = App::new(Arc::new(store.unwrap()), Vec::new(), AppOptions::default());
        let reach = async |url: &str, allow_private| {
            let http = server(Transport::Http { url: url.to_owned() }, allow_private);
            let sse = server(Transport::Sse { url: url.to_owned() }, allow_private);
            let (http, sse) = (app.reachable(&http).await, app.reachable(&sse).await);
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
        let program = server(Transport::Stdio { command: vec!["x".to_owned()] }, false);
        assert_eq!(app.reachable(&program).await, Ok(()));
    }
}
