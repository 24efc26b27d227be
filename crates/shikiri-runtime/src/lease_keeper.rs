//! The renewal of leases for as long as the work under them takes.

use std::time::Duration;

use shikiri_model::lease::{LeaseChange, LeaseGuard};
use shikiri_store::{Commit, CommitError, Store, StoreError};
use tokio::time::Instant;

/// Renews leases in one commit, three times per `ttl`, and returns when one of them is lost. While
/// the store cannot be reached they count as held until `outage` has passed since the last renewal.
pub async fn keep_leases(
    store: &dyn Store,
    guards: &[LeaseGuard],
    ttl: Duration,
    outage: Duration,
) {
    let mut renewed = Instant::now();
    loop {
        tokio::time::sleep(ttl / 3).await;
        let renewals = guards.iter().fold(Commit::new(), |commit, guard| {
            commit.lease(LeaseChange::Renew { guard: guard.clone(), ttl })
        });
        match store.commit(renewals).await {
            Ok(_) => renewed = Instant::now(),
            Err(CommitError::Store(StoreError::Unavailable(_) | StoreError::Unknown(_)))
                if renewed.elapsed() < outage => {}
            Err(_) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::slice;

    use shikiri_store::StoreExt as _;
    use shikiri_store::sqlite::{SqliteOptions, SqliteStore};

    use super::*;

    #[tokio::test]
    async fn keep_leases_outlives_the_ttl_and_ends_when_a_lease_is_taken_over() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("state.db");
        let store = SqliteStore::open(&file, SqliteOptions::default()).unwrap();
        let ttl = Duration::from_secs(2);
        let lease = store.try_acquire("job", "first", ttl).await.unwrap();
        let guard = lease.guard();
        let keeping = keep_leases(&store, slice::from_ref(&guard), ttl, ttl);
        let mut keeping = std::pin::pin!(keeping);
        let kept = tokio::time::timeout(ttl * 3 / 2, keeping.as_mut()).await;
        assert!(kept.is_err(), "the lease was lost");
        assert!(store.try_acquire("job", "second", ttl).await.is_err(), "the lease has lapsed");
        store.release(&guard).await.unwrap();
        store.try_acquire("job", "second", ttl).await.unwrap();
        tokio::time::timeout(ttl, keeping).await.expect("the loss was not noticed");
    }
}
