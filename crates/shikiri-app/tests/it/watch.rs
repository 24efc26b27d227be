//! A cursor first replays, then follows, and never skips or repeats.

use std::sync::Arc;

use serde_json::json;
use shikiri_app::App;
use shikiri_model::event::{NewEvent, StreamId};
use shikiri_model::ids::TenantId;
use shikiri_store::{Commit, StoreError, StreamAppend};

use crate::world::World;

const EVENTS: u64 = 2_000;

fn append(n: u64, close: bool) -> Commit {
    let event = NewEvent::from_value("log", &json!({ "n": n }));
    let stream = StreamId::new("s");
    Commit::new()
        .append(StreamAppend { close, ..StreamAppend::new(TenantId::local(), stream, vec![event]) })
}

async fn read_all(app: App, after: u64) -> Vec<u64> {
    let mut watch = app.runtime.watch(&TenantId::local(), StreamId::new("s"), after).await.unwrap();
    let mut seen = Vec::new();
    while let Some(delivery) = watch.next().await.unwrap() {
        seen.extend(delivery.events().map(|event| event.seq));
        // One reader naps now and then, long enough for its queue to overflow.
        if after % 2 == 1 && seen.len() % 40 == 0 {
            tokio::time::sleep(std::time::Duration::from_millis(40)).await;
        }
    }
    seen
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fast_and_slow_readers_see_every_event_once_and_in_order() {
    let world = World::new(vec![]).await;
    world.app.runtime.store().commit(append(1, false)).await.unwrap();
    let readers: Vec<_> =
        (0..2).map(|after| tokio::spawn(read_all(world.app.clone(), after))).collect();
    let store = Arc::clone(world.app.runtime.store());
    for n in 2..=EVENTS {
        store.commit(append(n, n == EVENTS)).await.unwrap();
    }
    for (after, reader) in (0..).zip(readers) {
        assert_eq!(reader.await.unwrap(), (after + 1..=EVENTS).collect::<Vec<_>>());
    }
    // After the end, a replay gives the same.
    assert_eq!(read_all(world.app.clone(), 1_500).await.len(), 500);
}

#[tokio::test]
async fn cursors_that_cannot_be_served_are_refused() {
    let world = World::new(vec![]).await;
    world.app.runtime.store().commit(append(1, false)).await.unwrap();
    let tenant = TenantId::local();
    let ahead = world.app.runtime.watch(&tenant, StreamId::new("s"), 2).await;
    assert!(matches!(ahead, Err(StoreError::Cursor(_))));
    let missing = world.app.runtime.watch(&tenant, StreamId::new("t"), 0).await;
    assert!(matches!(missing, Err(StoreError::NoStream(_))));
    let other = world.app.runtime.watch(&"other".parse().unwrap(), StreamId::new("s"), 0).await;
    assert!(matches!(other, Err(StoreError::NoStream(_))));
}
