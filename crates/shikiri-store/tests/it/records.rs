//! Records: put, read, found by their unique value, changed by version, deleted.

use shikiri_model::record::{ExpectedVersion, Record, RecordChange, RecordColumns, RecordKey};
use shikiri_model::tenant::Tenant;
use shikiri_store::{Commit, CommitError, StoreExt as _};

use crate::words::{KIND, SECOND, acme, change, doc, key, put, put_for, tenant, unique};
use crate::world::on_both;

#[tokio::test]
async fn a_record_is_read_back_as_it_was_put() {
    on_both(async |world| {
        let (one, two) = world.two_handles().await;
        let columns = RecordColumns {
            state: "実行中".into(),
            parent: Some("親".into()),
            owner: Some("担当".into()),
            unique: Some("一意の鍵".into()),
            due_at: Some(world.now() + SECOND),
        };
        assert_eq!(one.get(&key("a")).await.unwrap(), None);
        let made = change(&*one, put("a", ExpectedVersion::New, columns.clone())).await.unwrap();
        assert_eq!((made.versions, made.at), (vec![1], world.now()));
        let expected = Record {
            key: key("a"),
            version: 1,
            attempts: 0,
            created_at: world.now(),
            updated_at: world.now(),
            columns,
            doc: doc("a"),
        };
        assert_eq!(two.get(&key("a")).await.unwrap(), Some(expected.clone()));
        let found = two.find(KIND, &acme(), "一意の鍵").await.unwrap();
        assert_eq!(found, Some(expected.clone()));

        world.clock.advance(SECOND);
        let change_of_all = put("a", ExpectedVersion::Version(1), RecordColumns::default());
        assert_eq!(change(&*two, change_of_all).await.unwrap().versions, [2]);
        let changed = Record {
            version: 2,
            updated_at: world.now(),
            columns: RecordColumns::default(),
            ..expected
        };
        assert_eq!(one.get(&key("a")).await.unwrap(), Some(changed));
        assert_eq!(one.find(KIND, &acme(), "一意の鍵").await.unwrap(), None);
    })
    .await;
}

#[tokio::test]
async fn a_record_of_another_tenant_or_kind_is_another_record() {
    on_both(async |world| {
        let store = world.open().await;
        change(&*store, put("a", ExpectedVersion::New, unique("鍵"))).await.unwrap();
        change(&*store, put_for("other", "a", ExpectedVersion::New, unique("鍵"))).await.unwrap();
        assert_eq!(store.get(&RecordKey { kind: "else", ..key("a") }).await.unwrap(), None);
        assert_eq!(store.find("else", &acme(), "鍵").await.unwrap(), None);
        assert_eq!(store.find(KIND, &tenant("absent"), "鍵").await.unwrap(), None);
        let theirs = store.find(KIND, &tenant("other"), "鍵").await.unwrap().unwrap();
        assert_eq!(theirs.key.tenant, tenant("other"));
    })
    .await;
}

