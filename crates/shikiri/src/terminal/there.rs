//! Executions on a server: requested over REST, followed over event streams. A broken connection is
//! renewed, and no event is lost.

use std::time::Duration;
use std::{fmt, io};

use hyper::{Method, StatusCode};
use serde_json::{Value, json};
use shikiri_model::ids::{ConversationId, RunId, TenantId};

use super::{Happening, ModelChoice, Wanted};
use crate::client::{Client, EventStream, Frame, ServerUrl};
use crate::config::Config;
use crate::exit::{Exit, Failure};
use crate::output::{Output, Style, note};
use crate::{data_folder, env_vars};

/// The pause between attempts to reach a server that was there before, and their number.
const PAUSE: Duration = Duration::from_secs(1);
const MAX_BREAKS: u32 = 30;

pub struct There {
    client: Client,
    tenant: TenantId,
}

impl There {
    pub async fn open(config: &Config, url: &str, tenant: TenantId) -> Result<Self, Failure> {
        let Some(parsed) = ServerUrl::parse(url) else {
            let what = format!("--server: {url:?} is not a server's address");
            return Err(Failure::usage(what, "write it like http://127.0.0.1:7420"));
        };
        let client = Client::named(&parsed).await.map_err(|error| gone(url, error))?;
        let key = key(config, &client, url)?;
        Ok(Self { client: client.with_key(key), tenant })
    }

    pub(super) async fn models(&self) -> Result<Vec<ModelChoice>, Failure> {
        let (mut all, mut path) = (Vec::new(), "/v1/models?limit=200".to_owned());
        loop {
            let page = self.ask(Method::GET, &path, None).await?;
            let text = |model: &Value, name: &str| model[name].as_str().unwrap_or("").to_owned();
            all.extend(page["items"].as_array().into_iter().flatten().map(|model| ModelChoice {
                id: text(model, "id"),
                engine: text(model, "engine"),
                is_active: model["status"] == "active",
            }));
            match page["next_cursor"].as_str() {
                Some(cursor) => path = format!("/v1/models?limit=200&cursor={cursor}"),
                None => return Ok(all),
            }
        }
    }

    /// A page of ids of conversations, newest first, and the cursor of the next page.
    pub async fn conversation_ids(
        &self,
        after: Option<String>,
    ) -> Result<(Vec<String>, Option<String>), Failure> {
        let cursor = after.map(|cursor| format!("&cursor={cursor}")).unwrap_or_default();
        let path = self.path(&format!("conversations?limit=200{cursor}"));
        let page = self.ask(Method::GET, &path, None).await?;
        let items = page["items"].as_array().into_iter().flatten();
        let ids = items.filter_map(|item| item["id"].as_str().map(str::to_owned)).collect();
        Ok((ids, page["next_cursor"].as_str().map(str::to_owned)))
    }

    pub(super) async fn new_conversation(&self) -> Result<ConversationId, Failure> {
        let path = self.path("conversations");
        id_of(&self.ask(Method::POST, &path, Some(&json!({}))).await?)
    }

    pub(super) async fn execute(&self, wanted: Wanted) -> Result<RunId, Failure> {
        let path = self.path(&format!("conversations/{}/executions", wanted.conversation));
        let mut body = json!({
            "user_input": wanted.user_input,
            "executor": { "user_id": wanted.user_id },
        });
        if let Some(model_id) = wanted.model_id {
            body["model_id"] = json!(model_id);
        }
        if !wanted.tokens.is_empty() {
            body["tokens"] = json!(wanted.tokens);
        }
        if !wanted.limits.is_none() {
            body["limits"] = json!(wanted.limits);
        }
        let asynchronous = [("prefer", "respond-async")];
        let answer = self.client.request_with(Method::POST, &path, &asynchronous, Some(&body));
        id_of(&self.taken(answer.await)?)
    }

    pub(super) fn feed(&self, execution: &RunId) -> Remote {
        Remote {
            client: self.client.clone(),
            path: self.path(&format!("executions/{execution}/events")),
            stream: None,
            last: 0,
            breaks: 0,
            ended: false,
        }
    }

    pub(super) async fn cancel(&self, execution: &RunId) -> Result<(), Failure> {
        let path = self.path(&format!("executions/{execution}/cancel"));
        match self.client.request(Method::POST, &path, Some(&json!({}))).await {
            Ok((StatusCode::CONFLICT, _)) => Ok(()),
            answer => self.taken(answer).map(drop),
        }
    }

    pub(super) async fn record(&self, execution: &RunId) -> Result<Value, Failure> {
        self.ask(Method::GET, &self.path(&format!("executions/{execution}")), None).await
    }

    fn path(&self, rest: &str) -> String {
        format!("/v1/tenants/{}/{rest}", self.tenant)
    }

