//! Totals: every commit's share is in them once, and the counts of runs are those of a recount.

use std::collections::BTreeMap;

use shikiri_model::record::{ExpectedVersion, RecordChange, RecordColumns, RecordKey, RecordQuery};
use shikiri_model::run::{RUN_COUNTS, RunCounts, count_key};
use shikiri_model::total::{TotalChange, TotalKey, TotalNote, TotalQuery, TotalValue};
use shikiri_store::{Commit, Store};
use shikiri_testkit::Rng;

use crate::words::{acme, tenant};
use crate::world::on_both;

const SUM: &str = "sum";

fn share(period: &str, name: &str, amounts: &[i128], note: Option<i64>) -> TotalChange {
    let latest = note.map(|at| TotalNote {
        at: shikiri_model::time::Timestamp::from_millis(at),
        text: format!("覚え{at}"),
    });
    TotalChange {
        key: TotalKey {
            kind: SUM,
            tenant: acme(),
            period: period.to_owned(),
            name: name.to_owned(),
        },
        add: TotalValue { amounts: amounts.to_vec(), latest },
    }
}

fn adding(totals: &[TotalChange]) -> Commit {
    Commit { totals: totals.to_vec(), ..Commit::new() }
}

/// The sums by period and name.
async fn sums(store: &dyn Store, query: TotalQuery) -> BTreeMap<(String, String), TotalValue> {
    let mut sums = BTreeMap::<_, TotalValue>::new();
    for total in store.totals(query).await.unwrap() {
        sums.entry((total.period, total.name)).or_default().add(&total.value);
    }
    sums
}

fn all() -> TotalQuery {
    TotalQuery::of(SUM, &acme())
}

#[tokio::test]
async fn totals_of_a_time_are_read_from_its_first_period_up_to_its_last() {
    on_both(async |world| {
        let (one, other) = world.two_handles().await;
        let large = i128::from(u64::MAX) * 1_000_000;
        one.commit(adding(&[
            share("2026-11-14", "a", &[1], None),
            share("2026-11-15", "a", &[large, -1], Some(7)),
        ]))
        .await
        .unwrap();
        other
            .commit(adding(&[
                share("2026-11-15", "a", &[large, -1, 3], Some(5)),
                share("2026-11-15", "b", &[2], None),
                share("2026-11-16", "a", &[4], None),
            ]))
            .await
            .unwrap();
        let asked = TotalQuery {
            from: "2026-11-15".to_owned(),
            to: Some("2026-11-16".to_owned()),
            ..all()
        };
        let expected = [
            (("2026-11-15".into(), "a".into()), share("", "", &[2 * large, -2, 3], Some(7)).add),
            (("2026-11-15".into(), "b".into()), TotalValue::of(vec![2])),
        ];
        assert_eq!(sums(&*one, asked).await, BTreeMap::from(expected));
        assert_eq!(sums(&*other, all()).await.len(), 4);
        assert!(sums(&*one, TotalQuery::of("else", &acme())).await.is_empty());
        assert!(sums(&*one, TotalQuery::of(SUM, &tenant("other"))).await.is_empty());
    })
    .await;
}

#[tokio::test]
async fn a_refused_commit_adds_nothing_and_a_removed_tenant_has_no_totals() {
    on_both(async |world| {
        let store = world.open().await;
        let change = |expect| RecordChange::Put {
            key: run_key("run_1"),
            expect,
            columns: RecordColumns { state: "failed".into(), ..RecordColumns::default() },
            doc: "{}".into(),
        };
        let new = adding(&[share("p", "a", &[1], None)]).record(change(ExpectedVersion::New));
        store.commit(new.clone()).await.unwrap();
        store.commit(new).await.unwrap_err();
        assert_eq!(sums(&*store, all()).await.len(), 1);
        let counted = store.totals(TotalQuery::of(RUN_COUNTS, &acme())).await.unwrap();
        assert_eq!(RunCounts::from_totals(&counted).agents.failed, 1);

        store.erase(&acme()).await.unwrap();
        assert!(sums(&*store, all()).await.is_empty());
        assert!(store.totals(TotalQuery::of(RUN_COUNTS, &acme())).await.unwrap().is_empty());
    })
    .await;
}

fn run_key(id: &str) -> RecordKey {
    RecordKey { kind: "run", tenant: acme(), id: id.to_owned() }
}

/// Two nodes change the same few runs at once, many of them in vain.
#[tokio::test]
async fn counts_and_sums_stand_for_all_commits_of_two_nodes_at_once() {
    on_both(async |world| {
        let (one, other) = world.two_handles().await;
        let mut rng = Rng::seeded("counts_and_sums");
        let writers = (0..6).map(|number| {
            let store = if number % 2 == 0 { one.clone() } else { other.clone() };
            tokio::spawn(change_runs_at_random(store, rng.fork()))
        });
        let mut written = 0;
        for writer in writers.collect::<Vec<_>>() {
            written += writer.await.unwrap();
        }
        let sums = sums(&*one, all()).await;
        assert_eq!(sums.values().map(|sum| sum.amounts[0]).sum::<i128>(), written);

        let query = RecordQuery {
            kind: "run",
            tenant: Some(acme()),
            limit: 1_000,
            ..RecordQuery::default()
        };
        let mut recount = BTreeMap::<String, i128>::new();
        for run in one.list(query).await.unwrap() {
            let name = count_key(&run.key, &run.columns.state).unwrap().name;
            *recount.entry(name).or_default() += 1;
        }
        assert!(!recount.is_empty());
        let mut counted = BTreeMap::<String, i128>::new();
        for total in other.totals(TotalQuery::of(RUN_COUNTS, &acme())).await.unwrap() {
            *counted.entry(total.name).or_default() += total.value.amounts[0];
        }
        counted.retain(|_, count| *count != 0);
        assert_eq!(counted, recount);
    })
    .await;
}

/// Returns the number of commits that were written.
async fn change_runs_at_random(store: std::sync::Arc<dyn Store>, mut rng: Rng) -> i128 {
    const STATES: [&str; 4] = ["queued", "running", "waiting", "failed"];
    let mut written = 0;
    for _ in 0..60 {
        let key = run_key(&format!("{}_{}", rng.pick(&["run", "exe"]), rng.index(8)));
        let version = store.get(&key).await.unwrap().map(|record| record.version);
        let change = match version {
            Some(version) if rng.one_in(5) => RecordChange::Delete { key, version },
            _ => RecordChange::Put {
                key,
                expect: version.map_or(ExpectedVersion::New, ExpectedVersion::Version),
                columns: RecordColumns {
                    state: (*rng.pick(&STATES)).to_owned(),
                    ..RecordColumns::default()
                },
                doc: "{}".to_owned(),
            },
        };
        let sum = share("p", *rng.pick(&["a", "b"]), &[1], None);
        written += i128::from(store.commit(adding(&[sum]).record(change)).await.is_ok());
    }
    written
}
