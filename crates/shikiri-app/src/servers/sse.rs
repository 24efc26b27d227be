//! Event streams, and the older transport that is made of one: answers come on a stream that tells
//! first where messages go.

use std::collections::BTreeMap;

use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::{Method, Uri};
use serde_json::Value;

use super::check::is_answer;
use super::http::{MAX_ANSWER, Target, ok};

/// What one event of a stream that lasts may have.
const MAX_EVENT: usize = 10 * 1024 * 1024;

/// Events as they come in, up to a bound in all; of a stream that lasts, in each.
pub(crate) struct Events {
    body: Incoming,
    buffer: Vec<u8>,
    /// Bytes of it that hold no end of a line.
    searched: usize,
    seen: usize,
    lasts: bool,
}

struct Event {
    name: String,
    data: String,
}

impl Events {
    pub(super) fn new(body: Incoming) -> Self {
        Self { body, buffer: Vec::new(), searched: 0, seen: 0, lasts: false }
    }

    pub(super) async fn answer_to(&mut self, request: &Value) -> Result<Value, String> {
        loop {
            let event = self.next().await?;
            if let Ok(message) = serde_json::from_str::<Value>(&event.data)
                && is_answer(&message, request)
            {
                return Ok(message);
            }
        }
    }

    /// The next message of the other side, among whatever else it sends.
    pub(crate) async fn message(&mut self) -> Result<Value, String> {
        loop {
            let event = self.next().await?;
            if let Ok(message) = serde_json::from_str(&event.data) {
                return Ok(message);
            }
        }
    }

    async fn next(&mut self) -> Result<Event, String> {
        if self.lasts {
            self.seen = self.buffer.len();
        }
        let mut event = Event { name: String::new(), data: String::new() };
        loop {
            let line = self.line().await?;
            let (field, value) = line.split_once(':').unwrap_or((&line, ""));
            let value = value.strip_prefix(' ').unwrap_or(value);
            match field {
                "" if line.is_empty() && !event.data.is_empty() => return Ok(event),
                "event" => event.name = value.to_owned(),
                "data" if event.data.is_empty() => event.data = value.to_owned(),
                "data" => {
                    event.data.push('\n');
                    event.data.push_str(value);
                }
                _ => {}
            }
        }
    }

    async fn line(&mut self) -> Result<String, String> {
        loop {
            let mut unsearched = self.buffer.iter().skip(self.searched);
            if let Some(more) = unsearched.position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=self.searched + more).collect();
                self.searched = 0;
                let line = String::from_utf8_lossy(&line);
                return Ok(line.trim_end_matches(['\r', '\n']).to_owned());
            }
            self.searched = self.buffer.len();
            let frame = self.body.frame().await.ok_or("its stream ended without an answer")?;
            let frame = frame.map_err(|error| format!("its stream broke off: {error}"))?;
            let Ok(data) = frame.into_data() else { continue };
            self.seen += data.len();
            let most = if self.lasts { MAX_EVENT } else { MAX_ANSWER };
            if self.seen > most {
                return Err(format!("its answer is over {} MiB", most / 1024 / 1024));
            }
            self.buffer.extend_from_slice(&data);
        }
    }
}

pub(super) struct Sse {
    post: Post,
    events: Events,
}

/// The place for messages.
pub(crate) struct Post {
    target: Target,
    endpoint: Uri,
}

impl Post {
    pub(crate) async fn tell(&self, message: &Value) -> Result<(), String> {
        let sent = self.target.send(Method::POST, &self.endpoint, &[], Some(message)).await?;
        ok(sent).map(drop)
    }
}

impl Sse {
    pub(super) async fn open(target: Target) -> Result<Self, String> {
        let answer = ok(target.send(Method::GET, &target.uri, &[], None).await?)?;
        let mut events = Events::new(answer.into_body());
        let endpoint = loop {
            let event = events.next().await?;
            if event.name == "endpoint" {
                break endpoint(&target.uri, &event.data)?;
            }
        };
        Ok(Self { post: Post { target, endpoint }, events })
    }

    pub(super) async fn ask(&mut self, request: &Value) -> Result<Value, String> {
        self.tell(request).await?;
        self.events.answer_to(request).await
    }

    pub(super) async fn tell(&self, message: &Value) -> Result<(), String> {
        self.post.tell(message).await
    }
}

/// A stream for as long as it is wanted, with what comes on it and the place for messages.
pub(crate) async fn open(
    url: &str,
    headers: &BTreeMap<String, String>,
    allow_private: bool,
) -> Result<(Post, Events), String> {
    let Sse { post, mut events } =
        Sse::open(Target::find(url, headers, allow_private).await?).await?;
    events.lasts = true;
    Ok((post, events))
}

/// Where the server wants its messages: on the same host, or its word could lead us anywhere.
fn endpoint(base: &Uri, told: &str) -> Result<Uri, String> {
    let unreadable = |_| "it named an endpoint that cannot be read".to_owned();
    let told: Uri = told.trim().parse().map_err(unreadable)?;
    if told.authority().is_some() {
        let same = told.authority() == base.authority() && told.scheme() == base.scheme();
        return if same { Ok(told) } else { Err("it named an endpoint elsewhere".to_owned()) };
    }
    let mut parts = base.clone().into_parts();
    parts.path_and_query = told.into_parts().path_and_query;
    Uri::from_parts(parts).map_err(|_| "it named an endpoint that cannot be read".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_go_to_the_same_host_only() {
        let base: Uri = "http://a.test:81/sse".parse().unwrap();
        let at = |told| endpoint(&base, told).map(|uri| uri.to_string());
        assert_eq!(at("/messages?id=1"), Ok("http://a.test:81/messages?id=1".to_owned()));
        assert_eq!(at("http://a.test:81/m"), Ok("http://a.test:81/m".to_owned()));
        assert_eq!(at("//b.test/m"), Ok("http://a.test:81//b.test/m".to_owned()));
        for bad in ["http://a.test/m", "https://a.test:81/m", "http://b.test/", " "] {
            assert!(at(bad).is_err(), "{bad:?}");
        }
    }
}
