//! The player's MCP client, for the tools of its own server.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};
use shikiri_client::{ClientError, ClientOptions, ServerConnection};
use shikiri_model::host::{HostTransport, OAuthSpec, ServerSpec};

pub(super) struct ToolClient {
    server: ServerConnection,
}

/// Why a tool call failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum Trouble {
    /// The tool refused.
    #[error("{code}: {message}")]
    Refused { code: String, message: String },
    /// The server's answer was invalid.
    #[error("{0}")]
    Broken(String),
}

/// A server that is busy or starting may refuse a connection.
const MAX_TRIES: u32 = 5;
const PAUSE: Duration = Duration::from_millis(200);
/// The prefix of request ids. A player is alone in its session.
const PREFIX: &str = "player";

impl From<ClientError> for Trouble {
    fn from(error: ClientError) -> Self {
        Self::Broken(error.to_string())
    }
}

impl ToolClient {
    pub(super) async fn open(url: &str, token: &str) -> Result<Self, Trouble> {
        let headers = BTreeMap::from([("Authorization".to_owned(), format!("Bearer {token}"))]);
        let spec = ServerSpec {
            name: "shikiri".to_owned(),
            reach: HostTransport::Http { url: url.to_owned(), headers },
            oauth: OAuthSpec::default(),
        };
        let options = ClientOptions {
            name: "shikiri-player".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            elicitation: false,
            sampling: false,
            authority: None,
            protocol: None,
            addresses: Vec::new(),
        };
        let server =
            until_reached(async || ServerConnection::connect(&spec, &options, PREFIX).await);
        Ok(Self { server: server.await? })
    }

    /// Closes the connection for good.
    pub(super) async fn close(&self) {
        self.server.close(true).await;
    }

    pub(super) async fn has_tool(&self, name: &str) -> Result<bool, Trouble> {
        Ok(until_reached(async || self.server.tool(name).await).await?.is_some())
    }

    /// Calls a tool and returns its structured result.
    pub(super) async fn call(&self, tool: &str, arguments: &Value) -> Result<Value, Trouble> {
        let params = json!({ "name": tool, "arguments": arguments });
        let answer =
            until_reached(async || self.server.send_request("tools/call", params.clone()).await);
        let answer = answer.await?;
        let content = &answer["structuredContent"];
        if answer["isError"] != json!(true) {
            return Ok(content.clone());
        }
        let text = |field: &str| content["error"][field].as_str().unwrap_or_default().to_owned();
        match text("code") {
            code if code.is_empty() => Err(Trouble::Broken(answer["content"].to_string())),
            code => Err(Trouble::Refused { code, message: text("message") }),
        }
    }
}

/// Retries a request only if it did not reach the server.
async fn until_reached<T>(
    request: impl AsyncFn() -> Result<T, ClientError>,
) -> Result<T, ClientError> {
    let mut tries = 1;
    loop {
        match request().await {
            Err(ClientError::Unreachable(_)) if tries < MAX_TRIES => {
                tries += 1;
                tokio::time::sleep(PAUSE).await;
            }
            outcome => return outcome,
        }
    }
}
