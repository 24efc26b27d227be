//! Reports over bills: exact sums by whatever one asks.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use shikiri_model::execution::{
    Cost, Execution, ExecutionUser, ModelPrices, SpenderKind, TokenPrice, TokenUsage, UsageLog,
    UsageRow, bill_totals,
};
use shikiri_model::ids::{ModelId, RunId, TenantId};
use shikiri_model::models::EngineKind;
use shikiri_model::record::{ExpectedVersion, RecordChange, RecordColumns, RecordQuery};
use shikiri_model::run::{Run, RunStatus};
use shikiri_model::time::Timestamp;
use shikiri_runtime::AppError;
use shikiri_store::Commit;
use shikiri_tenancy::tenants::TenantPatch;
use shikiri_tenancy::usage::{GroupBy, ReportPeriod, UsageReport};
use shikiri_testkit::Rng;

use crate::world::World;

/// Millionths of a dollar per million tokens, chosen so that a sum of rounded numbers would show.
const PRICE: u64 = 333_333;

fn row(kind: SpenderKind, subagent: Option<&str>, model: &str, tokens: u64) -> UsageRow {
    let usage = TokenUsage { input_tokens: tokens, cache_read_tokens: 1, ..TokenUsage::default() };
    let prices = ModelPrices { input: TokenPrice::from_micros(PRICE), ..ModelPrices::default() };
    UsageRow {
        kind,
        tool_use_id: subagent.map(|_| "t1".to_owned()),
        agent_id: None,
        subagent_type: subagent.map(str::to_owned),
        model: model.to_owned(),
        usage,
        cost_usd: prices.cost(&usage),
    }
}

/// Writes the bill of an execution as its end does: all rows in one commit.
async fn bill(world: &World, tenant: &str, user: &str, conversation: &str, rows: &[UsageRow]) {
    let now = world.app.runtime.store().now().await.unwrap();
    let mut entropy = [0; 10];
    getrandom::fill(&mut entropy).unwrap();
    let id = RunId::mint_execution(now, entropy);
    let mut run =
        Run::new(id, tenant.parse().unwrap(), "execution".into(), serde_json::json!({}), now);
    run.status = RunStatus::Completed;
    run.execution = Some(Box::new(Execution {
        conversation: conversation.parse().unwrap(),
        turn: 1,
        model_id: ModelId::offline(),
        engine: EngineKind::Offline,
        executor: ExecutionUser { user_id: user.into(), name: Some("名".into()), email: None },
        is_resumable: false,
        confinement: None,
        usage: TokenUsage::default(),
        total_cost_usd: Cost::default(),
    }));
    let mut commit = Commit::new();
    let logs = rows.iter().enumerate();
    let logs = logs.map(|(number, row)| UsageLog::new(&run, number, row.clone(), now).unwrap());
    let logs: Vec<_> = logs.collect();
    for log in &logs {
        commit = commit.record(RecordChange::put(log, ExpectedVersion::New).unwrap());
    }
    commit.totals = bill_totals(&logs);
    world.app.runtime.store().commit(commit).await.unwrap();
}

/// Key, input tokens, executions.
type Row<'a> = (&'a str, u64, u64);

fn groups(report: &UsageReport) -> Vec<Row<'_>> {
    let groups = report.groups.iter().map(|group| (group.key.as_str(), &group.spending));
    groups.map(|(key, spent)| (key, spent.usage.input_tokens, spent.executions)).collect()
}

async fn world() -> World {
    let world = World::new(Vec::new()).await;
    let other = Some("other".parse().unwrap());
    world.app.tenancy.create_tenant(other, TenantPatch::default()).await.unwrap();
    let main = |tokens| row(SpenderKind::Main, None, "opus", tokens);
    let sub = |kind, tokens| row(SpenderKind::Subagent, Some(kind), "haiku", tokens);
    bill(&world, "local", "ann", "cnv_1", &[main(1), sub("Explore", 10), sub("main", 100)]).await;
    bill(&world, "local", "bo", "cnv_1", &[main(1_000)]).await;
    bill(&world, "other", "ann", "cnv_9", &[main(7)]).await;
    world.clock.advance(Duration::from_secs(30 * 24 * 3_600));
    bill(&world, "local", "ann", "cnv_2", &[main(10_000), sub("Explore", 100_000)]).await;
    world
}

