//! Lists, filters and reports on a store with a long history, against one with a hundredth of it:
//! pages of the same size and reports with the same groups, asked in turns. They are asked of the
//! services below the doors, because what a door adds is the same for both.

mod history;

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context as _, Result};
use shikiri_app::{App, AppOptions};
use shikiri_model::conversation::ConversationStatus;
use shikiri_model::ids::{ConversationId, TenantId};
use shikiri_model::record::RecordPosition;
use shikiri_model::run::RunStatus;
use shikiri_store::postgres::{PostgresOptions, PostgresStore};
use shikiri_store::sqlite::{SqliteDurability, SqliteOptions, SqliteStore};
use shikiri_store::{Clock, FakeClock, Store};
use shikiri_tenancy::usage::{GroupBy, ReportPeriod};

use self::history::{BEGIN, HistorySize};
use crate::figure::{Figure, Goal, median};
use crate::log::postgres::ScratchDatabase;
use crate::world::World;

const SMALL: u64 = 1_000;
const BIG: u64 = 100_000;
const QUICK: u64 = 20_000;
const PAGE: u32 = 20;
const ASKED: usize = 15;
/// The big store's answer to the small one's.
const MOST: f64 = 1.5;
/// Milliseconds, for the report of `shikiri status`.
const STATUS: f64 = 50.0;

pub(crate) fn measure(world: &World) -> Result<Vec<Figure>> {
    let mut figures = Vec::new();
    if world.wants("sqlite") {
        figures.extend(world.runtime.block_on(on_sqlite(world))?);
    }
    if world.wants("postgres") {
        let name = "lists on PostgreSQL";
        match std::env::var("SHIKIRI_TEST_POSTGRES") {
            Ok(server) => figures.extend(world.runtime.block_on(on_postgres(world, &server))?),
            Err(_) => {
                let reason = "SHIKIRI_TEST_POSTGRES is not set (`cargo xtask bench` sets it)";
                figures.push(Figure::new(name, "ms", Vec::new()).missing(reason));
            }
        }
    }
    Ok(figures)
}

/// One store, and where to go on in the middle of its list.
struct AskedStore {
    app: App,
    middle: Option<RecordPosition>,
    conversation: ConversationId,
}

async fn on_sqlite(world: &World) -> Result<Vec<Figure>> {
    let open = |name: &str, clock: Arc<FakeClock>| -> Result<Arc<dyn Store>> {
        // The history is not synced; what is measured only reads.
        let options = SqliteOptions { clock, durability: SqliteDurability::Normal };
        Ok(Arc::new(SqliteStore::open(Path::new(&world.scratch().join(name)), options)?))
    };
    let clock = begin()?;
    let small = fill(open("small.db", clock.clone())?, &clock, SMALL).await?;
    let clock = begin()?;
    let big = fill(open("big.db", clock.clone())?, &clock, size(world)).await?;
    compare(world, "sqlite", &small, &big).await
}

async fn on_postgres(world: &World, server: &str) -> Result<Vec<Figure>> {
    let (one, other) =
        (ScratchDatabase::create(server).await?, ScratchDatabase::create(server).await?);
    let mut stores = Vec::new();
    for (database, runs) in [(&one, SMALL), (&other, size(world))] {
        let clock = begin()?;
        let shared: Arc<dyn Clock> = clock.clone();
        let options = PostgresOptions { clock: Some(shared), ..PostgresOptions::default() };
        let store = PostgresStore::connect(database.url(), options).await?;
        stores.push(fill(Arc::new(store), &clock, runs).await?);
        // As the server does by itself after a while.
        tidy(database.url()).await?;
    }
    let figures = compare(world, "postgres", &stores[0], &stores[1]).await;
    drop(stores);
    one.remove().await?;
    other.remove().await?;
    figures
}

async fn tidy(url: &str) -> Result<()> {
    use sqlx::{Connection as _, Executor as _};
    let mut connection = sqlx::PgConnection::connect(url).await?;
    connection.execute("VACUUM ANALYZE").await?;
    Ok(connection.close().await?)
}

fn size(world: &World) -> u64 {
    if world.quick { QUICK } else { BIG }
}

fn begin() -> Result<Arc<FakeClock>> {
    Ok(Arc::new(FakeClock::starting_at(BEGIN.parse()?)))
}

async fn fill(store: Arc<dyn Store>, clock: &Arc<FakeClock>, runs: u64) -> Result<AskedStore> {
    let app = App::new(store, Vec::new(), AppOptions::default());
    app.tenancy.ensure_local_tenant().await?;
    let size = HistorySize { runs };
    history::write(&**app.runtime.store(), clock, &size).await?;
    // Half of the way through the last thousand: a page in the middle of a longer list.
    let mut middle = None;
    for _ in 0..5 {
        let local = TenantId::local();
        (_, middle) = app.runtime.list_runs(&local, None, middle, 100).await?;
    }
    Ok(AskedStore { app, middle, conversation: history::conversation(runs / 2, &size) })
}

