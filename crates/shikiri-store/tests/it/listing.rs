//! Listing records: in the order in which they were made, page by page, in both directions.

use shikiri_model::record::{ExpectedVersion, RecordColumns, RecordQuery};
use shikiri_store::Store;

use crate::words::{KIND, SECOND, acme, change, ids, put, put_for, tenant};
use crate::world::{World, on_both};

fn query(limit: u32) -> RecordQuery {
    RecordQuery { kind: KIND, tenant: Some(acme()), limit, ..RecordQuery::default() }
}

/// Walks all pages.
async fn walk(store: &dyn Store, mut query: RecordQuery) -> Vec<String> {
    let mut all = Vec::new();
    loop {
        let page = store.list(query.clone()).await.unwrap();
        assert!(page.len() <= query.limit as usize);
        all.extend(ids(&page).into_iter().map(str::to_owned));
        match page.last() {
            Some(last) if page.len() == query.limit as usize => query.after = Some(last.position()),
            _ => return all,
        }
    }
}

/// Ids in the order of their making; three share each moment and stand in the order of bytes.
async fn populate(world: &World, store: &dyn Store) -> Vec<String> {
    let mut made = Vec::new();
    for moment in 0..5 {
        // Bytes put upper case first, dictionaries do not.
        for id in [format!("B{moment}"), format!("a{moment}"), format!("c-{moment}")] {
            let columns = RecordColumns {
                state: if moment % 2 == 0 { "待機" } else { "完了" }.into(),
                parent: (moment < 2).then(|| "親".into()),
                owner: (id.starts_with('a')).then(|| "担当".into()),
                ..RecordColumns::default()
            };
            change(store, put(&id, ExpectedVersion::New, columns)).await.unwrap();
            made.push(id);
        }
        world.clock.advance(SECOND);
    }
    made
}

#[tokio::test]
async fn pages_in_both_directions_give_every_record_once() {
    on_both(async |world| {
        let store = world.open().await;
        let made = populate(&world, &*store).await;
        let backwards: Vec<_> = made.iter().rev().cloned().collect();
        for limit in [1, 2, 4, 7, 15, 100] {
            assert_eq!(walk(&*store, query(limit)).await, made, "pages of {limit}");
            let newest_first = RecordQuery { newest_first: true, ..query(limit) };
            assert_eq!(walk(&*store, newest_first).await, backwards, "pages of {limit}");
        }
    })
    .await;
}

#[tokio::test]
async fn listings_are_filtered_by_every_column() {
    on_both(async |world| {
        let store = world.open().await;
        populate(&world, &*store).await;
        change(&*store, put_for("other", "o1", ExpectedVersion::New, RecordColumns::default()))
            .await
            .unwrap();
        let text = |value: &str| Some(value.to_owned());

        let done = RecordQuery { state: text("完了"), ..query(4) };
        assert_eq!(walk(&*store, done).await, ["B1", "a1", "c-1", "B3", "a3", "c-3"]);
        let children = RecordQuery { parent: text("親"), newest_first: true, ..query(4) };
        assert_eq!(walk(&*store, children).await, ["c-1", "a1", "B1", "c-0", "a0", "B0"]);
        let owned = RecordQuery { owner: text("担当"), ..query(2) };
        assert_eq!(walk(&*store, owned.clone()).await, ["a0", "a1", "a2", "a3", "a4"]);
        let narrow = RecordQuery { parent: text("親"), state: text("完了"), ..owned };
        assert_eq!(walk(&*store, narrow).await, ["a1"]);
        let theirs = RecordQuery { tenant: Some(tenant("other")), ..query(4) };
        assert_eq!(walk(&*store, theirs).await, ["o1"]);
        let everybody = RecordQuery { tenant: None, ..query(4) };
        assert_eq!(walk(&*store, everybody).await.len(), 16);
        assert!(walk(&*store, RecordQuery { kind: "else", ..query(4) }).await.is_empty());
        assert!(walk(&*store, RecordQuery { state: text(""), ..query(4) }).await.is_empty());
    })
    .await;
}

#[tokio::test]
async fn a_listing_goes_on_where_it_was_although_records_come_and_change() {
    on_both(async |world| {
        let store = world.open().await;
        let made = populate(&world, &*store).await;
        let first = store.list(query(5)).await.unwrap();
        let after = Some(first[4].position());
        // A change does not move a record, a new one comes last.
        change(&*store, put(&made[0], ExpectedVersion::Version(1), RecordColumns::default()))
            .await
            .unwrap();
        change(&*store, put(&made[9], ExpectedVersion::Version(1), RecordColumns::default()))
            .await
            .unwrap();
        change(&*store, put("0-new", ExpectedVersion::New, RecordColumns::default()))
            .await
            .unwrap();
        let rest = store.list(RecordQuery { after, ..query(100) }).await.unwrap();
        let mut expected: Vec<_> = made[5..].iter().map(String::as_str).collect();
        expected.push("0-new");
        assert_eq!(ids(&rest), expected);
    })
    .await;
}
