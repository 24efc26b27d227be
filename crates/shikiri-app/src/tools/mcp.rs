//! A tenant's MCP server through the one MCP client. Nobody is there who could be asked, so the
//! server is told that it cannot ask; progress and logs are nobody's to see.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use serde_json::{Map, Value};
use shikiri_client::{
    ClientError, End, Introduction, LetGo, Offer, Order, Server, Tool, Witness, follow,
};
use shikiri_model::host::{
    Answer as FormAnswer, Bookmark, CallState, Form, HostCall, News, OAuthSpec, Outcome, Reach,
    ServerSpec, Way,
};
use shikiri_model::ids::{HostCallId, TenantId};
use shikiri_model::server::Transport;
use shikiri_model::time::Timestamp;
use tokio::sync::Mutex as AsyncMutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::answer::of_result;
use crate::app::{entropy, random};
use crate::execution::{Answer, Server as Wanted};
use crate::servers;

/// For a server to say who it is and to list its tools. Programs may have to be fetched first.
pub(super) const MEETING: Duration = Duration::from_secs(45);
/// Connections that one call may use up.
const MAX_TRIES: usize = 4;

pub(super) struct McpLink {
    spec: ServerSpec,
    introduction: Introduction,
    /// Tells our requests from those of another process in the same session.
    prefix: String,
    server: AsyncMutex<Arc<Server>>,
    /// For one call.
    limit: Duration,
}

