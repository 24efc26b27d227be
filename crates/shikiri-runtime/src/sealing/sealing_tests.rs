use std::sync::Arc;

use shikiri_store::sqlite::{SqliteOptions, SqliteStore};

use super::*;

const LABEL: &str = "for this";

#[test]
fn a_seal_is_good_for_its_key_and_its_label_alone() {
    let (one, other) = (SealingKey::new([1; 32]), SealingKey::new([2; 32]));
    let sealed = one.seal(LABEL, "秘密".as_bytes()).unwrap();
    assert!(is_sealed(&sealed) && sealed.contains(&one.id) && !sealed.contains("秘密"));
    assert_eq!(one.open(LABEL, &sealed).unwrap(), "秘密".as_bytes());
    assert_ne!(one.seal(LABEL, "秘密".as_bytes()).unwrap(), sealed, "each has a nonce of its own");
    assert_eq!(one.open("for that", &sealed), None);
    assert_eq!(other.open(LABEL, &sealed), None);
    let renamed = sealed.replace(&one.id, &other.id);
    assert_eq!(other.open(LABEL, &renamed), None, "an id alone opens nothing");
    for bad in ["", "plain", "sealed:v1:", "sealed:v1:x", "sealed:v1:x:!", &sealed[..40]] {
        assert_eq!(one.open(LABEL, bad), None, "{bad}");
    }
}

fn store(folder: &Path) -> Arc<dyn Store> {
    Arc::new(SqliteStore::open(&folder.join("state.db"), SqliteOptions::default()).unwrap())
}

#[tokio::test]
async fn the_first_key_is_the_stores_and_no_other_is_taken() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path());
    let keys = |name: &str| SealingKeys::new(folder.path().join(name));
    assert_eq!(keys("a.key").state(&*store).await.unwrap(), SealingState::Unused);
    assert!(!folder.path().join("a.key").exists());
    let first = keys("a.key").for_sealing(&*store).await.unwrap().id.clone();
    assert_eq!(keys("a.key").for_sealing(&*store).await.unwrap().id, first);
    assert_eq!(keys("a.key").state(&*store).await.unwrap(), SealingState::Fits);
    let missing = keys("b.key").for_sealing(&*store).await.err().unwrap();
    assert!(matches!(missing, SealingError::Missing(_)), "{missing}");
    assert!(!folder.path().join("b.key").exists(), "no second key is made");
    keys("b.key").file.read_or_make().await.unwrap();
    let another = keys("b.key").for_sealing(&*store).await.err().unwrap();
    assert!(matches!(another, SealingError::AnotherKey(_)), "{another}");
}

#[tokio::test]
async fn of_many_nodes_that_start_at_once_all_have_the_stores_key_or_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path());
    let nodes = (0..16).map(|node| {
        let (store, path) = (Arc::clone(&store), folder.path().join(format!("{}.key", node % 4)));
        tokio::spawn(async move {
            let keys = SealingKeys::new(path);
            keys.for_sealing(&*store).await.map(|key| key.id.clone())
        })
    });
    let mut taken = std::collections::BTreeSet::new();
    for node in futures_util::future::join_all(nodes).await {
        match node.unwrap() {
            Ok(id) => drop(taken.insert(id)),
            Err(error) => assert!(error.is_about_the_key(), "{error}"),
        }
    }
    assert_eq!(taken.len(), 1);
}

#[tokio::test]
async fn a_key_of_earlier_logins_goes_on_and_an_open_one_is_refused() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = tempfile::tempdir().unwrap();
    let earlier = KeyFile::new(folder.path().join("host.key")).read_or_make().await.unwrap();
    let path = folder.path().join("sealing.key");
    assert_eq!(KeyFile::new(path.clone()).read_or_make().await.unwrap(), earlier);
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o604)).unwrap();
    let exposed = KeyFile::new(path).read().await.unwrap_err();
    assert!(exposed.to_string().contains("chmod 600"), "{exposed}");
}