#[tokio::test]
async fn of_two_writers_with_one_version_the_second_is_refused() {
    on_both(async |world| {
        let (one, two) = world.two_handles().await;
        let plain = || RecordColumns::default();
        change(&*one, put("a", ExpectedVersion::New, plain())).await.unwrap();
        let again = change(&*two, put("a", ExpectedVersion::New, plain())).await;
        assert!(matches!(again, Err(CommitError::Exists(k)) if k == key("a")));
        change(&*two, put("a", ExpectedVersion::Version(1), plain())).await.unwrap();
        let stale = change(&*one, put("a", ExpectedVersion::Version(1), plain())).await;
        assert!(matches!(stale, Err(CommitError::Conflict(k)) if k == key("a")));
        let stale = change(&*one, RecordChange::Delete { key: key("a"), version: 1 }).await;
        assert!(matches!(stale, Err(CommitError::Conflict(_))));
        change(&*one, RecordChange::Delete { key: key("a"), version: 2 }).await.unwrap();
        assert_eq!(two.get(&key("a")).await.unwrap(), None);
        let gone = change(&*two, put("a", ExpectedVersion::Version(2), plain())).await;
        assert!(matches!(gone, Err(CommitError::Conflict(_))));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_counter_changed_by_eight_writers_loses_no_step() {
    on_both(async |world| {
        let (one, two) = world.two_handles().await;
        change(&*one, put("数", ExpectedVersion::New, RecordColumns::default())).await.unwrap();
        let writers: Vec<_> = (0..8)
            .map(|n| if n % 2 == 0 { one.clone() } else { two.clone() })
            .map(|store| {
                tokio::spawn(async move {
                    let mut steps = 0;
                    while steps < 10 {
                        let version = store.get(&key("数")).await.unwrap().unwrap().version;
                        let step =
                            put("数", ExpectedVersion::Version(version), RecordColumns::default());
                        match change(&*store, step).await {
                            Ok(_) => steps += 1,
                            Err(CommitError::Conflict(_)) => {}
                            Err(other) => panic!("{other}"),
                        }
                    }
                })
            })
            .collect();
        for writer in writers {
            writer.await.unwrap();
        }
        assert_eq!(one.get(&key("数")).await.unwrap().unwrap().version, 81);
    })
    .await;
}

#[tokio::test]
async fn a_taken_unique_value_is_refused_and_a_freed_one_is_not() {
    on_both(async |world| {
        let (one, two) = world.two_handles().await;
        change(&*one, put("a", ExpectedVersion::New, unique("鍵"))).await.unwrap();
        let taken = change(&*two, put("b", ExpectedVersion::New, unique("鍵"))).await;
        assert!(matches!(taken, Err(CommitError::NotUnique(k)) if k == key("a")));
        change(&*one, put("a", ExpectedVersion::Version(1), unique("別"))).await.unwrap();
        change(&*two, put("b", ExpectedVersion::New, unique("鍵"))).await.unwrap();
        change(&*one, RecordChange::Delete { key: key("b"), version: 1 }).await.unwrap();
        change(&*two, put("c", ExpectedVersion::New, unique("鍵"))).await.unwrap();
        assert_eq!(one.find(KIND, &acme(), "鍵").await.unwrap().unwrap().key, key("c"));
    })
    .await;
}

#[tokio::test]
async fn unique_values_change_hands_within_one_commit() {
    on_both(async |world| {
        let store = world.open().await;
        for (id, value) in [("a", "東"), ("b", "西"), ("z", "南")] {
            change(&*store, put(id, ExpectedVersion::New, unique(value))).await.unwrap();
        }
        let exchange = Commit::new()
            .record(put("a", ExpectedVersion::Version(1), RecordColumns::default()))
            .record(put("b", ExpectedVersion::Version(1), unique("東")))
            .record(put("a", ExpectedVersion::Version(2), unique("西")))
            .record(RecordChange::Delete { key: key("z"), version: 1 })
            .record(put("c", ExpectedVersion::New, unique("南")));
        assert_eq!(store.commit(exchange).await.unwrap().versions, [2, 2, 3, 0, 1]);
        for (value, id) in [("西", "a"), ("東", "b"), ("南", "c")] {
            assert_eq!(store.find(KIND, &acme(), value).await.unwrap().unwrap().key, key(id));
        }
        let twice = Commit::new().record(put("d", ExpectedVersion::New, unique("北"))).record(put(
            "e",
            ExpectedVersion::New,
            unique("北"),
        ));
        let refused = store.commit(twice).await;
        assert!(matches!(refused, Err(CommitError::NotUnique(k)) if k == key("d")));
        assert_eq!(store.get(&key("d")).await.unwrap(), None);
    })
    .await;
}

#[tokio::test]
async fn a_record_made_anew_in_the_commit_that_deleted_it_is_new() {
    on_both(async |world| {
        let store = world.open().await;
        change(&*store, put("a", ExpectedVersion::New, RecordColumns::default())).await.unwrap();
        change(&*store, put("a", ExpectedVersion::Version(1), unique("鍵"))).await.unwrap();
        world.clock.advance(SECOND);
        let anew = Commit::new()
            .record(RecordChange::Delete { key: key("a"), version: 2 })
            .record(put("a", ExpectedVersion::New, unique("鍵")));
        assert_eq!(store.commit(anew).await.unwrap().versions, [0, 1]);
        let record = store.get(&key("a")).await.unwrap().unwrap();
        assert_eq!((record.version, record.created_at), (1, world.now()));
    })
    .await;
}

#[tokio::test]
async fn a_document_is_loaded_with_what_the_store_knows_of_it() {
    on_both(async |world| {
        let store = world.open().await;
        let value = Tenant::new(acme(), "株式会社アクメ".into());
        change(&*store, RecordChange::put(&value, ExpectedVersion::New).unwrap()).await.unwrap();
        let owner = shikiri_model::ids::TenantId::system();
        let loaded = store.load::<Tenant>(&owner, "acme").await.unwrap().unwrap();
        assert_eq!((loaded.version, loaded.value), (1, value));
        assert!(store.load::<Tenant>(&owner, "absent").await.unwrap().is_none());
    })
    .await;
}
