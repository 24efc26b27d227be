//! Conversations and executions over HTTP, as the tests here use them.

use reqwest::Method;
use serde_json::{Value, json};
use shikiri_testkit::{Answer, Tenant, read_frames};

/// One conversation of a tenant.
#[derive(Clone)]
pub(crate) struct Talk {
    pub(crate) tenant: Tenant,
    pub(crate) id: String,
}

/// An event as a reader gets it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Event {
    pub(crate) id: u64,
    pub(crate) kind: String,
    pub(crate) data: Value,
}

impl Talk {
    pub(crate) async fn start(tenant: &Tenant) -> Self {
        let made = tenant.client.post(&tenant.path("/conversations"), &json!({})).await;
        let id = made.expect(201)["id"].as_str().unwrap().to_owned();
        assert!(id.starts_with("cnv_"), "{id}");
        Self { tenant: tenant.clone(), id }
    }

    pub(crate) fn path(&self, rest: &str) -> String {
        self.tenant.path(&format!("/conversations/{}{rest}", self.id))
    }

    pub(crate) fn body(input: &str) -> Value {
        json!({ "user_input": input, "executor": { "user_id": "花子" } })
    }

    /// Asks for a turn; the answer is the whole stream, once it has ended, or a problem.
    pub(crate) async fn post(&self, body: &Value, headers: &[(&str, &str)]) -> Answer {
        let path = self.path("/executions");
        let mut request = self.tenant.client.request(Method::POST, &path).json(body);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        self.tenant.client.send(request).await
    }

    /// One turn to its end.
    pub(crate) async fn say(&self, input: &str) -> Vec<Event> {
        let answer = self.post(&Self::body(input), &[]).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        events(&answer.text())
    }

    /// Starts a turn and gives its id.
    pub(crate) async fn begin(&self, input: &str) -> String {
        let answer = self.post(&Self::body(input), &[("Prefer", "respond-async")]).await;
        answer.expect(202)["id"].as_str().unwrap().to_owned()
    }

    pub(crate) async fn record(&self) -> Value {
        self.tenant.client.get(&self.path("")).await.expect(200)
    }

    pub(crate) async fn execution(&self, id: &str, rest: &str) -> Value {
        let path = self.tenant.path(&format!("/executions/{id}{rest}"));
        self.tenant.client.get(&path).await.expect(200)
    }

    pub(crate) async fn cancel(&self, id: &str) -> Answer {
        let path = self.tenant.path(&format!("/executions/{id}/cancel"));
        self.tenant.client.post(&path, &json!({})).await
    }

    /// Every event after the cursor, to the end.
    pub(crate) async fn follow(&self, id: &str, after: u64) -> String {
        let path = self.tenant.path(&format!("/executions/{id}/events?after={after}"));
        let answer = self.tenant.client.get(&path).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        answer.text()
    }
}

/// The events of a stream's text.
pub(crate) fn events(text: &str) -> Vec<Event> {
    let frames = read_frames(text.as_bytes()).into_iter();
    frames
        .filter_map(|frame| {
            let (id, data) = (frame.seq()?, frame.json());
            Some(Event { id, kind: frame.event, data })
        })
        .collect()
}

pub(crate) fn kinds(events: &[Event]) -> Vec<&str> {
    events.iter().map(|event| event.kind.as_str()).collect()
}

/// The last event, which must be the only terminal one.
pub(crate) fn terminal(events: &[Event]) -> &Event {
    let count = events.iter().filter(|e| e.kind == "result" || e.kind == "error").count();
    assert_eq!(count, 1, "{:?}", kinds(events));
    let last = events.last().unwrap();
    assert!(last.kind == "result" || last.kind == "error", "{:?}", kinds(events));
    last
}

pub(crate) fn text_of(events: &[Event]) -> String {
    let main = events
        .iter()
        .filter(|e| e.kind == "text_delta" && e.data.get("parent_tool_use_id").is_none());
    main.map(|event| event.data["text"].as_str().unwrap()).collect()
}
