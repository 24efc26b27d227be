//! The answer to an event ends when it is confirmed.

use std::sync::Arc;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::{Request, Response, StatusCode};
use serde_json::{Value, json};
use shikiri_model::hook::{
    Conventions, EvidenceRequest, HookEvidence, HookInput, PathFacts, TranscriptOffset,
};
use shikiri_subagents::HookFiles;
use shikiri_tenancy::gate::{AccessGate, GateOptions};
use shikiri_web::{WebOptions, WebServer};
use tower::ServiceExt as _;

use crate::world::World;

/// Conventions, and nothing else.
struct Disk;

impl HookFiles for Disk {
    fn conventions(&self) -> Arc<Conventions> {
        let conventions = json!({ "default": { "text": "default text" } });
        Arc::new(serde_json::from_value(conventions).unwrap())
    }

    fn project(&self) -> Option<String> {
        None
    }

    fn find(
        &self,
        _: &HookInput,
        want: &EvidenceRequest,
        evidence: &mut HookEvidence,
        _: Option<TranscriptOffset>,
    ) -> Vec<(String, TranscriptOffset)> {
        match want {
            EvidenceRequest::Spawns => evidence.spawns = Some(Vec::new()),
            other => panic!("{other:?} is not wanted at a start"),
        }
        Vec::new()
    }

    fn resolve(&self, _: &HookInput, _: &[String]) -> PathFacts {
        PathFacts::default()
    }

    fn is_claimant_alive(&self, _: &str) -> bool {
        true
    }
}

async fn start(router: &Router, key: &str, agent: &str) -> Response<Body> {
    let event = json!({ "session_id": "s", "hook_event_name": "SubagentStart", "agent_id": agent });
    let request = Request::post("/hooks/claude")
        .header("host", "localhost")
        .header("authorization", format!("Bearer {key}"))
        .header("content-type", "application/json");
    router.clone().oneshot(request.body(Body::from(event.to_string())).unwrap()).await.unwrap()
}

async fn read(response: Response<Body>) -> Value {
    assert_eq!(response.status(), StatusCode::OK);
    assert_eq!(response.headers()["content-type"], "application/json");
    let body = to_bytes(response.into_body(), usize::MAX).await.unwrap();
    serde_json::from_slice(&body).unwrap()
}

#[tokio::test]
async fn an_answer_that_was_not_taken_is_given_again() {
    let world = World::new().await;
    let app = world.app.clone().with_hook_files(Arc::new(Disk));
    let gate = AccessGate::new(app.tenancy.clone(), GateOptions::default());
    let router = WebServer::new(app.clone(), gate, WebOptions::default()).router();
    let text = json!({ "hookSpecificOutput": {
        "hookEventName": "SubagentStart", "additionalContext": "default text",
    } });

    // The caller went away before the answer: as if it had not been said.
    let unread = start(&router, &world.admin, "a").await;
    assert_eq!(read(start(&router, &world.admin, "a").await).await, json!({}), "it is under way");
    drop(unread);
    assert_eq!(read(start(&router, &world.admin, "a").await).await, text);
    assert_eq!(read(start(&router, &world.admin, "a").await).await, json!({}), "it was taken");

    // The rows of the answer are gone: it cannot be confirmed, and so it breaks off.
    let broken = start(&router, &world.admin, "b").await;
    world.database().execute("DELETE FROM subagents", []).unwrap();
    assert_eq!(broken.status(), StatusCode::OK);
    assert!(to_bytes(broken.into_body(), usize::MAX).await.is_err());
    assert_eq!(read(start(&router, &world.admin, "b").await).await, text);
}
