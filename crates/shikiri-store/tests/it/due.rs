//! When the next record is due, and who is told that one may be.

use shikiri_model::record::{ExpectedVersion, RecordColumns};
use shikiri_store::HubTopic;
use tokio::time::timeout;

use crate::words::{KIND, SECOND, change, claim, claimed, put, put_for};
use crate::world::on_both;

#[tokio::test]
async fn the_next_due_time_is_the_earliest_of_the_kind() {
    on_both(async |world| {
        let store = world.open().await;
        let start = world.now();
        let due = |seconds: u32| RecordColumns {
            due_at: Some(start + seconds * SECOND),
            ..RecordColumns::default()
        };
        assert_eq!(store.next_due(KIND).await.unwrap(), None);
        change(&*store, put("無", ExpectedVersion::New, RecordColumns::default())).await.unwrap();
        assert_eq!(store.next_due(KIND).await.unwrap(), None);
        change(&*store, put("後", ExpectedVersion::New, due(20))).await.unwrap();
        change(&*store, put_for("other", "先", ExpectedVersion::New, due(5))).await.unwrap();
        assert_eq!(store.next_due(KIND).await.unwrap(), Some(start + 5 * SECOND));
        assert_eq!(store.next_due("else").await.unwrap(), None);

        world.clock.advance(6 * SECOND);
        assert_eq!(store.next_due(KIND).await.unwrap(), Some(start + 5 * SECOND), "overdue");
        claimed(&*store, claim("甲", 9)).await;
        assert_eq!(store.next_due(KIND).await.unwrap(), Some(start + 16 * SECOND), "held");
    })
    .await;
}

#[tokio::test]
async fn a_due_record_wakes_workers_on_every_handle() {
    on_both(async |world| {
        let (one, two) = world.two_handles().await;
        let mut here = one.hub().subscribe(HubTopic::Due(KIND));
        let mut there = two.hub().subscribe(HubTopic::Due(KIND));
        let columns = RecordColumns { due_at: Some(world.now()), ..RecordColumns::default() };
        change(&*one, put("仕事", ExpectedVersion::New, columns)).await.unwrap();
        assert!(!timeout(5 * SECOND, here.next()).await.unwrap().is_empty());
        assert!(!timeout(5 * SECOND, there.next()).await.unwrap().is_empty());
        assert_eq!(claimed(&*two, claim("甲", 1)).await.len(), 1, "woken no earlier than written");
    })
    .await;
}
