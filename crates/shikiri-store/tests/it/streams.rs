//! Streams: appended to, read, closed, and seen by their tenant alone.

use serde_json::json;
use shikiri_model::cursor::{CursorError, StreamExtent};
use shikiri_model::event::NewEvent;
use shikiri_store::{AppendedRange, Commit, CommitError, StoreError, StreamAppend};

use crate::words::{acme, append, closing, event, numbered, read_after, stream, tenant, write};
use crate::world::on_both;

#[tokio::test]
async fn events_are_numbered_in_the_order_of_their_commits() {
    on_both(async |world| {
        let store = world.open().await;
        assert_eq!(write(&*store, "会話", &["一"]).await, (1, 1));
        assert_eq!(write(&*store, "会話", &["二", "三", "四"]).await, (2, 4));
        assert_eq!(write(&*store, "会話", &["五"]).await, (5, 5));
        let all = ["一", "二", "三", "四", "五"];
        assert_eq!(read_after(&*store, "会話", 0).await, numbered(1, &all));
        assert_eq!(read_after(&*store, "会話", 2).await, numbered(3, &all[2..]));
        assert_eq!(read_after(&*store, "会話", 5).await, []);
    })
    .await;
}

#[tokio::test]
async fn one_commit_appends_to_many_streams_at_one_time() {
    on_both(async |world| {
        let store = world.open().await;
        write(&*store, "甲", &["前"]).await;
        let commit = Commit::new()
            .append(append("甲", &["一", "二"]))
            .append(append("乙", &["三"]))
            .append(append("甲", &["四"]));
        let committed = store.commit(commit).await.unwrap();
        let span = |first_seq, last_seq| AppendedRange { first_seq, last_seq };
        assert_eq!(committed.appended, [span(2, 3), span(1, 1), span(4, 4)]);
        assert_eq!(committed.at, world.now());
        let page = store.read(&acme(), &stream("甲"), 1, 1 << 20).await.unwrap();
        let times: Vec<_> = page.chunks.iter().flat_map(|c| c.events()).map(|e| e.at).collect();
        assert_eq!(times[times.len() - 3..], [world.now(); 3]);
        assert_eq!(read_after(&*store, "甲", 1).await, numbered(2, &["一", "二", "四"]));
    })
    .await;
}

#[tokio::test]
async fn the_head_and_the_note_are_read_without_events() {
    on_both(async |world| {
        let store = world.open().await;
        let state = async || store.stream(&acme(), &stream("進捗")).await.unwrap();
        assert_eq!(state().await, None);
        let noted =
            StreamAppend { note: Some("半分".into()), ..append("進捗", &["一", "二"]) };
        store.commit(Commit::new().append(noted)).await.unwrap();
        let found = state().await.unwrap();
        assert_eq!(found.extent, StreamExtent { first_kept: 1, head: 2, closed: false });
        assert_eq!(found.note.as_deref(), Some("半分"));

        write(&*store, "進捗", &["三"]).await;
        assert_eq!(state().await.unwrap().note.as_deref(), Some("半分"), "kept");
        let only_note = StreamAppend { note: Some("完了".into()), ..append("進捗", &[]) };
        store.commit(Commit::new().append(only_note)).await.unwrap();
        let found = state().await.unwrap();
        assert_eq!((found.extent.head, found.note.as_deref()), (3, Some("完了")));
    })
    .await;
}

