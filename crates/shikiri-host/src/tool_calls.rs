//! Making a call, and resuming a call of another process.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value};
use shikiri_client::{
    ClientError, ClientToolCall, FollowOutcome, ServerConnection, ServerTool, ServerToolList,
    follow_call,
};
use shikiri_model::host::{
    CallEvent, CallOutcome, HostCall, HostCallState, ResumeMethod, ResumePoint,
};
use shikiri_model::ids::HostCallId;
use shikiri_model::record::StoredDocument;
use shikiri_runtime::{AppError, entropy};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::call_recorder::CallRecorder;
use super::user_interaction::UserInteraction;
use super::{Host, HostError};

/// Connections in a row that a call may use without progress.
const MAX_RECONNECTS: u32 = 8;
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// The time to follow a call whose deadline passed while no process followed it: its answer may be
/// available.
const LAST_LOOK: Duration = Duration::from_secs(10);

pub struct NewToolCall {
    pub server: String,
    pub tool: String,
    pub arguments: Map<String, Value>,
    /// For the whole call, including questions to the user.
    pub time_limit: Duration,
}

/// The result of following a call.
pub enum CallFollowResult {
    /// It is over.
    Ended(StoredDocument<HostCall>),
    /// It continues, but no longer in this process.
    LetGo { call: StoredDocument<HostCall>, why: String },
}

impl Host {
    /// Calls a tool and follows the call to its end. May be dropped: `resume_call` continues it.
    pub async fn call_tool(
        &self,
        new: NewToolCall,
        user: &dyn UserInteraction,
        cancel: &CancellationToken,
    ) -> Result<CallFollowResult, HostError> {
        let id = self.mint_call().await?;
        self.call_tool_as(id, new, user, cancel).await
    }

    pub(super) async fn mint_call(&self) -> Result<HostCallId, AppError> {
        let now = self.runtime.store().now().await?;
        Ok(HostCallId::mint(now, entropy()?))
    }

    /// The same under an id that was stored before, so that the call can be found by it.
    pub(super) async fn call_tool_as(
        &self,
        id: HostCallId,
        new: NewToolCall,
        user: &dyn UserInteraction,
        cancel: &CancellationToken,
    ) -> Result<CallFollowResult, HostError> {
        let connecting = async {
            let server = Box::pin(self.connect(&new.server)).await?;
            let tool = self.approved_tool(&server, &new.tool, user).await?;
            Ok::<_, HostError>((server, tool))
        };
        let connection = tokio::select! {
            connection = tokio::time::timeout(new.time_limit, connecting) => connection,
            () = cancel.cancelled() => {
                return Err(HostError::Cancelled { server: new.server, tool: new.tool });
            }
        };
        let slow = || self.server_error(&new.server, ClientError::Slow(new.time_limit.as_secs()));
        let (server, tool) = connection.map_err(|_| slow())??;
        let now = self.runtime.store().now().await.map_err(AppError::from)?;
        let call = HostCall {
            id,
            tenant: self.tenant.clone(),
            server: new.server,
            endpoint: self.spec(server.name())?.reach.endpoint(),
            tool: new.tool,
            arguments: new.arguments,
            repeatable: tool.is_repeatable,
            state: HostCallState::Open,
            bookmark: ResumePoint::default(),
            progress: None,
            told: 0,
            deadline: now + new.time_limit,
            result: None,
            reason: None,
        };
        let stored = self.add_call(&call).await?;
        let connection = Some((server, tool));
        Box::pin(self.follow(stored, connection, new.time_limit, user, cancel)).await
    }

