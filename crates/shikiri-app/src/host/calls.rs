//! Making a call, and taking one up that another process left.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value};
use shikiri_client::{ClientError, End, Offer, Order, Server, Tool, follow};
use shikiri_model::host::{Bookmark, CallState, HostCall, News, Outcome, Way};
use shikiri_model::ids::HostCallId;
use shikiri_model::record::Stored;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::audience::Audience;
use super::notebook::Notebook;
use super::{Host, HostError};
use crate::app::entropy;
use crate::error::AppError;

/// Connections that one call may use up in a row without getting anywhere.
const MAX_RECONNECTS: u32 = 8;
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// For a call whose time ran out while nobody followed it: its answer may be there.
const LAST_LOOK: Duration = Duration::from_secs(10);

pub struct NewCall {
    pub server: String,
    pub tool: String,
    pub arguments: Map<String, Value>,
    /// In all, questions to people included.
    pub time_limit: Duration,
}

/// What became of following a call.
pub enum Called {
    /// It is over.
    Ended(Stored<HostCall>),
    /// It goes on without us.
    LetGo { call: Stored<HostCall>, why: String },
}

impl Host {
    /// Calls a tool and follows the call to its end. May be dropped: `resume` takes it up.
    pub async fn call_tool(
        &self,
        new: NewCall,
        audience: &dyn Audience,
        cancel: &CancellationToken,
    ) -> Result<Called, HostError> {
        let id = self.mint_call().await?;
        self.call_tool_as(id, new, audience, cancel).await
    }

    pub(super) async fn mint_call(&self) -> Result<HostCallId, AppError> {
        let now = self.app.store.now().await?;
        Ok(HostCallId::mint(now, entropy()?))
    }

    /// The same under an id that was noted down before, so that whoever noted it finds the call.
    pub(super) async fn call_tool_as(
        &self,
        id: HostCallId,
        new: NewCall,
        audience: &dyn Audience,
        cancel: &CancellationToken,
    ) -> Result<Called, HostError> {
        let meeting = async {
            let server = Box::pin(self.connect(&new.server)).await?;
            let tool = self.agreed_tool(&server, &new.tool, audience).await?;
            Ok::<_, HostError>((server, tool))
        };
        let met = tokio::select! {
            met = tokio::time::timeout(new.time_limit, meeting) => met,
            () = cancel.cancelled() => {
                return Err(HostError::Cancelled { server: new.server, tool: new.tool });
            }
        };
        let slow = || self.told(&new.server, ClientError::Slow(new.time_limit.as_secs()));
        let (server, tool) = met.map_err(|_| slow())??;
        let now = self.app.store.now().await.map_err(AppError::from)?;
        let call = HostCall {
            id,
            tenant: self.tenant.clone(),
            server: new.server,
            endpoint: self.spec(server.name())?.reach.endpoint(),
            tool: new.tool,
            arguments: new.arguments,
            repeatable: tool.is_repeatable,
            state: CallState::Open,
            bookmark: Bookmark::default(),
            progress: None,
            told: 0,
            deadline: now + new.time_limit,
            result: None,
            reason: None,
        };
        let stored = self.add_call(&call).await?;
        let met = Some((server, tool));
        Box::pin(self.follow(stored, met, new.time_limit, audience, cancel)).await
    }

    /// Takes up a call where another process left it, for so long, or until its own time is over.
    pub async fn resume_call(
        &self,
        id: &HostCallId,
        time_limit: Option<Duration>,
        audience: &dyn Audience,
        cancel: &CancellationToken,
    ) -> Result<Called, HostError> {
        let stored = self.call(id).await?;
        if !stored.value.is_open() {
            return Ok(Called::Ended(stored));
        }
        let spec = self.spec(&stored.value.server)?;
        if spec.reach.endpoint() != stored.value.endpoint {
            let reason = format!(
                "{} is now another place than when the call was made ({}): its tokens mean nothing there",
                stored.value.server, stored.value.endpoint
            );
            return self.end(stored, Outcome::Lost { reason }, audience).await;
        }
        // Whoever followed it until now finds that it was taken up.
        let taken = self.keep(&stored, &[]).await?;
        let Some((stored, _)) = taken else {
            return Err(HostError::Call("another process has just taken this call up".to_owned()));
        };
        let now = self.app.store.now().await.map_err(AppError::from)?;
        let left = time_limit.unwrap_or_else(|| stored.value.deadline.since(now).max(LAST_LOOK));
        Box::pin(self.follow(stored, None, left, audience, cancel)).await
    }

    async fn end(
        &self,
        stored: Stored<HostCall>,
        outcome: Outcome,
        audience: &dyn Audience,
    ) -> Result<Called, HostError> {
        let notebook = Notebook::new(self, stored, audience);
        let noted = shikiri_client::Witness::note(&notebook, vec![News::Ended(outcome)]).await;
        let call = notebook.page().await;
        match noted {
            Ok(()) => Ok(Called::Ended(call)),
            Err(why) => Ok(Called::LetGo { call, why: why.to_string() }),
        }
    }

