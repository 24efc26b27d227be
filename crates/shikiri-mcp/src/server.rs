//! Requests to answers, whichever way they came in.

use std::sync::Arc;
use std::time::Duration;

use rmcp::model::JsonObject;
use serde_json::{Value, json};
use shikiri_app::App;
use shikiri_model::connection::LogLevel;
use shikiri_model::event::Seq;
use tokio::sync::broadcast;

use crate::call::Call;
use crate::catalogue::{Catalogue, Extras, Offer};
use crate::client::{Caller, Era, LEGACY, MODERN};
use crate::daily::Daily;
use crate::fault::Fault;
use crate::listen::{Change, Listen};
use crate::message::Request;
use crate::{calls, lists, tasks};

/// A call is answered with the run when that has not ended after so long: many clients give up
/// at 60 seconds.
const PATIENCE: Duration = Duration::from_secs(45);
/// How long a client may keep what rarely changes.
const LIST_TTL_MS: u64 = 60_000;

#[derive(Clone, Debug)]
pub struct McpOptions {
    pub patience: Duration,
}

impl Default for McpOptions {
    fn default() -> Self {
        Self { patience: PATIENCE }
    }
}

/// The server behind every transport.
pub struct Mcp {
    pub(crate) app: App,
    pub(crate) catalogue: Catalogue,
    pub(crate) options: McpOptions,
    pub(crate) daily: Daily,
    changes: broadcast::Sender<Change>,
}

/// How a request is answered.
pub(crate) enum Answered {
    Now(Result<Value, Fault>),
    /// The answer to a call that was written down under this number of the connection's stream.
    Logged {
        number: Seq,
        text: String,
    },
    Follow(Box<Call>),
    Listen(Box<Listen>),
}

impl From<Fault> for Answered {
    fn from(fault: Fault) -> Self {
        Self::Now(Err(fault))
    }
}

impl Mcp {
    pub fn new(app: App, extras: Extras, options: McpOptions) -> Arc<Self> {
        let extras = crate::tools::with_ours(&app, extras);
        let catalogue = Catalogue::new(&app, extras);
        let changes = broadcast::Sender::new(16);
        Arc::new(Self { app, catalogue, options, daily: Daily::default(), changes })
    }

    /// Tells every client that listens.
    pub fn announce(&self, change: Change) {
        // Nobody may be listening.
        let _ = self.changes.send(change);
    }

    pub(crate) fn changes(&self) -> broadcast::Receiver<Change> {
        self.changes.subscribe()
    }

    /// Whether the answer may be a stream, for which there must be room before anything is done.
    pub(crate) fn may_stream(&self, request: &Request) -> bool {
        let name = request.params.get("name").and_then(Value::as_str).unwrap_or_default();
        match request.method.as_str() {
            "tools/call" => self.catalogue.tools.get(name).is_some_and(|tool| match &tool.offer {
                Offer::Agent(_) => true,
                Offer::Short(tool) => tool.follows(&JsonObject::new()).is_some(),
            }),
            "prompts/get" => {
                self.catalogue.prompts.get(name).is_some_and(|prompt| prompt.agent().is_some())
            }
            "subscriptions/listen" => true,
            _ => false,
        }
    }

    pub(crate) async fn answer(self: &Arc<Self>, caller: &Caller, request: &Request) -> Answered {
        let answered = match request.method.as_str() {
            "tools/call" => calls::call_tool(self, caller, request).await,
            "prompts/get" => calls::get_prompt(self, caller, request).await,
            "subscriptions/listen" if caller.era == Era::Modern => {
                Listen::open(self, caller, request).map(|l| Answered::Listen(Box::new(l)))
            }
            _ => self
                .plain(caller, request)
                .await
                .map(|result| Answered::Now(Ok(finish(caller.era, result)))),
        };
        answered.unwrap_or_else(|fault| {
            caller.receipts.lose();
            Answered::from(fault)
        })
    }

    async fn plain(&self, caller: &Caller, request: &Request) -> Result<Value, Fault> {
        match (request.method.as_str(), caller.era) {
            ("tools/list", _) => lists::tools(self, caller, request).await,
            ("resources/list", _) => lists::resources(self, caller, request).await,
            ("resources/templates/list", _) => lists::templates(self, caller, request),
            ("resources/read", era) => lists::read(self, caller, request, era).await,
            ("prompts/list", _) => lists::prompts(self, caller, request),
            ("completion/complete", _) => lists::complete(self, caller, request).await,
            ("ping", Era::Legacy) => Ok(json!({})),
            ("logging/setLevel", Era::Legacy) => self.set_level(caller, request).await,
            ("resources/subscribe", Era::Legacy) => self.subscribe(caller, request).await,
            ("resources/unsubscribe", Era::Legacy) => {
                let uri = request.text("uri")?;
                self.app.unsubscribe(&caller.connection, uri).await?;
                Ok(json!({}))
            }
            ("server/discover", Era::Modern) => Ok(discover()),
            ("tasks/get", Era::Modern) => tasks::get(self, caller, request).await,
            ("tasks/update", Era::Modern) => tasks::update(self, caller, request).await,
            ("tasks/cancel", Era::Modern) => tasks::cancel(self, caller, request).await,
            (method, _) => Err(Fault::method(method)),
        }
    }