impl McpLink {
    /// Meets a server. A program works in `folder`.
    pub(super) async fn meet(
        wanted: &Wanted,
        folder: &Path,
        limit: Duration,
    ) -> Result<(Self, Offer), String> {
        let reach = reach(wanted, folder)?;
        let addresses = match &reach {
            // Our own door is on this machine, and nobody else chose its address.
            Reach::Http { url, .. } if !wanted.is_own => {
                servers::addresses(url, wanted.allow_private).await?
            }
            _ => Vec::new(),
        };
        let spec = ServerSpec { name: wanted.name.clone(), reach, oauth: OAuthSpec::default() };
        let introduction = Introduction {
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
        let meeting = async {
            let server = Server::connect(&spec, &introduction, &prefix).await?;
            let offer = server.tools().await?;
            Ok::<_, ClientError>((server, offer))
        };
        let patience = MEETING.min(limit);
        let met = tokio::time::timeout(patience, meeting).await;
        let met = met.unwrap_or(Err(ClientError::Slow(patience.as_secs())));
        let (server, offer) = met.map_err(|error| error.to_string())?;
        let server = AsyncMutex::new(Arc::new(server));
        Ok((Self { spec, introduction, prefix, server, limit }, offer))
    }

    /// Calls a tool. Whoever drops this has the server told that nobody waits any more.
    pub(super) async fn call(
        self: &Arc<Self>,
        tool: &Tool,
        arguments: Map<String, Value>,
    ) -> Answer {
        let cancel = CancellationToken::new();
        let _guard = cancel.clone().drop_guard();
        let (link, tool) = (Arc::clone(self), tool.clone());
        // It ends soon after it is cancelled: a server has five seconds to say that it stopped.
        let following = tokio::spawn(async move { link.follow(&tool, arguments, &cancel).await });
        match following.await {
            Ok(answer) => answer.unwrap_or_else(Answer::error),
            Err(error) => Answer::error(format!("the call broke off: {error}")),
        }
    }

    async fn follow(
        &self,
        tool: &Tool,
        arguments: Map<String, Value>,
        cancel: &CancellationToken,
    ) -> Result<Answer, String> {
        let page = Page::new(&self.spec, tool, arguments).map_err(|error| error.to_string())?;
        let deadline = Instant::now() + self.limit;
        let mut server = Arc::clone(&*self.server.lock().await);
        for _ in 0..MAX_TRIES {
            let call = page.read();
            let order = Order {
                tool: &tool.name,
                schema: Some(&tool.input_schema),
                arguments: &call.arguments,
                repeatable: tool.is_repeatable,
                key: call.id.as_str(),
                bookmark: &call.bookmark,
                deadline,
                cancel,
            };
            match follow(&server, &order, &page).await {
                End::Over(Outcome::Answered(result)) => return Ok(of_result(&result)),
                End::Over(Outcome::Failed { reason } | Outcome::Lost { reason }) => {
                    return Err(reason);
                }
                End::Over(Outcome::Cancelled) => return Err("the call was cancelled".to_owned()),
                End::LetGo(why) => return Err(why.to_string()),
                End::Away(error) => return Err(error.to_string()),
                End::Reconnect(_) => {
                    let again = self.meet_again(&server, &page.read()).await;
                    server = again.map_err(|error| error.to_string())?;
                }
            }
        }
        Err("the connection broke again and again".to_owned())
    }

    /// Another connection, unless somebody else has made one meanwhile.
    async fn meet_again(
        &self,
        broken: &Arc<Server>,
        call: &HostCall,
    ) -> Result<Arc<Server>, ClientError> {
        let mark = &call.bookmark;
        if let (Way::Stream { session, .. }, Some(protocol)) =
            (mark.way(call.repeatable), &mark.protocol)
        {
            let (spec, introduction) = (&self.spec, &self.introduction);
            return Server::rejoin(spec, introduction, &self.prefix, protocol, session)
                .map(Arc::new);
        }
        let mut current = self.server.lock().await;
        if Arc::ptr_eq(&current, broken) {
            let made = Server::connect(&self.spec, &self.introduction, &self.prefix).await?;
            *current = Arc::new(made);
        }
        Ok(Arc::clone(&current))
    }

    pub(super) async fn close(&self) {
        let server = Arc::clone(&*self.server.lock().await);
        server.close(true).await;
    }
}

fn reach(wanted: &Wanted, folder: &Path) -> Result<Reach, String> {
    match &wanted.transport {
        Transport::Http { url } => {
            Ok(Reach::Http { url: url.clone(), headers: wanted.headers.clone() })
        }
        Transport::Stdio { command } => {
            let (program, args) = command.split_first().ok_or("has no command")?;
            let mut reach = Reach::program(program, args);
            if let Reach::Stdio { cwd, .. } = &mut reach {
                *cwd = folder.to_str().map(str::to_owned).filter(|folder| !folder.is_empty());
            }
            Ok(reach)
        }
        Transport::Sse { .. } | Transport::Openapi { .. } => {
            Err("is reached in another way".to_owned())
        }
    }
}

/// What happens in a call, for as long as it is followed: enough to go on over another connection.
struct Page(Mutex<HostCall>);

impl Page {
    fn new(
        spec: &ServerSpec,
        tool: &Tool,
        arguments: Map<String, Value>,
    ) -> Result<Self, crate::error::AppError> {
        Ok(Self(Mutex::new(HostCall {
            id: HostCallId::mint(Timestamp::default(), entropy()?),
            tenant: TenantId::local(),
            server: spec.name.clone(),
            endpoint: spec.reach.endpoint(),
            tool: tool.name.clone(),
            arguments,
            repeatable: tool.is_repeatable,
            state: CallState::Open,
            bookmark: Bookmark::default(),
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
impl Witness for Page {
    async fn note(&self, news: Vec<News>) -> Result<(), LetGo> {
        let mut call = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for one in &news {
            call.learn(one);
        }
        Ok(())
    }

    async fn ask(&self, _form: &Form) -> FormAnswer {
        FormAnswer::Decline(Map::new())
    }

    async fn visit(&self, _message: &str, _url: &str) -> FormAnswer {
        FormAnswer::Decline(Map::new())
    }

    async fn sample(&self, _params: &Value) -> Result<Value, String> {
        Err("no model can be asked here".to_owned())
    }
}