    /// Follows a call over as many connections as it takes.
    async fn follow(
        &self,
        stored: Stored<HostCall>,
        mut met: Option<(Arc<Server>, Tool)>,
        time_limit: Duration,
        audience: &dyn Audience,
        cancel: &CancellationToken,
    ) -> Result<Called, HostError> {
        let deadline = Instant::now() + time_limit;
        let key = stored.value.id.to_string();
        let notebook = Notebook::new(self, stored, audience);
        let mut pause = FIRST_PAUSE;
        let mut why = ClientError::SessionGone;
        let mut is_away = false;
        let mut in_vain = 0;
        while in_vain < MAX_RECONNECTS {
            in_vain += 1;
            let heard = notebook.heard();
            let page = notebook.page().await;
            let connected = match met.take() {
                Some((server, tool)) => Ok((server, Some(tool))),
                None => tokio::select! {
                    reached = self.reach(&page.value, audience) => reached,
                    () = cancel.cancelled() => break,
                },
            };
            let (server, tool) = match connected {
                Ok(connected) => connected,
                Err(HostError::Server { error, .. }) if error.is_passing() => {
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
            let order = Order {
                tool: &page.value.tool,
                schema: tool.as_ref().map(|tool| &tool.input_schema),
                arguments: &page.value.arguments,
                repeatable: page.value.repeatable,
                key: &key,
                bookmark: &page.value.bookmark,
                deadline,
                cancel,
            };
            match follow(&server, &order, &notebook).await {
                End::Over(_) => return Ok(Called::Ended(notebook.page().await)),
                End::LetGo(let_go) => {
                    let call = notebook.page().await;
                    return Ok(Called::LetGo { call, why: let_go.to_string() });
                }
                End::Away(error) => return Err(self.away(&page.value, error)),
                End::Reconnect(error) => {
                    self.disconnect(&page.value.server).await;
                    is_away = false;
                    why = error;
                    if notebook.heard() > heard {
                        (in_vain, pause) = (0, FIRST_PAUSE);
                    }
                    if !slept(pause, cancel).await {
                        break;
                    }
                    pause = (pause * 2).min(LONGEST_PAUSE);
                }
            }
        }
        let call = notebook.page().await;
        if is_away && !cancel.is_cancelled() && Instant::now() < deadline {
            return Err(self.away(&call.value, why));
        }
        let outcome = match cancel.is_cancelled() {
            true => Outcome::Cancelled,
            false => Outcome::Failed { reason: why.to_string() },
        };
        self.end(call, outcome, audience).await
    }

    /// The server cannot be reached, or not by us; the call stays as it is.
    fn away(&self, call: &HostCall, error: ClientError) -> HostError {
        let kept =
            |why: String| format!("{why} (the call is kept: `shikiri host resume {}`)", call.id);
        let error = match error {
            ClientError::Unauthorized(why) => ClientError::Unauthorized(kept(why)),
            ClientError::Unreachable(why) => ClientError::Unreachable(kept(why)),
            other => ClientError::Unreachable(kept(other.to_string())),
        };
        self.told(&call.server, error)
    }

    /// A connection that fits how the call is taken up.
    async fn reach(
        &self,
        call: &HostCall,
        audience: &dyn Audience,
    ) -> Result<(Arc<Server>, Option<Tool>), HostError> {
        let spec = self.spec(&call.server)?;
        let mark = &call.bookmark;
        if let (Way::Stream { session, .. }, Some(protocol)) =
            (mark.way(call.repeatable), &mark.protocol)
        {
            let introduction = self.introduction_to(&call.server);
            let rejoined =
                Server::rejoin(spec, &introduction, &self.next_prefix(), protocol, session);
            let server = rejoined.map_err(|error| self.told(&call.server, error))?;
            return Ok((Arc::new(server), None));
        }
        let server = self.connect(&call.server).await?;
        // A task or a run is followed without it; what is sent needs its schema.
        let tool = match mark.way(call.repeatable) {
            Way::Send(_) => Some(self.agreed_tool(&server, &call.tool, audience).await?),
            _ => None,
        };
        Ok((server, tool))
    }

    /// What a server says of one of its tools.
    pub async fn tool(&self, server: &str, name: &str) -> Result<Tool, HostError> {
        let server = self.connect(server).await?;
        let offer = server.tools().await.map_err(|error| self.told(server.name(), error))?;
        self.find_tool(server.name(), offer, name)
    }

    pub(super) fn find_tool(
        &self,
        server: &str,
        offer: Offer,
        name: &str,
    ) -> Result<Tool, HostError> {
        let near = nearest(name, offer.tools.iter().map(|tool| tool.name.as_str()));
        let found = offer.tools.into_iter().find(|tool| tool.name == name);
        let (server, tool) = (server.to_owned(), name.to_owned());
        found.ok_or(HostError::NoTool { server, tool, near })
    }
}

/// False if the caller gave up meanwhile.
async fn slept(pause: Duration, cancel: &CancellationToken) -> bool {
    tokio::select! {
        () = tokio::time::sleep(pause) => true,
        () = cancel.cancelled() => false,
    }
}

/// The name that somebody may have meant.
fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<String> {
    let likeness = |other: &str| {
        let (a, b) = (name.to_lowercase(), other.to_lowercase());
        let shared = a.chars().zip(b.chars()).take_while(|(a, b)| a == b).count();
        if b.contains(&a) || a.contains(&b) { shared + 3 } else { shared }
    };
    let best = known.map(|other| (likeness(other), other)).max_by_key(|(likeness, _)| *likeness);
    best.filter(|(likeness, _)| *likeness >= 3).map(|(_, other)| other.to_owned())
}