    async fn set_level(&self, caller: &Caller, request: &Request) -> Result<Value, Fault> {
        let level = request.params.get("level").cloned().unwrap_or_default();
        let level: LogLevel = serde_json::from_value(level)
            .map_err(|_| Fault::params("level: must be one of debug, info, notice, warning, error, critical, alert, emergency"))?;
        self.app.set_log_level(&caller.connection, level).await?;
        Ok(json!({}))
    }

    async fn subscribe(&self, caller: &Caller, request: &Request) -> Result<Value, Fault> {
        let uri = request.text("uri")?;
        lists::contents(self, caller, uri, caller.era).await?;
        self.app.subscribe(&caller.connection, uri).await?;
        Ok(json!({}))
    }
}

pub(crate) fn server_info() -> Value {
    json!({
        "name": "shikiri",
        "title": "Shikiri",
        "version": env!("CARGO_PKG_VERSION"),
        "icons": [{ "src": ICON, "mimeType": "image/svg+xml", "sizes": ["any"] }],
    })
}

/// Two rooms and a sliding door between them.
pub(crate) const ICON: &str = "data:image/svg+xml;base64,PHN2ZyB4bWxucz0iaHR0cDovL3d3dy53My5vcmcvMjAwMC9zdmciIHZpZXdCb3g9IjAgMCAyNCAyNCIgZmlsbD0ibm9uZSIgc3Ryb2tlPSIjMzM0MTU1IiBzdHJva2Utd2lkdGg9IjIiPjxyZWN0IHg9IjMiIHk9IjQiIHdpZHRoPSIxOCIgaGVpZ2h0PSIxNiIvPjxwYXRoIGQ9Ik0xMiA0djE2TTE1IDEydjEiLz48L3N2Zz4=";

const INSTRUCTIONS: &str = "Agents are tools here, and every call of one is a durable run: it goes \
on when the connection breaks or the server restarts. A call that lasts is answered with a run_id \
and a link to the run; wait for it with run_wait, look at it with run_status, answer its questions \
with run_answer, redirect it with run_update, stop it with run_cancel. A call whose answer was lost \
is found with run_list. Agents that work together in a project call authenticate first: its answer \
says how to go on.";

/// The answer to `initialize`.
pub(crate) fn initialized(protocol: &str) -> Value {
    json!({
        "protocolVersion": protocol,
        "capabilities": {
            "tools": { "listChanged": true },
            "resources": { "subscribe": true },
            "prompts": { "listChanged": true },
            "logging": {},
            "completions": {},
        },
        "serverInfo": server_info(),
        "instructions": INSTRUCTIONS,
    })
}

fn discover() -> Value {
    let mut versions = vec![MODERN];
    versions.extend(LEGACY);
    json!({
        "supportedVersions": versions,
        "capabilities": {
            "tools": { "listChanged": true },
            "resources": { "subscribe": true },
            "prompts": { "listChanged": true },
            "logging": {},
            "completions": {},
            "extensions": { rmcp::model::TASKS_EXTENSION_ID: {} },
        },
        "instructions": INSTRUCTIONS,
        "ttlMs": LIST_TTL_MS,
        "cacheScope": "public",
    })
}

/// For answers that may be kept for a while.
pub(crate) fn cached(mut result: Value, scope: &str) -> Value {
    let ttl = if scope == "public" { LIST_TTL_MS } else { 0 };
    result["ttlMs"] = json!(ttl);
    result["cacheScope"] = json!(scope);
    result
}

/// What every result of the newer era says, and none of the older.
pub(crate) fn finish(era: Era, mut result: Value) -> Value {
    let Value::Object(fields) = &mut result else { return result };
    match era {
        Era::Legacy => {
            for field in ["ttlMs", "cacheScope"] {
                fields.remove(field);
            }
        }
        Era::Modern => {
            fields.entry("resultType").or_insert_with(|| json!("complete"));
            let meta = fields.entry("_meta").or_insert_with(|| json!({}));
            meta["io.modelcontextprotocol/serverInfo"] =
                json!({ "name": "shikiri", "version": env!("CARGO_PKG_VERSION") });
        }
    }
    result
}
