//! The gateway of one run: a loopback HTTP server that stands between what an engine starts and the
//! outside. It lives as long as the run, and so does its token.
//!
//! - It forwards requests for the model API and adds the operator's credential on this side
//!   (`model_api`), so that none has to be inside the run (`environment`).
//! - It is the run's HTTP proxy. Whether a connection is allowed is the tenant's `egress` policy
//!   (`egress`, `proxy`).
//!
//! `observer` is where traffic of the model API can be looked at.

mod egress;
mod environment;
mod model_api;
mod observer;
mod proxy;
mod server;
mod token;

use std::net::Ipv4Addr;
use std::sync::Arc;

use shikiri_app::execution::{EngineError, Order};
use tokio::net::TcpListener;
use tokio_util::task::AbortOnDropHandle;

pub use environment::is_credential_name;
pub use observer::{ModelApiObserver, ModelCallId, NoObserver};

use crate::claude_login::ClaudeLogin;
use crate::messages::http::HttpClients;
use crate::messages::{AwsCredentialSources, BEDROCK_SWITCH, Upstream};
use egress::EgressRules;
use environment::{RunEnvironment, TokenUse};
use model_api::ModelApi;
use token::RunToken;

/// An open gateway. Dropped, nothing listens any more and its connections are closed.
pub(crate) struct RunGateway {
    _server: AbortOnDropHandle<()>,
    upstream: Upstream,
}

/// What all connections of a gateway share.
struct GatewayState {
    port: u16,
    token: RunToken,
    model_api: ModelApi,
    egress: EgressRules,
}

impl RunGateway {
    /// Opens a gateway for an order, and gives the order as the run may see it: its environment
    /// holds the gateway's address and token where the operator's credentials were.
    pub(crate) async fn open(
        mut order: Order,
        clients: &HttpClients,
        aws: &AwsCredentialSources,
        observer: Arc<dyn ModelApiObserver>,
        login: Option<&ClaudeLogin>,
    ) -> Result<(Self, Order), EngineError> {
        let failed = |error: &dyn std::fmt::Display| {
            EngineError::new(format!("the gateway of the run cannot be opened: {error}"))
        };
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await;
        let listener = listener.map_err(|error| failed(&error))?;
        let address = listener.local_addr().map_err(|error| failed(&error))?;
        let token = RunToken::random().map_err(|error| failed(&error))?;
        let model_api = ModelApi::new(&order, clients, aws, observer, login).await;
        let model_api = model_api.map_err(|failure| EngineError::new(failure.to_string()))?;
        let egress = EgressRules::new(&order);

        let seen = RunEnvironment::of(&order.env, &order.model);
        order.secrets.extend(seen.withheld);
        order.env = seen.visible;
        if login.is_some() {
            order.env.remove(BEDROCK_SWITCH);
        }
        let token_use = match login {
            Some(_) => TokenUse::Login,
            None if model_api.is_bedrock() => TokenUse::Bedrock,
            None => TokenUse::ApiKey,
        };
        let variables = environment::gateway_variables(address.port(), token.reveal(), token_use);
        order.env.extend(variables);
        order.loopback_ports.push(address.port());

        let upstream = model_api.upstream().clone();
        let state = GatewayState { port: address.port(), token, model_api, egress };
        let server = tokio::spawn(server::serve(listener, Arc::new(state)));
        Ok((Self { _server: AbortOnDropHandle::new(server), upstream }, order))
    }

    /// What the gateway calls, with the credentials that it has.
    pub(crate) fn upstream(&self) -> Upstream {
        self.upstream.clone()
    }
}

#[cfg(test)]
mod tests;
