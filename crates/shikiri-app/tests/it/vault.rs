//! Logins at other people's servers: kept sealed, good for one place, gone when damaged.

use std::path::Path;
use std::time::Duration;

use shikiri_client::TokenStore;
use shikiri_host::SealedTokenStore;
use shikiri_model::ids::TenantId;
use shikiri_model::record::{ExpectedVersion, Record, RecordChange, RecordQuery};
use shikiri_store::Commit;

use crate::world::World;

const HERE: &str = "https://here.example/mcp";
const THERE: &str = "https://there.example/mcp";

fn vault(world: &World, folder: &Path) -> SealedTokenStore {
    SealedTokenStore::new(
        world.app.runtime.clone(),
        TenantId::local(),
        folder.join("data/host.key"),
    )
}

async fn records(world: &World) -> Vec<Record> {
    let query = RecordQuery {
        kind: "host_credential",
        tenant: Some(TenantId::local()),
        state: None,
        parent: None,
        owner: None,
        after: None,
        newest_first: false,
        limit: 10,
    };
    world.app.runtime.store().list(query).await.unwrap()
}

async fn put(world: &World, record: &Record, doc: String) {
    let expect = ExpectedVersion::Version(record.version);
    let columns = record.columns.clone();
    let put = RecordChange::Put { key: record.key.clone(), expect, columns, doc };
    world.app.runtime.store().commit(Commit::new().record(put)).await.unwrap();
}

#[tokio::test]
async fn what_is_kept_comes_back_and_is_sealed_meanwhile() {
    let (world, folder) = (World::new(Vec::new()).await, tempfile::tempdir().unwrap());
    let one = vault(&world, folder.path());
    assert_eq!(one.open(HERE).await, Ok(None));
    assert!(!folder.path().join("data").exists(), "no key before it is needed");
    one.keep(HERE, b"first").await.unwrap();
    one.keep(HERE, b"second").await.unwrap();
    let another = vault(&world, folder.path());
    assert_eq!(another.open(HERE).await, Ok(Some(b"second".to_vec())));
    assert_eq!(another.open(THERE).await, Ok(None));
    let kept = records(&world).await;
    assert_eq!(kept.len(), 1);
    assert!(kept[0].doc.contains(HERE) && !kept[0].doc.contains("second"), "{}", kept[0].doc);
    another.forget(HERE).await.unwrap();
    assert_eq!(one.open(HERE).await, Ok(None));
    assert_eq!(records(&world).await.len(), 0);
}

#[tokio::test]
async fn a_seal_is_good_for_its_own_place_only() {
    let (world, folder) = (World::new(Vec::new()).await, tempfile::tempdir().unwrap());
    let vault = vault(&world, folder.path());
    vault.keep(HERE, b"for here").await.unwrap();
    let here = records(&world).await.remove(0);
    vault.keep(THERE, b"for there").await.unwrap();
    let all = records(&world).await;
    let there = all.iter().find(|record| record.key != here.key).unwrap();
    put(&world, there, here.doc.clone()).await;
    assert_eq!(vault.open(THERE).await, Ok(None), "it was moved");
    assert_eq!(vault.open(HERE).await, Ok(Some(b"for here".to_vec())));
    assert_eq!(records(&world).await.len(), 1, "what cannot be opened is removed");
}

#[tokio::test]
async fn a_damaged_record_is_removed_and_can_be_kept_anew() {
    let (world, folder) = (World::new(Vec::new()).await, tempfile::tempdir().unwrap());
    let vault = vault(&world, folder.path());
    for doc in ["{}", "{\"sealed\":1}"] {
        vault.keep(HERE, b"secret").await.unwrap();
        put(&world, &records(&world).await[0], doc.to_owned()).await;
        assert_eq!(vault.open(HERE).await, Ok(None), "{doc}");
        assert_eq!(records(&world).await.len(), 0, "{doc}");
    }
    vault.keep(HERE, b"secret").await.unwrap();
    assert_eq!(vault.open(HERE).await, Ok(Some(b"secret".to_vec())));
}

#[tokio::test]
async fn one_at_a_time_refreshes() {
    let (world, folder) = (World::new(Vec::new()).await, tempfile::tempdir().unwrap());
    let (one, two) = (vault(&world, folder.path()), vault(&world, folder.path()));
    let first = one.lock().await.unwrap();
    let mut second = tokio::spawn(async move { two.lock().await.map(drop) });
    let early = tokio::time::timeout(Duration::from_millis(100), &mut second).await;
    assert!(early.is_err(), "two at once");
    drop(first);
    second.await.unwrap().unwrap();
}