    /// Resumes a call of another process, for `time_limit` or until the call's own deadline.
    pub async fn resume_call(
        &self,
        id: &HostCallId,
        time_limit: Option<Duration>,
        user: &dyn UserInteraction,
        cancel: &CancellationToken,
    ) -> Result<CallFollowResult, HostError> {
        let stored = self.call(id).await?;
        if !stored.value.is_open() {
            return Ok(CallFollowResult::Ended(stored));
        }
        let spec = self.spec(&stored.value.server)?;
        if spec.reach.endpoint() != stored.value.endpoint {
            let reason = format!(
                "{} is now another place than when the call was made ({}): its tokens mean nothing there",
                stored.value.server, stored.value.endpoint
            );
            return self.end(stored, CallOutcome::Lost { reason }, user).await;
        }
        // This new version tells the previous process that the call was taken over.
        let taken = self.persist_call_events(&stored, &[]).await?;
        let Some((stored, _)) = taken else {
            return Err(HostError::Call("another process has just taken this call up".to_owned()));
        };
        let now = self.runtime.store().now().await.map_err(AppError::from)?;
        let left = time_limit.unwrap_or_else(|| stored.value.deadline.since(now).max(LAST_LOOK));
        Box::pin(self.follow(stored, None, left, user, cancel)).await
    }

    async fn end(
        &self,
        stored: StoredDocument<HostCall>,
        outcome: CallOutcome,
        user: &dyn UserInteraction,
    ) -> Result<CallFollowResult, HostError> {
        let recorder = CallRecorder::new(self, stored, user);
        let recorded =
            shikiri_client::CallHandler::record_events(&recorder, vec![CallEvent::Ended(outcome)])
                .await;
        let call = recorder.current_call().await;
        match recorded {
            Ok(()) => Ok(CallFollowResult::Ended(call)),
            Err(why) => Ok(CallFollowResult::LetGo { call, why: why.to_string() }),
        }
    }

    /// Follows a call to its end, with new connections if necessary.
    async fn follow(
        &self,
        stored: StoredDocument<HostCall>,
        mut connection: Option<(Arc<ServerConnection>, ServerTool)>,
        time_limit: Duration,
        user: &dyn UserInteraction,
        cancel: &CancellationToken,
    ) -> Result<CallFollowResult, HostError> {
        let deadline = Instant::now() + time_limit;
        let key = stored.value.id.to_string();
        let recorder = CallRecorder::new(self, stored, user);
        let mut pause = FIRST_PAUSE;
        let mut why = ClientError::SessionGone;
        let mut is_away = false;
        let mut in_vain = 0;
        while in_vain < MAX_RECONNECTS {
            in_vain += 1;
            let received_events = recorder.received_events();
            let current = recorder.current_call().await;
            let connected = match connection.take() {
                Some((server, tool)) => Ok((server, Some(tool))),
                None => tokio::select! {
                    reached = self.reach(&current.value, user) => reached,
                    () = cancel.cancelled() => break,
                },
            };
            let (server, tool) = match connected {
                Ok(connected) => connected,
                Err(HostError::Server { error, .. }) if error.is_transient() => {
                    is_away = true;
                    why = error;
                    if Instant::now() + pause >= deadline || !slept(pause, cancel).await {
                        break;
                    }
                    pause = (pause * 2).min(LONGEST_PAUSE);
                    continue;
                }
                Err(other) => return Err(other),
            };
            let tool_call = ClientToolCall {
                tool: &current.value.tool,
                schema: tool.as_ref().map(|tool| &tool.input_schema),
                arguments: &current.value.arguments,
                repeatable: current.value.repeatable,
                key: &key,
                bookmark: &current.value.bookmark,
                deadline,
                cancel,
            };
            match follow_call(&server, &tool_call, &recorder).await {
                FollowOutcome::Over(_) => {
                    return Ok(CallFollowResult::Ended(recorder.current_call().await));
                }
                FollowOutcome::LetGo(let_go) => {
                    let call = recorder.current_call().await;
                    return Ok(CallFollowResult::LetGo { call, why: let_go.to_string() });
                }
                FollowOutcome::Away(error) => return Err(self.away(&current.value, error)),
                FollowOutcome::Reconnect(error) => {
                    self.disconnect(&current.value.server).await;
                    is_away = false;
                    why = error;
                    if recorder.received_events() > received_events {
                        (in_vain, pause) = (0, FIRST_PAUSE);
                    }
                    if !slept(pause, cancel).await {
                        break;
                    }
                    pause = (pause * 2).min(LONGEST_PAUSE);
                }
            }
        }
        let call = recorder.current_call().await;
        if is_away && !cancel.is_cancelled() && Instant::now() < deadline {
            return Err(self.away(&call.value, why));
        }
        let outcome = match cancel.is_cancelled() {
            true => CallOutcome::Cancelled,
            false => CallOutcome::Failed { reason: why.to_string() },
        };
        self.end(call, outcome, user).await
    }