#[tokio::test]
async fn spending_is_grouped_by_whatever_is_asked() {
    let world = world().await;
    let local = TenantId::local();
    let expected: [(GroupBy, &[Row<'_>]); 7] = [
        (GroupBy::Model, &[("haiku", 100_110, 2), ("opus", 11_001, 3)]),
        (GroupBy::Subagent, &[("Explore", 100_010, 2), ("main", 11_001, 3), ("main", 100, 1)]),
        (GroupBy::Executor, &[("ann", 110_111, 2), ("bo", 1_000, 1)]),
        (GroupBy::Conversation, &[("cnv_2", 110_000, 1), ("cnv_1", 1_111, 2)]),
        (GroupBy::Day, &[("2026-11-15", 1_111, 2), ("2026-12-15", 110_000, 1)]),
        (GroupBy::Month, &[("2026-11", 1_111, 2), ("2026-12", 110_000, 1)]),
        (GroupBy::Tenant, &[("local", 111_111, 3)]),
    ];
    for (group_by, expected) in expected {
        let report =
            world.app.tenancy.usage(Some(&local), group_by, ReportPeriod::default()).await.unwrap();
        assert_eq!(groups(&report), expected, "{group_by:?}");
        assert_eq!(report.total.executions, 3);
        let exact = ModelPrices { input: TokenPrice::from_micros(PRICE), ..ModelPrices::default() };
        assert_eq!(report.total.cost, exact.cost(&report.total.usage));
        let parts: Cost = report.groups.iter().map(|group| group.spending.cost).sum();
        assert_eq!(parts, report.total.cost, "{group_by:?}");
    }
    let all =
        world.app.tenancy.usage(None, GroupBy::Tenant, ReportPeriod::default()).await.unwrap();
    assert_eq!(groups(&all), [("local", 111_111, 3), ("other", 7, 1)]);
    let nobody = world
        .app
        .tenancy
        .usage(Some(&"no".parse().unwrap()), GroupBy::Day, ReportPeriod::default())
        .await;
    assert!(matches!(nobody, Err(AppError::NotFound { kind: "tenant", .. })));
}

#[tokio::test]
async fn only_the_time_that_is_asked_for_counts() {
    let world = world().await;
    let total = async |from, to| {
        let span = ReportPeriod::read(from, to).unwrap();
        let report = world.app.tenancy.usage(Some(&TenantId::local()), GroupBy::Model, span).await;
        report.unwrap().total.usage.input_tokens
    };
    let begun = Some("2026-11-15T20:00:00.000Z");
    assert_eq!(total(begun, None).await, 111_111);
    assert_eq!(total(None, begun).await, 0, "up to, but without");
    assert_eq!(total(Some("2026-11-15T20:00:00.001Z"), None).await, 110_000);
    assert_eq!(total(None, Some("2026-11-15")).await, 1_111);
    assert_eq!(total(Some("2026-11-16"), Some("2026-12-14")).await, 0);
    assert_eq!(total(Some("2026-12-15"), Some("2026-12-15")).await, 110_000);
}

/// More rows than a page has, some of them written in one millisecond.
#[tokio::test]
async fn many_rows_are_read_to_the_last_and_executions_are_counted_once() {
    let world = World::new(Vec::new()).await;
    let rows: Vec<_> =
        (0..40).map(|n| row(SpenderKind::Subagent, Some(["a", "b"][n % 2]), "haiku", 1)).collect();
    for number in 0..30 {
        if number % 3 == 0 {
            world.clock.advance(Duration::from_millis(1));
        }
        bill(&world, "local", "ann", "cnv_1", &rows).await;
    }
    let report =
        world.app.tenancy.usage(None, GroupBy::Subagent, ReportPeriod::default()).await.unwrap();
    assert_eq!(groups(&report), [("a", 600, 30), ("b", 600, 30)]);
    assert_eq!(report.total.executions, 30);
}

/// Bills at many times of many days, and one report of each kind for periods that begin and end
/// anywhere: the totals and a sum over all bills must say the same.
#[tokio::test]
async fn totals_are_to_the_token_what_the_bills_add_up_to() {
    let world = World::new(Vec::new()).await;
    let mut rng = Rng::seeded("totals_are_to_the_token");
    let mut times = Vec::new();
    for _ in 0..60 {
        world.clock.advance(Duration::from_secs(rng.range(1, 200_000)));
        let mut rows = vec![row(SpenderKind::Main, None, "opus", rng.range(1, 1_000_000))];
        for _ in 0..rng.range(0, 3) {
            let kind = *rng.pick(&["Explore", "main", "調査"]);
            let model = *rng.pick(&["haiku", "opus"]);
            rows.push(row(SpenderKind::Subagent, Some(kind), model, rng.range(1, 1_000)));
        }
        let (user, conversation) = (*rng.pick(&["ann", "bo"]), *rng.pick(&["cnv_1", "cnv_2"]));
        bill(&world, "local", user, conversation, &rows).await;
        times.push(world.app.runtime.store().now().await.unwrap());
    }
    let bills: Vec<UsageLog> =
        world.app.runtime.list_all(RecordQuery::of::<UsageLog>(&TenantId::local())).await.unwrap();
    let local = TenantId::local();
    let mut bounds = vec![None];
    for at in times.iter().step_by(7) {
        let midnight = at.as_millis().div_euclid(86_400_000) * 86_400_000;
        bounds.extend([Some(*at), Some(Timestamp::from_millis(midnight))]);
    }
    for from in &bounds {
        for to in &bounds {
            for group_by in GroupBy::ALL {
                let period = ReportPeriod { from: *from, to: *to };
                let report = world.app.tenancy.usage(Some(&local), group_by, period).await;
                compare(&report.unwrap(), &bills, period);
            }
        }
    }
}

fn compare(report: &UsageReport, bills: &[UsageLog], period: ReportPeriod) {
    let is_asked =
        |at| period.from.is_none_or(|from| from <= at) && period.to.is_none_or(|to| at < to);
    let mut groups = BTreeMap::<(String, bool), (TokenUsage, Cost, BTreeSet<&RunId>)>::new();
    let mut total = (TokenUsage::default(), Cost::default(), BTreeSet::new());
    for bill in bills.iter().filter(|bill| is_asked(bill.at)) {
        let is_main = bill.row.kind == SpenderKind::Main;
        let key = match report.group_by {
            GroupBy::Model => bill.row.model.clone(),
            GroupBy::Subagent if is_main => "main".to_owned(),
            GroupBy::Subagent => bill.row.subagent_type.clone().unwrap(),
            GroupBy::Executor => bill.executor.user_id.clone(),
            GroupBy::Conversation => bill.conversation.to_string(),
            GroupBy::Day => bill.at.to_string()[..10].to_owned(),
            GroupBy::Month => bill.at.to_string()[..7].to_owned(),
            GroupBy::Tenant => bill.tenant.to_string(),
        };
        let key = (key, is_main && report.group_by == GroupBy::Subagent);
        for sum in [groups.entry(key).or_default(), &mut total] {
            sum.0 += bill.row.usage;
            sum.1 += bill.row.cost_usd;
            sum.2.insert(&bill.execution);
        }
    }
    let found = report.groups.iter().map(|group| {
        let spent = group.spending;
        let key = (group.key.clone(), group.kind == Some(SpenderKind::Main));
        (key, (spent.usage, spent.cost, spent.executions))
    });
    let expected = groups
        .into_iter()
        .map(|(key, (usage, cost, executions))| (key, (usage, cost, executions.len() as u64)));
    let expected: BTreeMap<_, _> = expected.collect();
    assert_eq!(found.collect::<BTreeMap<_, _>>(), expected, "{:?} {period:?}", report.group_by);
    let spent = report.total;
    assert_eq!((spent.usage, spent.cost), (total.0, total.1), "{period:?}");
    assert_eq!(spent.executions, total.2.len() as u64, "{period:?}");
}

/// As the migration leaves bills from before: not in the totals, and due. Two processes add them at
/// once, while new ones are written.
#[tokio::test]
async fn bills_from_before_are_added_once() {
    let world = World::new(Vec::new()).await;
    let main = |tokens| row(SpenderKind::Main, None, "opus", tokens);
    let sub = |tokens| row(SpenderKind::Subagent, Some("Explore"), "haiku", tokens);
    for number in 0..30 {
        world.clock.advance(Duration::from_secs(number * 5_000));
        bill(&world, "local", "ann", "cnv_1", &[main(1), sub(100), sub(100)]).await;
    }
    let store = world.app.runtime.store();
    let day = |report: UsageReport| (report.groups.len(), report.total);
    let report = async || {
        let local = TenantId::local();
        let period = ReportPeriod::default();
        day(world.app.tenancy.usage(Some(&local), GroupBy::Day, period).await.unwrap())
    };
    let before = report().await;
    let rows = RecordQuery { limit: 200, ..RecordQuery::of::<UsageLog>(&TenantId::local()) };
    let mut undo = Commit::new();
    let mut logs = BTreeMap::<RunId, Vec<UsageLog>>::new();
    for record in store.list(rows).await.unwrap() {
        let log = record.decode::<UsageLog>().unwrap().value;
        logs.entry(log.execution.clone()).or_default().push(log);
        undo.records.push(RecordChange::Put {
            expect: ExpectedVersion::Version(record.version),
            columns: RecordColumns { due_at: Some(record.created_at), ..record.columns },
            key: record.key,
            doc: record.doc,
        });
    }
    for mut change in logs.values().flat_map(|bill| bill_totals(bill)) {
        change.add.amounts.iter_mut().for_each(|amount| *amount = -*amount);
        undo.totals.push(change);
    }
    store.commit(undo).await.unwrap();
    let new = [main(7)];
    let (one, other, _) = tokio::join!(
        world.app.tenancy.total_old_bills(),
        world.app.tenancy.total_old_bills(),
        bill(&world, "local", "bo", "cnv_2", &new),
    );
    (one.unwrap(), other.unwrap());
    let (days, total) = report().await;
    assert_eq!(days, before.0);
    assert_eq!(total.usage.input_tokens, before.1.usage.input_tokens + 7);
    assert_eq!(total.executions, before.1.executions + 1);
    assert_eq!(store.next_due("usage").await.unwrap(), None);
}
