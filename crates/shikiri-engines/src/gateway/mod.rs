//! The gateway of one run: a loopback HTTP server between the run's programs and the network. The
//! gateway and its token exist as long as the run.
//!
//! - It forwards requests for the model API and adds the operator's credential (`model_api`), so that
//!   the run holds none (`run_environment`).
//! - It is the run's HTTP proxy (`egress_proxy`). The tenant's policy decides about connections
//!   (`egress_rules`).
//!
//! A [`ModelApiObserver`] can observe the traffic of the model API.

mod egress_proxy;
mod egress_rules;
mod gateway_server;
mod model_api;
mod model_api_observer;
mod run_environment;
mod run_token;

use std::net::Ipv4Addr;
use std::sync::Arc;

use shikiri_executions::execution::{EngineError, TurnRequest};
use tokio::net::TcpListener;
use tokio_util::task::AbortOnDropHandle;

pub use model_api_observer::{ModelApiObserver, ModelCallId, NoObserver};
pub use run_environment::is_credential_name;

use crate::claude_login::ClaudeLogin;
use crate::messages::http_clients::HttpClients;
use crate::messages::{AwsCredentialSources, BEDROCK_SWITCH, ModelApiUpstream};
use egress_rules::EgressRules;
use model_api::ModelApi;
use run_environment::{RunEnvironment, TokenUse};
use run_token::RunToken;

/// An open gateway. Dropping it closes the listener and all connections.
pub(crate) struct RunGateway {
    _server: AbortOnDropHandle<()>,
    upstream: ModelApiUpstream,
}

/// What all connections of a gateway share.
struct GatewayState {
    port: u16,
    token: RunToken,
    model_api: ModelApi,
    egress: EgressRules,
}

impl RunGateway {
    /// Opens a gateway. Returns the request as the run may see it: its environment holds the gateway's
    /// address and token in place of the operator's credentials.
    pub(crate) async fn open(
        mut request: TurnRequest,
        clients: &HttpClients,
        aws: &AwsCredentialSources,
        observer: Arc<dyn ModelApiObserver>,
        login: Option<&ClaudeLogin>,
    ) -> Result<(Self, TurnRequest), EngineError> {
        let failed = |error: &dyn std::fmt::Display| {
            EngineError::new(format!("the gateway of the run cannot be opened: {error}"))
        };
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await;
        let listener = listener.map_err(|error| failed(&error))?;
        let address = listener.local_addr().map_err(|error| failed(&error))?;
        let token = RunToken::random().map_err(|error| failed(&error))?;
        let model_api = ModelApi::new(&request, clients, aws, observer, login).await;
        let model_api = model_api.map_err(|failure| EngineError::new(failure.to_string()))?;
        let egress = EgressRules::new(&request);

        let run_env = RunEnvironment::of(&request.env, &request.model);
        request.secrets.extend(run_env.withheld);
        request.env = run_env.visible;
        if login.is_some() {
            request.env.remove(BEDROCK_SWITCH);
        }
        let token_use = match login {
            Some(_) => TokenUse::Login,
            None if model_api.is_bedrock() => TokenUse::Bedrock,
            None => TokenUse::ApiKey,
        };
        let variables =
            run_environment::gateway_variables(address.port(), token.reveal(), token_use);
        request.env.extend(variables);
        request.loopback_ports.push(address.port());

        let upstream = model_api.upstream().clone();
        let state = GatewayState { port: address.port(), token, model_api, egress };
        let server = tokio::spawn(gateway_server::serve(listener, Arc::new(state)));
        Ok((Self { _server: AbortOnDropHandle::new(server), upstream }, request))
    }

    /// The model API that the gateway calls.
    pub(crate) fn upstream(&self) -> ModelApiUpstream {
        self.upstream.clone()
    }
}

#[cfg(test)]
mod tests;
