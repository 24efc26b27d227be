//! Random stories, told to every backend and to a plain model in memory: all must say the same.

use std::time::Duration;

use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::{Config, RngAlgorithm, RngSeed, TestRunner};
use shikiri_model::event::{Seq, StreamId};
use shikiri_model::ids::TenantId;
use shikiri_model::lease::LeaseGuard;
use shikiri_model::record::RecordQuery;
use shikiri_store::{Clock as _, Commit, Store, StoreError, SystemClock};

use crate::model::Model;
use crate::steps::any_step;
use crate::words::{KIND, acme, tenant};
use crate::world::World;

const CASES: u32 = 40;
const SEED: &str = "SHIKIRI_TEST_SEED";

#[derive(Clone, Debug)]
pub(crate) enum Step {
    Commit(Commit),
    /// Lets milliseconds pass.
    Wait(u64),
    Read(TenantId, StreamId, Seq),
    List(RecordQuery),
    Find(&'static str),
    NextDue,
    Lapsed(&'static str),
    Forget(LeaseGuard),
    /// What is older than so many milliseconds.
    Purge(u64),
    Erase(TenantId),
}

#[tokio::test]
async fn all_backends_and_a_plain_model_agree_on_random_stories() {
    let seed = std::env::var(SEED).map_or_else(
        |_| SystemClock.now().as_millis().unsigned_abs(),
        |text| text.parse().unwrap(),
    );
    eprintln!("{SEED}={seed} tells the same stories again");
    let mut runner = TestRunner::new(Config {
        rng_algorithm: RngAlgorithm::ChaCha,
        rng_seed: RngSeed::Fixed(seed),
        failure_persistence: None,
        ..Config::default()
    });
    let stories = prop::collection::vec(any_step(), 1..60);
    let mut worlds = Vec::new();
    for world in World::each("a story of the store").await {
        let handles = world.two_handles().await;
        worlds.push((world, [handles.0, handles.1]));
    }
    for case in 0..CASES {
        let mut tree = stories.new_tree(&mut runner).unwrap();
        let Err(first) = tell(&worlds, &tree.current()).await else { continue };
        let (mut shortest, mut disagreement) = (tree.current(), first);
        for _ in 0..200 {
            if !tree.simplify() {
                break;
            }
            match tell(&worlds, &tree.current()).await {
                Err(still) => (shortest, disagreement) = (tree.current(), still),
                Ok(()) if tree.complicate() => {}
                Ok(()) => break,
            }
        }
        panic!("case {case} of {SEED}={seed}:\n{shortest:#?}\n{disagreement}");
    }
}

type Handles = [std::sync::Arc<dyn Store>; 2];

/// Tells one story everywhere; what was told differently, if anything was.
async fn tell(worlds: &[(World, Handles)], story: &[Step]) -> Result<(), String> {
    for (world, handles) in worlds {
        let mut model = Model::default();
        let outcome = tell_in(world, handles, &mut model, story).await;
        clean_up(world, &*handles[0]).await;
        outcome?;
    }
    Ok(())
}

async fn tell_in(
    world: &World,
    handles: &Handles,
    model: &mut Model,
    story: &[Step],
) -> Result<(), String> {
    for (n, step) in story.iter().enumerate() {
        // Every step has a time of its own, so that nothing is due or written at the same one.
        world.clock.advance(Duration::from_millis(1));
        if let Step::Wait(ms) = step {
            world.clock.advance(Duration::from_millis(*ms));
        }
        model.look_at(&world.clock);
        let step = &match step.clone() {
            Step::Commit(commit) => Step::Commit(model.informed(commit)),
            other => other,
        };
        let expected = say_in_model(model, step, world);
        let said = say(&*handles[n % 2], step, world).await;
        if said != expected {
            let backend = world.backend();
            return Err(format!(
                "step {n} {step:?}\n on {backend}: {said}\n in the model: {expected}"
            ));
        }
    }
    Ok(())
}

/// Worlds are used again by the next story.
async fn clean_up(world: &World, store: &dyn Store) {
    world.clock.advance(Duration::from_secs(3600));
    for owner in ["acme", "other"] {
        store.erase(&tenant(owner)).await.unwrap();
    }
    for lease in store.lapsed_leases("").await.unwrap() {
        store.forget_lease(&lease.guard()).await.unwrap();
    }
}

fn ago(world: &World, ms: u64) -> shikiri_model::time::Timestamp {
    let now = world.now().as_millis();
    shikiri_model::time::Timestamp::from_millis(now - i64::try_from(ms).unwrap())
}

fn say_in_model(model: &mut Model, step: &Step, world: &World) -> String {
    match step {
        Step::Commit(commit) => model.commit(commit),
        Step::Wait(_) => String::new(),
        Step::Read(owner, name, after) => model.read(owner, name, *after),
        Step::List(query) => format!("{:?}", model.list(query)),
        Step::Find(unique) => {
            let all =
                RecordQuery { kind: KIND, tenant: Some(acme()), limit: 99, ..Default::default() };
            let mut all = model.list(&all);
            all.retain(|record| record.columns.unique.as_deref() == Some(unique));
            format!("{:?}", all.pop())
        }
        Step::NextDue => format!("{:?}", model.next_due(KIND)),
        Step::Lapsed(prefix) => format!("{:?}", model.lapsed_leases(prefix)),
        Step::Forget(guard) => {
            model.forget_lease(guard);
            String::new()
        }
        Step::Purge(ms) => format!("{} chunks", model.purge(ago(world, *ms))),
        Step::Erase(owner) => {
            model.erase(owner);
            String::new()
        }
    }
}

async fn say(store: &dyn Store, step: &Step, world: &World) -> String {
    match step {
        Step::Commit(commit) => match store.commit(commit.clone()).await {
            Ok(done) => {
                let appended: Vec<_> =
                    done.appended.iter().map(|a| (a.first_seq, a.last_seq)).collect();
                format!("{:?} {:?} {appended:?} {:?}", done.leases, done.versions, done.claimed)
            }
            Err(refusal) => refusal.to_string(),
        },
        Step::Wait(_) => String::new(),
        Step::Read(owner, name, after) => {
            read(store, owner, name, *after).await.unwrap_or_else(|refusal| refusal.to_string())
        }
        Step::List(query) => format!("{:?}", store.list(query.clone()).await.unwrap()),
        Step::Find(unique) => format!("{:?}", store.find(KIND, &acme(), unique).await.unwrap()),
        Step::NextDue => format!("{:?}", store.next_due(KIND).await.unwrap()),
        Step::Lapsed(prefix) => {
            let mut lapsed = store.lapsed_leases(prefix).await.unwrap();
            lapsed.sort_by(|a, b| a.name.cmp(&b.name));
            format!("{lapsed:?}")
        }
        Step::Forget(guard) => {
            store.forget_lease(guard).await.unwrap();
            String::new()
        }
        Step::Purge(ms) => {
            format!("{} chunks", store.purge(ago(world, *ms), 1_000).await.unwrap())
        }
        Step::Erase(owner) => {
            store.erase(owner).await.unwrap();
            String::new()
        }
    }
}

async fn read(
    store: &dyn Store,
    owner: &TenantId,
    name: &StreamId,
    after: Seq,
) -> Result<String, StoreError> {
    let page = store.read(owner, name, after, 1 << 20).await?;
    let events: Vec<_> = page
        .chunks
        .iter()
        .flat_map(|chunk| chunk.events_after(after))
        .map(|event| (event.seq, event.at, event.kind, event.data))
        .collect();
    let note = store.stream(owner, name).await?.and_then(|state| state.note);
    Ok(format!("{events:?} {} {note:?}", page.extent.closed))
}