#[derive(Clone, Copy, Debug)]
enum Question {
    Runs,
    RunsGoingOn,
    RunsWith(RunStatus),
    Conversations(Option<ConversationStatus>),
    ExecutionsOfConversation,
    Usage(GroupBy, &'static str),
    Status,
}

/// Periods in the words of a caller.
const EVER: &str = "";
const TEN_DAYS: &str = "2026-09-10/2026-09-19";

fn questions() -> Vec<Question> {
    use RunStatus::{Cancelled, Completed, Failed, Queued, Running, Waiting};
    let statuses = [Queued, Running, Waiting, Completed, Failed, Cancelled];
    let mut all = vec![Question::Runs, Question::RunsGoingOn, Question::ExecutionsOfConversation];
    all.extend(statuses.map(Question::RunsWith));
    all.push(Question::Conversations(None));
    all.push(Question::Conversations(Some(ConversationStatus::Active)));
    all.extend(GroupBy::ALL.map(|group_by| Question::Usage(group_by, EVER)));
    all.extend(GroupBy::ALL.map(|group_by| Question::Usage(group_by, TEN_DAYS)));
    all.push(Question::Status);
    all
}

impl Question {
    fn name(self) -> String {
        match self {
            Self::Runs => "runs".to_owned(),
            Self::RunsGoingOn => "runs, a later page".to_owned(),
            Self::RunsWith(status) => format!("runs?status={}", status.as_str()),
            Self::Conversations(None) => "conversations".to_owned(),
            Self::Conversations(Some(status)) => {
                format!("conversations?status={}", status.as_str())
            }
            Self::ExecutionsOfConversation => "executions of a conversation".to_owned(),
            Self::Usage(group_by, EVER) => format!("usage by {}", group_by.as_str()),
            Self::Usage(group_by, _) => format!("usage of ten days by {}", group_by.as_str()),
            Self::Status => "the report of `status`".to_owned(),
        }
    }

    /// Milliseconds.
    async fn ask(self, store: &AskedStore) -> Result<f64> {
        let (app, local) = (&store.app, TenantId::local());
        let started = Instant::now();
        let answered = match self {
            Self::Runs => app.runtime.list_runs(&local, None, None, PAGE).await?.0.len(),
            Self::RunsGoingOn => {
                app.runtime.list_runs(&local, None, store.middle.clone(), PAGE).await?.0.len()
            }
            Self::RunsWith(status) => {
                app.runtime.list_runs(&local, Some(status), None, PAGE).await?.0.len()
            }
            Self::Conversations(status) => {
                app.executions.list_conversations(&local, status, None, PAGE).await?.0.len()
            }
            Self::ExecutionsOfConversation => {
                let query = shikiri_model::record::RecordQuery {
                    parent: Some(store.conversation.to_string()),
                    newest_first: true,
                    limit: PAGE,
                    ..shikiri_model::record::RecordQuery::of::<shikiri_model::run::Run>(&local)
                };
                app.runtime.list_page(query).await?.0.len()
            }
            Self::Usage(group_by, period) => {
                let (from, to) = period.split_once('/').unzip();
                let period = ReportPeriod::read(from, to)?;
                app.tenancy.usage(Some(&local), group_by, period).await?.groups.len()
            }
            Self::Status => ask_status(app, &local).await?,
        };
        let took = started.elapsed().as_secs_f64() * 1_000.0;
        anyhow::ensure!(answered > 0, "an empty answer to {}", self.name());
        Ok(took)
    }
}

async fn ask_status(app: &App, tenant: &TenantId) -> Result<usize> {
    let now = app.runtime.store().now().await?;
    let today: String = now.to_string().chars().take(10).collect();
    let today = ReportPeriod::read(Some(&today), None)?.from.unwrap_or(now);
    let report = app.status(tenant, today).await?;
    anyhow::ensure!(report.counts.agents.open() > 0, "no open runs");
    anyhow::ensure!(!report.active.is_empty() && report.spend.is_some(), "half a report");
    Ok(report.questions.len())
}

/// Every answer of both stores in turns.
async fn compare(
    world: &World,
    backend: &str,
    small: &AskedStore,
    big: &AskedStore,
) -> Result<Vec<Figure>> {
    let mut figures = Vec::new();
    for question in questions() {
        let (mut of_small, mut of_big) = (Vec::new(), Vec::new());
        // The first answers fill caches and are not counted.
        for store in [small, big, small, big] {
            question.ask(store).await.with_context(|| question.name())?;
        }
        for _ in 0..world.rounds() {
            let (mut one, mut other) = (Vec::new(), Vec::new());
            for _ in 0..ASKED {
                one.push(question.ask(small).await?);
                other.push(question.ask(big).await?);
            }
            of_small.push(median(&one));
            of_big.push(median(&other));
        }
        let name = format!("{backend}: {}", question.name());
        if matches!(question, Question::Status) {
            figures.push(
                Figure::new(format!("{name}, on the big store"), "ms", of_big.clone())
                    .goal(Goal::AtMost(STATUS)),
            );
        }
        figures.push(
            Figure::new(name, "ms", of_big)
                .against("on the small store", &of_small)
                .goal(Goal::RatioAtMost(MOST)),
        );
    }
    Ok(figures)
}
