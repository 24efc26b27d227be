//! Following a run.

use axum::body::Body;
use axum::http::Request;
use serde_json::{Value, json};
use shikiri_testkit::read_frames;

use crate::world::World;

/// Events as (id, name, data).
fn frames(text: &str) -> Vec<(Option<u64>, String, Value)> {
    let frames = read_frames(text.as_bytes()).into_iter();
    frames.map(|frame| (frame.seq(), frame.event.clone(), frame.json())).collect()
}

#[tokio::test]
async fn a_stream_tells_the_whole_story_and_ends() {
    let world = World::new().await;
    let node = world.node();
    let run = world.run("local", "echo", json!({ "n": 1 })).await;
    let path = format!("/v1/tenants/local/runs/{run}/events");
    let answer = world.get(&path).await;
    assert_eq!(answer.headers["content-type"], "text/event-stream");
    assert_eq!(answer.headers["cache-control"], "no-store");
    assert_eq!(answer.headers["x-accel-buffering"], "no");
    assert!(answer.text.starts_with("retry: 1000\n\n"), "{}", answer.text);

    let events = frames(&answer.text);
    let names: Vec<_> = events.iter().map(|(_, name, _)| name.as_str()).collect();
    assert_eq!(names, ["queued", "started", "progress", "result"]);
    for (n, (id, _, data)) in events.iter().enumerate() {
        assert_eq!((*id, &data["seq"]), (Some(n as u64 + 1), &json!(n + 1)));
        assert_eq!(data["run_id"], run);
        assert!(data["at"].as_str().unwrap().ends_with('Z'));
    }
    assert_eq!(events[3].2["result"], json!({ "n": 1 }));
    node.leave().await;

    // The same bytes again, from every cursor, by header and by query.
    assert_eq!(world.get(&path).await.text, answer.text);
    for after in 0..=4 {
        let rest = world.get(&format!("{path}?after={after}")).await.text;
        let rest = rest.strip_prefix("retry: 1000\n\n").unwrap();
        assert!(answer.text.ends_with(rest));
        assert_eq!(frames(rest).len(), 4 - after);
        let request = Request::get(format!("{path}?after=0"))
            .header("host", "localhost")
            .header("authorization", format!("Bearer {}", world.admin))
            .header("last-event-id", after.to_string());
        let by_header = world.raw(request.body(Body::empty()).unwrap()).await;
        assert!(by_header.text.ends_with(rest) && frames(&by_header.text).len() == 4 - after);
    }
}

#[tokio::test]
async fn cursors_that_never_were_are_refused() {
    let world = World::new().await;
    let run = world.run("local", "echo", json!({})).await;
    let path = format!("/v1/tenants/local/runs/{run}/events");
    for after in ["x", "-1", "1.5", "", "%20", "2", "99999999999999999999", "18446744073709551615"]
    {
        let answer = world.get(&format!("{path}?after={after}")).await;
        assert_eq!(answer.problem(), (400, "INVALID_REQUEST".to_owned()), "{after}");
        assert!(answer.text.contains("after"), "{}", answer.text);
    }
    let answer = world.get(&format!("{path}?from=1")).await;
    assert_eq!(answer.problem().0, 400);
    let answer = world.get("/v1/tenants/local/runs/run_1/events").await;
    assert_eq!(answer.problem(), (404, "RUN_NOT_FOUND".to_owned()));
}

#[tokio::test]
async fn a_cursor_whose_events_are_gone_starts_over_where_they_begin() {
    let world = World::new().await;
    let run = world.run("local", "echo", json!({})).await;
    world.append("local", &run, json!({ "n": 2 }), false).await;
    let cut = world.next_moment().await;
    world.next_moment().await;
    world.append("local", &run, json!({ "n": 3 }), true).await;
    world.app.runtime.store().purge(cut, 100).await.unwrap();

    let path = format!("/v1/tenants/local/runs/{run}/events");
    let events = frames(&world.get(&path).await.text);
    assert_eq!(events[0], (None, "resync".to_owned(), json!({ "kept_after": 2 })));
    assert_eq!((events.len(), events[1].0), (2, Some(3)));
    let events = frames(&world.get(&format!("{path}?after=2")).await.text);
    assert_eq!((events.len(), events[0].0), (1, Some(3)));
}

#[tokio::test]
async fn a_long_replay_comes_in_frames_without_a_gap() {
    let world = World::new().await;
    let run = world.run("local", "echo", json!({})).await;
    let text = "x".repeat(3_000);
    for n in 2..=400 {
        world.append("local", &run, json!({ "n": n, "text": text }), n == 400).await;
    }
    let path = format!("/v1/tenants/local/runs/{run}/events");
    let events = frames(&world.get(&path).await.text);
    let ids: Vec<_> = events.iter().map(|(id, ..)| id.unwrap()).collect();
    assert_eq!(ids, (1..=400).collect::<Vec<_>>());
}
