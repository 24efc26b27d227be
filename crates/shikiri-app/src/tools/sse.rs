//! A tenant's server that speaks the older transport: one stream on which all answers come, for as
//! long as the turn lasts, and a place that messages are posted to. As everywhere here, nobody is
//! there who could be asked.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::{Map, Value, json};
use shikiri_client::{Offer, Tool};
use shikiri_model::server::Transport;
use tokio::sync::{Mutex as AsyncMutex, oneshot};
use tokio::task::JoinHandle;

use super::answer::of_result;
use super::mcp::MEETING;
use crate::execution::{Answer, Server as Wanted};
use crate::servers::sse::{Events, Post, open};

/// The last one with this transport.
const PROTOCOL: &str = "2024-11-05";
const MAX_PAGES: usize = 20;
const MAX_TOOLS: usize = 1_000;
const CALL: &str = "tools/call";

pub(super) struct SseLink {
    wanted: Wanted,
    line: AsyncMutex<Arc<Line>>,
    /// For one call.
    limit: Duration,
}

impl SseLink {
    pub(super) async fn meet(wanted: &Wanted, limit: Duration) -> Result<(Self, Offer), String> {
        let patience = MEETING.min(limit);
        let meeting = async {
            let line = Line::open(wanted).await?;
            let offer = line.list_tools().await?;
            Ok((line, offer))
        };
        let met = tokio::time::timeout(patience, meeting).await;
        let slow = || Err(format!("did not answer within {} s", patience.as_secs()));
        let (line, offer) = met.unwrap_or_else(|_| slow())?;
        Ok((Self { wanted: wanted.clone(), line: AsyncMutex::new(line), limit }, offer))
    }

    /// Calls a tool. Whoever drops this has the server told that nobody waits any more.
    pub(super) async fn call(&self, tool: &Tool, arguments: Map<String, Value>) -> Answer {
        let params = json!({ "name": tool.name, "arguments": arguments });
        let asking = async {
            let line = self.line().await?;
            line.ask(CALL, params).await
        };
        let asked = tokio::time::timeout(self.limit, asking).await;
        let slow = || Err(format!("no answer within {} s", self.limit.as_secs()));
        match asked.unwrap_or_else(|_| slow()) {
            Ok(Value::Object(result)) => of_result(&result),
            Ok(_) => Answer::error("it answered, but not as an MCP server does"),
            Err(why) => Answer::error(why),
        }
    }

    /// The stream, or another one if it has ended. A call that was under way is not made again.
    async fn line(&self) -> Result<Arc<Line>, String> {
        let mut line = self.line.lock().await;
        if line.shared.waiting().is_none() {
            *line = Line::open(&self.wanted).await?;
        }
        Ok(Arc::clone(&line))
    }
}

/// One stream.
struct Line {
    shared: Arc<Shared>,
    reading: JoinHandle<()>,
}

struct Shared {
    post: Post,
    /// Who waits for which answer; None once there will be no more.
    waiting: Mutex<Option<Waiting>>,
}

#[derive(Default)]
struct Waiting {
    last: u64,
    answers: HashMap<u64, oneshot::Sender<Value>>,
}

impl Line {
    async fn open(wanted: &Wanted) -> Result<Arc<Self>, String> {
        let Transport::Sse { url } = &wanted.transport else {
            return Err("is reached in another way".to_owned());
        };
        let (post, events) = open(url, &wanted.headers, wanted.allow_private).await?;
        let shared = Arc::new(Shared { post, waiting: Mutex::new(Some(Waiting::default())) });
        let reading = tokio::spawn(read(Arc::clone(&shared), events));
        let line = Arc::new(Self { shared, reading });
        let client = json!({ "name": "shikiri", "version": env!("CARGO_PKG_VERSION") });
        let hello =
            json!({ "protocolVersion": PROTOCOL, "capabilities": {}, "clientInfo": client });
        line.ask("initialize", hello).await?;
        let ready = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
        line.shared.post.tell(&ready).await?;
        Ok(line)
    }