    /// The error for a server that cannot be reached. The call stays open.
    fn away(&self, call: &HostCall, error: ClientError) -> HostError {
        let kept =
            |why: String| format!("{why} (the call is kept: `shikiri host resume {}`)", call.id);
        let error = match error {
            ClientError::Unauthorized(why) => ClientError::Unauthorized(kept(why)),
            ClientError::Unreachable(why) => ClientError::Unreachable(kept(why)),
            other => ClientError::Unreachable(kept(other.to_string())),
        };
        self.server_error(&call.server, error)
    }

    /// A connection that suits how the call is resumed.
    async fn reach(
        &self,
        call: &HostCall,
        user: &dyn UserInteraction,
    ) -> Result<(Arc<ServerConnection>, Option<ServerTool>), HostError> {
        let spec = self.spec(&call.server)?;
        let bookmark = &call.bookmark;
        if let (ResumeMethod::Stream { session, .. }, Some(protocol)) =
            (bookmark.resume_method(call.repeatable), &bookmark.protocol)
        {
            let introduction = self.introduction_to(&call.server);
            let rejoined = ServerConnection::resume_session(
                spec,
                &introduction,
                &self.next_prefix(),
                protocol,
                session,
            );
            let server = rejoined.map_err(|error| self.server_error(&call.server, error))?;
            return Ok((Arc::new(server), None));
        }
        let server = self.connect(&call.server).await?;
        // A task or a run is followed without the tool; sending the call needs its schema.
        let tool = match bookmark.resume_method(call.repeatable) {
            ResumeMethod::Send(_) => Some(self.approved_tool(&server, &call.tool, user).await?),
            _ => None,
        };
        Ok((server, tool))
    }

    /// One of a server's tools.
    pub async fn tool(&self, server: &str, name: &str) -> Result<ServerTool, HostError> {
        let server = self.connect(server).await?;
        let offer =
            server.tools().await.map_err(|error| self.server_error(server.name(), error))?;
        self.find_tool(server.name(), offer, name)
    }

    pub(super) fn find_tool(
        &self,
        server: &str,
        offer: ServerToolList,
        name: &str,
    ) -> Result<ServerTool, HostError> {
        let near = nearest(name, offer.tools.iter().map(|tool| tool.name.as_str()));
        let found = offer.tools.into_iter().find(|tool| tool.name == name);
        let (server, tool) = (server.to_owned(), name.to_owned());
        found.ok_or(HostError::NoTool { server, tool, near })
    }
}

/// Sleeps. False if the caller cancelled meanwhile.
async fn slept(pause: Duration, cancel: &CancellationToken) -> bool {
    tokio::select! {
        () = tokio::time::sleep(pause) => true,
        () = cancel.cancelled() => false,
    }
}

/// The known name most similar to `name`.
fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<String> {
    let likeness = |other: &str| {
        let (a, b) = (name.to_lowercase(), other.to_lowercase());
        let shared = a.chars().zip(b.chars()).take_while(|(a, b)| a == b).count();
        if b.contains(&a) || a.contains(&b) { shared + 3 } else { shared }
    };
    let best = known.map(|other| (likeness(other), other)).max_by_key(|(likeness, _)| *likeness);
    best.filter(|(likeness, _)| *likeness >= 3).map(|(_, other)| other.to_owned())
}
