//! Waiting for a lease: woken by its release, refused when the wait is over.

use std::time::Duration;

use shikiri_model::lease::LeaseRefusal;
use shikiri_store::{CommitError, HubTopic, StoreExt as _};
use tokio::time::{Instant, timeout};

use crate::words::SECOND;
use crate::world::on_both;

const LONG: Duration = Duration::from_secs(20);

#[tokio::test]
async fn a_waiter_gets_the_lease_when_any_handle_releases_it() {
    on_both(async |world| {
        let (one, two) = world.two_handles().await;
        for holder in [&one, &two] {
            let held = holder.try_acquire("n", "甲", LONG).await.unwrap();
            let waiter = {
                let store = one.clone();
                tokio::spawn(async move {
                    let lease = store.acquire("n", "乙", LONG, LONG).await.unwrap();
                    (lease, Instant::now())
                })
            };
            tokio::time::sleep(SECOND / 5).await;
            assert!(!waiter.is_finished());
            holder.release(&held.guard()).await.unwrap();
            let released = Instant::now();
            let (lease, got) = waiter.await.unwrap();
            let pause = got.saturating_duration_since(released);
            assert!(pause < 5 * SECOND, "it took {pause:?}");
            assert_eq!((lease.owner.as_str(), lease.fence), ("乙", held.fence + 1));
            one.release(&lease.guard()).await.unwrap();
        }
    })
    .await;
}

#[tokio::test]
async fn a_release_wakes_those_who_wait_on_every_handle() {
    on_both(async |world| {
        let (one, two) = world.two_handles().await;
        let held = one.try_acquire("n", "甲", LONG).await.unwrap();
        let mut here = one.hub().subscribe(HubTopic::Lease("n".into()));
        let mut there = two.hub().subscribe(HubTopic::Lease("n".into()));
        one.release(&held.guard()).await.unwrap();
        assert!(!timeout(5 * SECOND, here.next()).await.unwrap().is_empty());
        assert!(!timeout(5 * SECOND, there.next()).await.unwrap().is_empty());
    })
    .await;
}

#[tokio::test]
async fn a_waiter_is_refused_when_its_wait_is_over() {
    on_both(async |world| {
        let store = world.open().await;
        store.try_acquire("n", "甲", LONG).await.unwrap();
        for wait_ms in [0, 300, 700] {
            let wait = Duration::from_millis(wait_ms);
            let begun = Instant::now();
            let refused = store.acquire("n", "乙", LONG, wait).await.unwrap_err();
            let waited = begun.elapsed();
            assert!(
                matches!(&refused, CommitError::Lease(LeaseRefusal::Held { owner, .. }) if owner == "甲")
            );
            let (early, late) = (SECOND / 4, 5 * SECOND);
            assert!(waited + early >= wait && waited <= wait + late, "{waited:?} for {wait:?}");
        }
    })
    .await;
}

#[tokio::test]
async fn a_waiter_gets_a_lease_that_lapses_without_a_release() {
    on_both(async |world| {
        let (one, two) = world.two_handles().await;
        one.try_acquire("n", "消えた人", 10 * SECOND).await.unwrap();
        let waiter = tokio::spawn(async move { two.acquire("n", "乙", LONG, LONG).await });
        tokio::time::sleep(SECOND / 5).await;
        assert!(!waiter.is_finished());
        world.clock.advance(10 * SECOND);
        let lease = timeout(LONG, waiter).await.unwrap().unwrap().unwrap();
        assert_eq!((lease.owner.as_str(), lease.fence), ("乙", 2));
    })
    .await;
}

#[tokio::test]
async fn of_many_waiters_each_gets_its_turn_and_never_two_at_once() {
    on_both(async |world| {
        let (one, two) = world.two_handles().await;
        let inside = std::sync::Arc::new(std::sync::atomic::AtomicU32::new(0));
        let waiters: Vec<_> = (0..12)
            .map(|n| {
                let store = if n % 2 == 0 { one.clone() } else { two.clone() };
                let inside = inside.clone();
                tokio::spawn(async move {
                    let owner = format!("待人{n}");
                    let lease = store.acquire("n", &owner, LONG, LONG).await.unwrap();
                    assert_eq!(inside.fetch_add(1, std::sync::atomic::Ordering::SeqCst), 0);
                    tokio::time::sleep(Duration::from_millis(5)).await;
                    assert_eq!(inside.fetch_sub(1, std::sync::atomic::Ordering::SeqCst), 1);
                    store.release(&lease.guard()).await.unwrap();
                    lease.fence
                })
            })
            .collect();
        let mut fences = Vec::new();
        for waiter in waiters {
            fences.push(waiter.await.unwrap());
        }
        fences.sort_unstable();
        assert_eq!(fences, (1..=12).collect::<Vec<_>>());
    })
    .await;
}