    async fn list_tools(&self) -> Result<Offer, String> {
        let (mut offer, mut params) = (Offer::default(), json!({}));
        for _ in 0..MAX_PAGES {
            let page = self.ask("tools/list", params).await?;
            let listed = page["tools"].as_array().ok_or("its list of tools is no list")?;
            for tool in listed {
                match Tool::read(tool) {
                    Ok(tool) => offer.tools.push(tool),
                    Err(remark) => offer.remarks.push(remark),
                }
            }
            if !page["nextCursor"].is_string() || offer.tools.len() >= MAX_TOOLS {
                break;
            }
            params = json!({ "cursor": page["nextCursor"] });
        }
        offer.tools.truncate(MAX_TOOLS);
        Ok(offer)
    }

    async fn ask(&self, method: &'static str, params: Value) -> Result<Value, String> {
        let (sender, answer) = oneshot::channel();
        let id = self.shared.expect(sender).ok_or("its stream has ended")?;
        let _given_up = GivenUp { shared: &self.shared, id, method };
        let request = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        self.shared.post.tell(&request).await?;
        let ended = "its stream ended before it answered: what came of it is not known";
        let mut message = answer.await.map_err(|_| ended.to_owned())?;
        match message.get("error") {
            Some(error) => {
                let said = error["message"].as_str().unwrap_or("no message");
                Err(format!("it refused: {}", said.chars().take(1_000).collect::<String>()))
            }
            None => Ok(message["result"].take()),
        }
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.reading.abort();
    }
}

impl Shared {
    fn waiting(&self) -> MutexGuard<'_, Option<Waiting>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number under which the answer is awaited.
    fn expect(&self, sender: oneshot::Sender<Value>) -> Option<u64> {
        let mut waiting = self.waiting();
        let waiting = waiting.as_mut()?;
        waiting.last += 1;
        waiting.answers.insert(waiting.last, sender);
        Some(waiting.last)
    }

    fn forget(&self, id: u64) -> Option<oneshot::Sender<Value>> {
        self.waiting().as_mut()?.answers.remove(&id)
    }

    fn take(self: &Arc<Self>, message: Value) {
        let id = &message["id"];
        if message.get("method").is_some() {
            if !id.is_null() {
                self.reply(id, &message["method"]);
            }
        } else if let Some(sender) = id.as_u64().and_then(|id| self.forget(id)) {
            // Whoever waited may be gone.
            let _ = sender.send(message);
        }
    }

    /// What the server asks is not done here.
    fn reply(self: &Arc<Self>, id: &Value, method: &Value) {
        let answer = match method.as_str() {
            Some("ping") => json!({ "jsonrpc": "2.0", "id": id, "result": {} }),
            _ => {
                let error = json!({ "code": -32601, "message": "nobody is there who could" });
                json!({ "jsonrpc": "2.0", "id": id, "error": error })
            }
        };
        self.post_later(answer);
    }

    fn post_later(self: &Arc<Self>, message: Value) {
        let shared = Arc::clone(self);
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move { shared.post.tell(&message).await });
        }
    }
}

async fn read(shared: Arc<Shared>, mut events: Events) {
    while let Ok(message) = events.message().await {
        shared.take(message);
    }
    // Whoever waits hears that there is nothing to wait for.
    shared.waiting().take();
}

/// Says that nobody waits for an answer any more, unless it has come.
struct GivenUp<'a> {
    shared: &'a Arc<Shared>,
    id: u64,
    method: &'static str,
}

impl Drop for GivenUp<'_> {
    fn drop(&mut self) {
        if self.shared.forget(self.id).is_some() && self.method == CALL {
            let params = json!({ "requestId": self.id, "reason": "nobody waits any more" });
            let method = "notifications/cancelled";
            self.shared.post_later(json!({ "jsonrpc": "2.0", "method": method, "params": params }));
        }
    }
}

#[cfg(test)]
#[path = "sse_tests.rs"]
mod tests;
