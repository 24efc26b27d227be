//! Retention: old events of closed streams go, from the front, and readers are told.

use shikiri_model::cursor::{CursorError, StreamExtent};
use shikiri_store::{Commit, Store, StoreError};

use crate::words::{KIND, SECOND, acme, append, closing, numbered, read_after, stream, write};
use crate::world::{World, on_both};

const ALL: u32 = 1_000_000;

/// Six events, ten seconds apart; the stream is closed with the last if asked for.
async fn six_events(world: &World, store: &dyn Store, name: &str, closed: bool) {
    for text in ["一", "二", "三", "四", "五"] {
        write(store, name, &[text]).await;
        world.clock.advance(10 * SECOND);
    }
    let last = append(name, &["六"]);
    let last = if closed { closing(last) } else { last };
    store.commit(Commit::new().append(last)).await.unwrap();
}

async fn extent(store: &dyn Store, name: &str) -> StreamExtent {
    store.stream(&acme(), &stream(name)).await.unwrap().unwrap().extent
}

#[tokio::test]
async fn a_purge_keeps_the_suffix_and_says_where_it_begins() {
    on_both(async |world| {
        let store = world.open().await;
        let start = world.now();
        six_events(&world, &*store, "s", true).await;
        assert_eq!(store.purge(start, ALL).await.unwrap(), 0);
        assert_eq!(store.purge(start + 20 * SECOND, ALL).await.unwrap(), 2);
        assert_eq!(
            extent(&*store, "s").await,
            StreamExtent { first_kept: 3, head: 6, closed: true }
        );
        let kept = numbered(3, &["三", "四", "五", "六"]);
        assert_eq!(read_after(&*store, "s", 2).await, kept);
        assert_eq!(read_after(&*store, "s", 4).await, kept[2..]);

        let expired = store.read(&acme(), &stream("s"), 1, 1000).await;
        let told = CursorError::Expired { kept_after: 2 };
        assert!(matches!(expired, Err(StoreError::Cursor(error)) if error == told));
        assert_eq!(
            store.purge(start + 20 * SECOND, ALL).await.unwrap(),
            0,
            "nothing is left to do"
        );
    })
    .await;
}

#[tokio::test]
async fn a_stream_whose_events_are_all_gone_still_ends() {
    on_both(async |world| {
        let store = world.open().await;
        six_events(&world, &*store, "s", true).await;
        let after_all = world.now() + SECOND;
        assert_eq!(store.purge(after_all, ALL).await.unwrap(), 6);
        assert_eq!(
            extent(&*store, "s").await,
            StreamExtent { first_kept: 7, head: 6, closed: true }
        );
        let page = store.read(&acme(), &stream("s"), 6, 1000).await.unwrap();
        assert_eq!((page.chunks.len(), page.extent.is_exhausted_at(6)), (0, true));
        let expired = store.read(&acme(), &stream("s"), 0, 1000).await;
        let told = CursorError::Expired { kept_after: 6 };
        assert!(matches!(expired, Err(StoreError::Cursor(error)) if error == told));
    })
    .await;
}

#[tokio::test]
async fn the_journal_of_a_living_run_is_never_cut() {
    on_both(async |world| {
        let store = world.open().await;
        six_events(&world, &*store, "開", false).await;
        six_events(&world, &*store, "閉", true).await;
        let later = world.now() + 3600 * SECOND;
        assert_eq!(store.purge(later, ALL).await.unwrap(), 6);
        assert_eq!(read_after(&*store, "開", 0).await.len(), 6);
        assert_eq!(extent(&*store, "開").await.first_kept, 1);
    })
    .await;
}

#[tokio::test]
async fn a_purge_goes_step_by_step_and_leaves_no_hole_between_steps() {
    on_both(async |world| {
        let store = world.open().await;
        for name in ["甲", "乙", "丙"] {
            six_events(&world, &*store, name, true).await;
        }
        let before = world.now() + SECOND;
        let mut gone = 0;
        loop {
            let step = store.purge(before, 4).await.unwrap();
            assert!(step <= 4, "{step} chunks at once");
            if step == 0 {
                break;
            }
            gone += step;
            for name in ["甲", "乙", "丙"] {
                let kept = extent(&*store, name).await;
                let seqs = read_after(&*store, name, kept.first_kept - 1).await;
                let seqs: Vec<_> = seqs.iter().map(|e| e.0).collect();
                assert_eq!(seqs, (kept.first_kept..=6).collect::<Vec<_>>(), "{name}");
            }
        }
        assert_eq!(gone, 18);
    })
    .await;
}

#[tokio::test]
async fn a_wall_clock_set_back_makes_no_hole() {
    on_both(async |world| {
        let store = world.open().await;
        let start = world.now();
        write(&*store, "s", &["一"]).await;
        // The second event seems an hour older than the first.
        world.clock.jump(-3_600_000);
        write(&*store, "s", &["二"]).await;
        world.clock.jump(3_600_000);
        store.commit(Commit::new().append(closing(append("s", &["三"])))).await.unwrap();

        store.purge(start, ALL).await.unwrap();
        let kept = extent(&*store, "s").await;
        let events = read_after(&*store, "s", kept.first_kept - 1).await;
        let seqs: Vec<_> = events.iter().map(|e| e.0).collect();
        assert_eq!(seqs, (kept.first_kept..=3).collect::<Vec<_>>());
    })
    .await;
}

/// What a tenant stores is known without reading it, and shrinks with what is removed.
#[tokio::test]
async fn stored_bytes_follow_appends_records_purges_and_erasure() {
    on_both(async |world| {
        let store = world.open().await;
        let start = world.now();
        let stored = async || store.stored_bytes(&acme(), &[KIND]).await.unwrap();
        assert_eq!(stored().await, 0);
        six_events(&world, &*store, "s", true).await;
        let page = store.read(&acme(), &stream("s"), 0, usize::MAX).await.unwrap();
        let bodies: Vec<u64> = page.chunks.iter().map(|chunk| chunk.body().len() as u64).collect();
        assert_eq!(stored().await, bodies.iter().sum::<u64>());
        store.purge(start + 20 * SECOND, ALL).await.unwrap();
        assert_eq!(stored().await, bodies[2..].iter().sum::<u64>());
        let other = store.stored_bytes(&"other".parse().unwrap(), &[KIND]).await.unwrap();
        assert_eq!(other, 0);
        store.erase(&acme()).await.unwrap();
        assert_eq!(stored().await, 0);
    })
    .await;
}