#[tokio::test]
async fn a_closed_stream_keeps_its_events_and_takes_no_more() {
    on_both(async |world| {
        let store = world.open().await;
        write(&*store, "s", &["始"]).await;
        store.commit(Commit::new().append(closing(append("s", &["終"])))).await.unwrap();
        let late = store.commit(Commit::new().append(append("s", &["遅"]))).await;
        assert!(matches!(late, Err(CommitError::Closed(name)) if name == stream("s")));
        assert_eq!(read_after(&*store, "s", 0).await, numbered(1, &["始", "終"]));
        let page = store.read(&acme(), &stream("s"), 2, 1000).await.unwrap();
        assert!(page.chunks.is_empty());
        assert!(page.extent.is_exhausted_at(2));

        // Also a stream that never had an event.
        store.commit(Commit::new().append(closing(append("空", &[])))).await.unwrap();
        let page = store.read(&acme(), &stream("空"), 0, 1000).await.unwrap();
        assert_eq!((page.chunks.len(), page.extent.is_exhausted_at(0)), (0, true));
    })
    .await;
}

#[tokio::test]
async fn a_cursor_that_never_was_is_refused() {
    on_both(async |world| {
        let store = world.open().await;
        write(&*store, "s", &["一", "二"]).await;
        let ahead = store.read(&acme(), &stream("s"), 3, 1000).await;
        let expected = CursorError::Ahead { after: 3, head: 2 };
        assert!(matches!(ahead, Err(StoreError::Cursor(error)) if error == expected));
        let far = store.read(&acme(), &stream("s"), u64::MAX, 1000).await;
        assert!(matches!(far, Err(StoreError::Cursor(CursorError::Ahead { head: 2, .. }))));
        let missing = store.read(&acme(), &stream("無い"), 0, 1000).await;
        assert!(matches!(missing, Err(StoreError::NoStream(name)) if name == stream("無い")));
    })
    .await;
}

#[tokio::test]
async fn a_stream_is_invisible_to_other_tenants() {
    on_both(async |world| {
        let store = world.open().await;
        write(&*store, "秘密", &["私"]).await;
        let other = tenant("other");
        assert_eq!(store.stream(&other, &stream("秘密")).await.unwrap(), None);
        let read = store.read(&other, &stream("秘密"), 0, 1000).await;
        assert!(matches!(read, Err(StoreError::NoStream(_))));
        let intrusion = StreamAppend::new(other, stream("秘密"), vec![event("侵")]);
        let refused = store.commit(Commit::new().append(intrusion)).await;
        assert!(matches!(refused, Err(CommitError::Closed(_))));
        assert_eq!(read_after(&*store, "秘密", 0).await, numbered(1, &["私"]));
    })
    .await;
}

#[tokio::test]
async fn events_are_the_same_bytes_whenever_they_are_read() {
    on_both(async |world| {
        let store = world.open().await;
        let hard = json!({
            "text": "改行\n・タブ\t・引用「\"」・\\・零\u{0}・絵👩‍👩‍👧・区切\u{2028}・結合が",
            "number": 1.0e-7, "big": u64::MAX, "空": null, "入れ子": [[[{}]]],
        });
        let events: Vec<_> =
            ["log", "progress", "tool_call"].map(|kind| NewEvent::from_value(kind, &hard)).to_vec();
        let sent: Vec<_> = events.iter().map(|e| e.data().to_owned()).collect();
        for event in events {
            world.clock.advance(crate::words::SECOND);
            let append = StreamAppend::new(acme(), stream("s"), vec![event]);
            store.commit(Commit::new().append(append)).await.unwrap();
        }
        let first = store.read(&acme(), &stream("s"), 0, 1 << 20).await.unwrap();
        let data: Vec<_> =
            first.chunks.iter().flat_map(|c| c.events()).map(|e| e.data.to_owned()).collect();
        assert_eq!(data, sent);
        assert_eq!(store.read(&acme(), &stream("s"), 0, 1 << 20).await.unwrap(), first);

        write(&*store, "別", &["邪魔"]).await;
        drop(store);
        world.clock.advance(crate::words::SECOND);
        let reopened = world.open().await;
        assert_eq!(reopened.read(&acme(), &stream("s"), 0, 1 << 20).await.unwrap(), first);
        assert_eq!(write(&*reopened, "s", &["続"]).await, (4, 4));
    })
    .await;
}
