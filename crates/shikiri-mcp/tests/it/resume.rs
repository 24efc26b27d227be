//! Streams that broke off, read again from `Last-Event-ID` on.

use axum::http::StatusCode;
use serde_json::json;

use crate::http_client::{HttpAnswer, SseEvent, request};
use crate::world::World;

const STEPS: u32 = 4;

/// A call with progress, told on a stream to its end.
async fn finished_call(world: &World, session: &str) -> Vec<SseEvent> {
    let params = json!({
        "name": "long_running_agent",
        "arguments": { "steps": STEPS, "step_ms": 1 },
        "_meta": { "progressToken": "p1" },
    });
    let answer = world.post(&world.key, session, &request(1, "tools/call", params)).await;
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.text);
    let events = answer.events();
    let last = events.last().unwrap().message.as_ref().unwrap();
    assert_eq!(last["result"]["structuredContent"], json!({ "steps": STEPS }), "{last}");
    events
}

async fn resume(world: &World, session: &str, last_event_id: &str) -> HttpAnswer {
    let headers = [
        ("accept", "text/event-stream"),
        ("mcp-session-id", session),
        ("last-event-id", last_event_id),
    ];
    world.http("GET", &world.key, &headers, "").await
}

#[tokio::test]
async fn resume_replays_exactly_the_events_that_followed() {
    let world = World::new().await;
    let session = world.open_session(&world.key).await;
    let events = finished_call(&world, &session).await;
    let places: Vec<_> = (0..events.len()).filter(|at| events[*at].id.is_some()).collect();
    assert!(places.len() > 2, "{events:#?}");
    for at in places {
        let id = events[at].id.as_ref().unwrap();
        let resumed = resume(&world, &session, id).await;
        let missed: Vec<_> =
            events[at + 1..].iter().filter(|event| event.message.is_some()).collect();
        if missed.is_empty() {
            // Nothing followed the last event, and clients that ask again must be stopped.
            assert!(!resumed.text.contains("data: {"), "{}", resumed.text);
            continue;
        }
        let replayed = resumed.events();
        let replayed: Vec<_> = replayed.iter().filter(|event| event.message.is_some()).collect();
        assert_eq!(replayed, missed, "after {id}");
    }
}

#[tokio::test]
async fn resume_refuses_ids_of_other_sessions() {
    let world = World::new().await;
    let session = world.open_session(&world.key).await;
    let events = finished_call(&world, &session).await;
    let id = events.iter().find_map(|event| event.id.clone()).unwrap();
    let other = world.open_session(&world.key).await;
    for unknown in [id.as_str(), "no-id-at-all"] {
        let refused = resume(&world, &other, unknown).await;
        assert_eq!(refused.status, StatusCode::BAD_REQUEST, "{unknown}: {}", refused.text);
        assert_eq!(refused.json()["error"]["data"]["reason"], "unknown_event_id");
    }
}
