//! Tool calls at a tenant's MCP server, through the shared MCP client. There is no user to ask, so
//! the client offers neither elicitation nor sampling. Progress and logs are discarded.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use serde_json::{Map, Value};
use shikiri_client::{
    CallHandler, CallOwnershipLost, ClientError, ClientToolCall, FollowOutcome, ServerConnection,
    ServerTool, ServerToolList, follow_call,
};
use shikiri_model::host::{
    CallEvent, CallOutcome, ElicitationForm, FormAnswer, HostCall, HostCallState, ResumeMethod,
    ResumePoint, ServerSpec,
};
use shikiri_model::ids::{HostCallId, TenantId};
use shikiri_model::time::Timestamp;
use shikiri_runtime::entropy;
use tokio::sync::Mutex as AsyncMutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::tool_results::from_mcp_result;
use crate::execution::{ResolvedServer, ToolCallResult};
use crate::servers::mcp_target::{AddressScope, McpTarget};

/// Timeout for connecting and listing the tools. A program may have to be downloaded first.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(45);
/// Connections that one call may use.
const MAX_TRIES: usize = 4;

pub(super) struct McpLink {
    target: McpTarget,
    server: AsyncMutex<Arc<ServerConnection>>,
    /// The time limit of one call.
    limit: Duration,
}

impl McpLink {
    /// Connects to a server and lists its tools. A program works in `folder`.
    pub(super) async fn connect(
        resolved: &ResolvedServer,
        folder: &Path,
        limit: Duration,
    ) -> Result<(Self, ServerToolList), String> {
        let scope = match (resolved.is_own, resolved.allow_private) {
            (true, _) => AddressScope::Own,
            (false, true) => AddressScope::Any,
            (false, false) => AddressScope::Public,
        };
        let target =
            McpTarget::find(&resolved.name, &resolved.transport, &resolved.headers, scope, folder);
        let target = target.await?;
        let connecting = async {
            let server = target.connect().await?;
            let offer = server.tools().await?;
            Ok::<_, ClientError>((server, offer))
        };
        let connect_timeout = CONNECT_TIMEOUT.min(limit);
        let connected = tokio::time::timeout(connect_timeout, connecting).await;
        let connected = connected.unwrap_or(Err(ClientError::Slow(connect_timeout.as_secs())));
        let (server, offer) = connected.map_err(|error| error.to_string())?;
        let server = AsyncMutex::new(Arc::new(server));
        Ok((Self { target, server, limit }, offer))
    }

    /// Calls a tool. Dropping the future cancels the call at the server.
    pub(super) async fn call(
        self: &Arc<Self>,
        tool: &ServerTool,
        arguments: Map<String, Value>,
    ) -> ToolCallResult {
        let cancel = CancellationToken::new();
        let _guard = cancel.clone().drop_guard();
        let (link, tool) = (Arc::clone(self), tool.clone());
        // The task ends soon after it is cancelled: a server has five seconds to acknowledge.
        let following = tokio::spawn(async move { link.follow(&tool, arguments, &cancel).await });
        match following.await {
            Ok(answer) => answer.unwrap_or_else(ToolCallResult::error),
            Err(error) => ToolCallResult::error(format!("the call broke off: {error}")),
        }
    }

    async fn follow(
        &self,
        tool: &ServerTool,
        arguments: Map<String, Value>,
        cancel: &CancellationToken,
    ) -> Result<ToolCallResult, String> {
        let recorder = MemoryCallRecorder::new(&self.target.spec, tool, arguments)
            .map_err(|error| error.to_string())?;
        let deadline = Instant::now() + self.limit;
        let mut server = Arc::clone(&*self.server.lock().await);
        for _ in 0..MAX_TRIES {
            let call = recorder.read();
            let tool_call = ClientToolCall {
                tool: &tool.name,
                schema: Some(&tool.input_schema),
                arguments: &call.arguments,
                repeatable: tool.is_repeatable,
                key: call.id.as_str(),
                bookmark: &call.bookmark,
                deadline,
                cancel,
            };
            match follow_call(&server, &tool_call, &recorder).await {
                FollowOutcome::Over(CallOutcome::Answered(result)) => {
                    return Ok(from_mcp_result(&result));
                }
                FollowOutcome::Over(
                    CallOutcome::Failed { reason } | CallOutcome::Lost { reason },
                ) => {
                    return Err(reason);
                }
                FollowOutcome::Over(CallOutcome::Cancelled) => {
                    return Err("the call was cancelled".to_owned());
                }
                FollowOutcome::LetGo(why) => return Err(why.to_string()),
                FollowOutcome::Away(error) => return Err(error.to_string()),
                FollowOutcome::Reconnect(_) => {
                    let again = self.reconnect(&server, &recorder.read()).await;
                    server = again.map_err(|error| error.to_string())?;
                }
            }
        }
        Err("the connection broke again and again".to_owned())
    }

    /// Makes a new connection, unless another call has made one meanwhile.
    async fn reconnect(
        &self,
        broken: &Arc<ServerConnection>,
        call: &HostCall,
    ) -> Result<Arc<ServerConnection>, ClientError> {
        let bookmark = &call.bookmark;
        if let (ResumeMethod::Stream { session, .. }, Some(protocol)) =
            (bookmark.resume_method(call.repeatable), &bookmark.protocol)
        {
            return self.target.resume_session(protocol, session).map(Arc::new);
        }
        let mut current = self.server.lock().await;
        if Arc::ptr_eq(&current, broken) {
            *current = Arc::new(self.target.connect().await?);
        }
        Ok(Arc::clone(&current))
    }

    pub(super) async fn close(&self) {
        let server = Arc::clone(&*self.server.lock().await);
        server.close(true).await;
    }
}

/// The state of a call, in memory only: enough to continue it over another connection.
struct MemoryCallRecorder(Mutex<HostCall>);

impl MemoryCallRecorder {
    fn new(
        spec: &ServerSpec,
        tool: &ServerTool,
        arguments: Map<String, Value>,
    ) -> Result<Self, shikiri_runtime::AppError> {
        Ok(Self(Mutex::new(HostCall {
            id: HostCallId::mint(Timestamp::default(), entropy()?),
            tenant: TenantId::local(),
            server: spec.name.clone(),
            endpoint: spec.reach.endpoint(),
            tool: tool.name.clone(),
            arguments,
            repeatable: tool.is_repeatable,
            state: HostCallState::Open,
            bookmark: ResumePoint::default(),
            progress: None,
            told: 0,
            deadline: Timestamp::default(),
            result: None,
            reason: None,
        })))
    }

    fn read(&self) -> HostCall {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

#[async_trait]
impl CallHandler for MemoryCallRecorder {
    async fn record_events(&self, events: Vec<CallEvent>) -> Result<(), CallOwnershipLost> {
        let mut call = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for one in &events {
            call.apply_event(one);
        }
        Ok(())
    }

    async fn ask(&self, _form: &ElicitationForm) -> FormAnswer {
        FormAnswer::Decline(Map::new())
    }

    async fn visit(&self, _message: &str, _url: &str) -> FormAnswer {
        FormAnswer::Decline(Map::new())
    }

    async fn sample(&self, _params: &Value) -> Result<Value, String> {
        Err("no model can be asked here".to_owned())
    }
}

#[cfg(test)]
#[path = "mcp_link_tests.rs"]
mod older_transport_tests;
