//! Leases: taken, renewed, released, lapsed by the store's clock, and fenced.

use shikiri_model::lease::{LeaseGuard, LeaseRefusal};
use shikiri_store::{Commit, CommitError, Store, StoreExt as _};

use crate::words::{SECOND, append, read_after};
use crate::world::on_both;

fn is_lost<T: std::fmt::Debug>(outcome: &Result<T, CommitError>) -> bool {
    matches!(outcome, Err(CommitError::Lease(LeaseRefusal::Lost { .. })))
}

async fn write_under(store: &dyn Store, guard: &LeaseGuard) -> Result<(), CommitError> {
    let commit = Commit::new().guarded_by(guard.clone()).append(append("s", &["書"]));
    store.commit(commit).await.map(drop)
}

#[tokio::test]
async fn a_lease_has_one_holder_until_it_is_released() {
    on_both(async |world| {
        let (one, two) = world.two_handles().await;
        assert_eq!(one.lease("会話/一").await.unwrap(), None);
        let first = one.try_acquire("会話/一", "甲", 10 * SECOND).await.unwrap();
        assert_eq!((first.fence, first.owner.as_str()), (1, "甲"));
        assert_eq!(two.lease("会話/一").await.unwrap(), Some((first.clone(), false)));

        let refused = two.try_acquire("会話/一", "乙", 10 * SECOND).await.unwrap_err();
        let CommitError::Lease(LeaseRefusal::Held { owner, for_ms, .. }) = refused else {
            panic!("{refused:?}")
        };
        assert_eq!((owner.as_str(), for_ms), ("甲", 10_000));

        one.release(&first.guard()).await.unwrap();
        let (_, lapsed) = two.lease("会話/一").await.unwrap().unwrap();
        assert!(lapsed);
        let second = two.try_acquire("会話/一", "乙", 10 * SECOND).await.unwrap();
        assert_eq!(second.fence, 2, "the fence rises over a release");
        assert!(is_lost(&one.release(&first.guard()).await), "not the old holder's to release");
        assert_eq!(one.lease("会話/一").await.unwrap(), Some((second, false)));
    })
    .await;
}

#[tokio::test]
async fn renewing_keeps_a_lease_beyond_its_first_time() {
    on_both(async |world| {
        let store = world.open().await;
        let lease = store.try_acquire("n", "甲", 10 * SECOND).await.unwrap();
        for _ in 0..5 {
            world.clock.advance(6 * SECOND);
            let renewed = store.renew(&lease.guard(), 10 * SECOND).await.unwrap();
            assert_eq!(renewed.fence, lease.fence);
        }
        assert!(store.try_acquire("n", "乙", SECOND).await.is_err());
        world.clock.advance(10 * SECOND);
        assert!(is_lost(&store.renew(&lease.guard(), 10 * SECOND).await), "too late");
        assert_eq!(store.try_acquire("n", "乙", SECOND).await.unwrap().fence, 2);
    })
    .await;
}

#[tokio::test]
async fn a_holder_that_slept_past_its_expiry_cannot_write() {
    on_both(async |world| {
        let (one, two) = world.two_handles().await;
        let sleeper = one.try_acquire("n", "眠る人", 10 * SECOND).await.unwrap().guard();
        write_under(&*one, &sleeper).await.unwrap();
        world.clock.advance(10 * SECOND);
        assert!(is_lost(&write_under(&*one, &sleeper).await), "even if it is free");

        let taker = two.try_acquire("n", "次の人", 10 * SECOND).await.unwrap().guard();
        write_under(&*two, &taker).await.unwrap();
        for store in [&one, &two] {
            assert!(is_lost(&write_under(&**store, &sleeper).await));
            assert!(is_lost(&store.renew(&sleeper, 10 * SECOND).await));
            assert!(is_lost(&store.release(&sleeper).await));
        }
        let forged = LeaseGuard { name: "n".into(), fence: taker.fence + 1 };
        assert!(is_lost(&write_under(&*two, &forged).await));
        let unheld = LeaseGuard { name: "誰も".into(), fence: 1 };
        assert!(is_lost(&write_under(&*two, &unheld).await));
        assert_eq!(read_after(&*one, "s", 0).await.len(), 2);
    })
    .await;
}

#[tokio::test]
async fn a_wall_clock_jump_does_not_touch_leases() {
    on_both(async |world| {
        let store = world.open().await;
        let guard = store.try_acquire("n", "甲", 10 * SECOND).await.unwrap().guard();
        for jump_ms in [3_600_000, -7_200_000, 3_600_000] {
            world.clock.jump(jump_ms);
            assert!(!store.lease("n").await.unwrap().unwrap().1, "lapsed by {jump_ms}");
            assert!(store.try_acquire("n", "乙", SECOND).await.is_err());
            write_under(&*store, &guard).await.unwrap();
            assert!(store.lapsed_leases("").await.unwrap().is_empty());
        }
        world.clock.advance(10 * SECOND);
        assert!(store.lease("n").await.unwrap().unwrap().1);
    })
    .await;
}

#[tokio::test]
async fn lapsed_leases_are_found_by_the_letters_of_their_prefix() {
    on_both(async |world| {
        let store = world.open().await;
        // `_` and `%` are letters here, and upper case is not lower case.
        let names = ["node_a", "node_b", "nodeXc", "node%d", "Node_e", "節_一", "節_二", "other"];
        for name in names {
            store.try_acquire(name, "甲", 10 * SECOND).await.unwrap();
        }
        store.try_acquire("node_alive", "甲", 100 * SECOND).await.unwrap();
        let found = async |prefix: &str| {
            let mut names: Vec<_> =
                store.lapsed_leases(prefix).await.unwrap().into_iter().map(|l| l.name).collect();
            names.sort();
            names
        };
        assert!(found("").await.is_empty());
        world.clock.advance(10 * SECOND);
        assert_eq!(found("node_").await, ["node_a", "node_b"]);
        assert_eq!(found("node%").await, ["node%d"]);
        assert_eq!(found("節").await, ["節_一", "節_二"]);
        assert_eq!(found("無").await, Vec::<String>::new());
        assert_eq!(found("").await.len(), names.len());
    })
    .await;
}

#[tokio::test]
async fn only_a_lapsed_lease_of_the_same_fence_is_forgotten() {
    on_both(async |world| {
        let store = world.open().await;
        let first = store.try_acquire("n", "甲", 10 * SECOND).await.unwrap();
        store.forget_lease(&first.guard()).await.unwrap();
        assert!(store.lease("n").await.unwrap().is_some(), "it is held");

        world.clock.advance(10 * SECOND);
        let second = store.try_acquire("n", "乙", 10 * SECOND).await.unwrap();
        world.clock.advance(10 * SECOND);
        store.forget_lease(&first.guard()).await.unwrap();
        assert!(store.lease("n").await.unwrap().is_some(), "it is another's");
        store.forget_lease(&second.guard()).await.unwrap();
        assert_eq!(store.lease("n").await.unwrap(), None);
        assert!(store.lapsed_leases("").await.unwrap().is_empty());
    })
    .await;
}