    async fn ask(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Value, Failure> {
        self.taken(self.client.request(method, path, body).await)
    }

    fn taken(&self, answer: io::Result<(StatusCode, Value)>) -> Result<Value, Failure> {
        let (status, body) = answer.map_err(|error| gone(self.client.host(), error))?;
        if status.is_success() { Ok(body) } else { Err(refused(status, &body)) }
    }
}

/// Events of a server's stream.
pub struct Remote {
    client: Client,
    path: String,
    stream: Option<EventStream>,
    last: u64,
    /// Consecutive broken connections.
    breaks: u32,
    ended: bool,
}

impl Remote {
    pub(super) async fn next(&mut self) -> Result<Option<Happening>, Failure> {
        while !self.ended {
            match self.read().await {
                Ok(Some(frame)) => return Ok(Some(self.took(frame))),
                Ok(None) | Err(_) if self.breaks < MAX_BREAKS => {
                    (self.stream, self.breaks) = (None, self.breaks + 1);
                    self.tell_retry();
                    tokio::time::sleep(PAUSE).await;
                }
                Ok(None) => return Err(gone(self.client.host(), "its stream ends too early")),
                Err(error) => return Err(gone(self.client.host(), error)),
            }
        }
        Ok(None)
    }

    /// A person at a terminal would otherwise see nothing for up to half a minute.
    fn tell_retry(&self) {
        let output = Output::stderr();
        if output.is_terminal() {
            let (seconds, host) = (PAUSE.as_secs(), self.client.host());
            let tries = format!("({} of {MAX_BREAKS})", self.breaks);
            let line = format!("retrying in {seconds} s {tries}: {host} broke the stream off");
            note(&output.paint(Style::Warning, &line));
        }
    }

    async fn read(&mut self) -> io::Result<Option<Frame>> {
        let stream = match &mut self.stream {
            Some(stream) => stream,
            None => self.stream.insert(self.client.events(&self.path, self.last).await?),
        };
        stream.next().await
    }

    fn took(&mut self, frame: Frame) -> Happening {
        self.breaks = 0;
        // A `resync` has no number: it says that older events are no longer kept.
        self.last = self.last.max(frame.id);
        self.ended = matches!(frame.event.as_str(), "result" | "error");
        let mut data: Value = serde_json::from_str(&frame.data).unwrap_or_default();
        if let Some(fields) = data.as_object_mut() {
            fields.insert("event".to_owned(), json!(frame.event));
        }
        Happening { kind: frame.event, data }
    }
}

/// The key for a server: the one that was set for it, or, only for this machine, the one in this
/// project's data folder. No key is sent unencrypted over a network.
fn key(config: &Config, client: &Client, url: &str) -> Result<String, Failure> {
    let named = std::env::var(env_vars::KEY.name).ok().filter(|key| !key.trim().is_empty());
    if let (None, true) = (&named, client.is_loopback()) {
        data_folder::check(&config.root)?;
        let kept = data_folder::read_key(&config.key_file())?;
        return Ok(kept.map(|key| key.reveal().to_owned()).unwrap_or_default());
    }
    match named {
        Some(key) if client.is_secure() || client.is_loopback() => Ok(key.trim().to_owned()),
        Some(_) => {
            let what = format!("--server: a key would go to {url} in the open");
            Err(Failure::new(Exit::Refused, what, "use an https:// address"))
        }
        None => {
            let what = format!("--server: {url} is another machine, which gets no admin key");
            let next = "put a key of that server into SHIKIRI_KEY";
            Err(Failure::new(Exit::Refused, what, next))
        }
    }
}

fn id_of<T: std::str::FromStr>(made: &Value) -> Result<T, Failure> {
    let id = made["id"].as_str().and_then(|id| id.parse().ok());
    id.ok_or_else(|| Failure::told(Exit::Failed, "the server's answer has no id"))
}

fn gone(server: &str, why: impl fmt::Display) -> Failure {
    let what = format!("no server answers on {server} ({why})");
    Failure::new(Exit::Unavailable, what, "start one with `shikiri serve`")
}

/// A refusal with the server's text and our exit code.
fn refused(status: StatusCode, body: &Value) -> Failure {
    let text = |name: &str| body[name].as_str().unwrap_or_default();
    let what = match (text("code"), text("detail")) {
        ("", _) => format!("the server answered {status}"),
        (code, detail) => format!("{code}: {detail}"),
    };
    match status {
        StatusCode::UNAUTHORIZED => {
            Failure::new(Exit::Refused, what, "put a key of that server into SHIKIRI_KEY")
        }
        StatusCode::FORBIDDEN | StatusCode::CONFLICT | StatusCode::TOO_MANY_REQUESTS => {
            Failure::told(Exit::Refused, what)
        }
        StatusCode::NOT_FOUND => Failure::told(Exit::NotFound, what),
        status if status.is_client_error() => Failure::told(Exit::Usage, what),
        _ => Failure::told(Exit::Unavailable, what),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_s_refusal_has_the_exit_code_of_ours() {
        let code = |status: u16, code: &str| {
            let body = json!({ "code": code, "detail": "…" });
            refused(StatusCode::from_u16(status).unwrap(), &body).code()
        };
        assert_eq!(code(409, "CONVERSATION_LOCKED"), 3);
        assert_eq!(code(401, "UNAUTHORIZED"), 3);
        assert_eq!(code(404, "CONVERSATION_NOT_FOUND"), 4);
        assert_eq!(code(400, "INVALID_REQUEST"), 2);
        assert_eq!(code(503, "UNAVAILABLE"), 5);
    }
}
