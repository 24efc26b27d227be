//! A run that does everything a run can do, killed at each of its commit points in turn: it
//! completes, what was committed is not done again, and its log tells one story.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt as _, stream};
use serde_json::json;
use shikiri_app::App;
use shikiri_model::ids::TenantId;
use shikiri_model::run::{QuestionAnswer, RunStatus};
use shikiri_store::Store;
use shikiri_testkit::{Rng, long};
use tokio::time::{Instant, sleep, timeout};

use super::child::{Child, Role, in_noise, was_killed};
use super::node_check::{Story, check_run_counts};
use super::node_child::{NodeTask, app, find, result_of_journey};
use super::place::Home;

/// Every place in the code where a run's life is committed, before and after; `tidy` compares it
/// with the code.
const POINTS: [&str; 10] = [
    "run.before_enqueue",
    "run.after_enqueue",
    "claim.before_commit",
    "claim.after_commit",
    "run.before_commit",
    "run.after_commit",
    "journal.before_record",
    "journal.after_record",
    "outbox.before_commit",
    "outbox.after_commit",
];
/// Passed only by a process that requeues the runs of a killed node.
const SWEEP_POINTS: [&str; 2] = ["sweep.after_fence", "sweep.after_requeue"];
const LEASE: Duration = Duration::from_millis(600);
/// From the restart to the end of the run: the lost lease, a sweep, the work itself, and some time
/// for a busy machine.
const RECOVERY: Duration = Duration::from_secs(25);
/// Stories that are told at once: mostly they wait for a lease to lapse.
const AT_ONCE: usize = 6;

struct World {
    store: Arc<dyn Store>,
    app: App,
    task: NodeTask,
    lines: PathBuf,
    _home: Home,
}

/// What became of one story.
#[derive(Debug)]
struct Told {
    kills: usize,
    recovery: Duration,
    losses: u64,
}

impl World {
    async fn new(home: Home) -> Self {
        let (place, lines) = (home.place(), home.folder().join("lines"));
        let store = place.open().await;
        let app = app(Arc::clone(&store), &lines, LEASE);
        app.tenancy.ensure_local_tenant().await.unwrap();
        let runs = vec![("journey".to_owned(), json!({ "name": "旅" }))];
        let task = NodeTask { place, lines: lines.clone(), lease: LEASE, runs };
        Self { store, app, task, lines, _home: home }
    }

    /// Starts the node again and again, armed with one point after the other and at last with
    /// none, until it ends well.
    async fn tell(&self, armed: &[String]) -> Told {
        let person = tokio::spawn(answer_everything(self.app.clone()));
        let role = Role::Node(self.task.clone());
        let mut told = Told { kills: 0, recovery: Duration::ZERO, losses: 0 };
        let mut committed = self.completed().await;
        for armed in armed.iter().map(Some).chain([None]) {
            let begun = Instant::now();
            let mut node = Child::spawn_with(&role, armed.map(String::as_str));
            let status = timeout(Duration::from_secs(90), node.end()).await;
            let status = status.unwrap_or_else(|_| panic!("stuck after {armed:?}"));
            told.recovery = begun.elapsed();
            let now = self.completed().await;
            for (step, times) in &committed {
                assert_eq!(now.get(step), Some(times), "{step} was committed and done again");
            }
            committed = now;
            if !was_killed(status) {
                assert!(status.success(), "{armed:?}: {status}");
                break;
            }
            told.kills += 1;
        }
        person.abort();
        told.losses = self.check().await;
        told
    }

    /// Steps of both runs whose completion is committed.
    async fn completed(&self) -> std::collections::BTreeMap<String, u64> {
        let mut completed = std::collections::BTreeMap::new();
        let (runs, _) =
            self.app.runtime.list_runs(&TenantId::local(), None, None, 10).await.unwrap();
        for run in runs {
            let story = Story::of(&run.value, &*self.store, &self.lines).await;
            completed.extend(story.completed());
        }
        completed
    }

    async fn check(&self) -> u64 {
        let journey = find(&*self.store, "旅").await.unwrap();
        assert_eq!(journey.result, Some(result_of_journey()), "{journey:?}");
        let (runs, _) =
            self.app.runtime.list_runs(&TenantId::local(), None, None, 10).await.unwrap();
        assert_eq!(runs.len(), 2, "the journey and its helper, each once");
        let mut losses = 0;
        for run in runs {
            assert_eq!(run.value.status, RunStatus::Completed);
            let story = Story::of(&run.value, &*self.store, &self.lines).await;
            story.check();
            losses += story.losses();
        }
        check_run_counts(&self.app).await;
        losses
    }
}

/// The person whom runs ask.
pub(crate) async fn answer_everything(app: App) {
    let tenant = TenantId::local();
    loop {
        let runs = app
            .runtime
            .list_runs(&tenant, None, None, 1_000)
            .await
            .map_or(Vec::new(), |page| page.0);
        for run in runs.into_iter().map(|run| run.value) {
            for question in &run.questions {
                let answer = QuestionAnswer::accept(json!("右"));
                let _ = app.runtime.answer_run(&tenant, &run.id, &question.id, answer).await;
            }
        }
        sleep(Duration::from_millis(10)).await;
    }
}

fn armed(point: &str, nth: u64) -> Vec<String> {
    vec![format!("{point}:{nth}")]
}

fn check_recovery(point: &str, told: &Told) {
    assert!(told.recovery < RECOVERY, "after {point} it took {:?}", told.recovery);
}

/// Kills the run at the first, second … passing of a point, until one passing never comes.
/// Returns how many there were.
async fn kill_at_every(point: &'static str) -> u64 {
    for nth in 1.. {
        let world = World::new(Home::with_file()).await;
        let told = world.tell(&armed(point, nth)).await;
        if told.kills == 0 {
            eprintln!("{point}: killed at each of {} passings", nth - 1);
            return nth - 1;
        }
        check_recovery(&format!("{point}:{nth}"), &told);
    }
    unreachable!("a run has an end")
}

/// Failpoints exist in debug builds alone.
fn has_failpoints() -> bool {
    if !cfg!(debug_assertions) {
        eprintln!("SKIPPED journal_kill: a release build has no failpoints");
    }
    cfg!(debug_assertions)
}

#[tokio::test(flavor = "multi_thread")]
async fn on_sqlite_a_run_killed_at_any_commit_point_completes() {
    let _guard = in_noise().await;
    if !has_failpoints() {
        return;
    }
    let kills = stream::iter(POINTS).map(kill_at_every).buffer_unordered(AT_ONCE);
    let kills: Vec<_> = kills.collect().await;
    assert!(kills.iter().all(|kills| *kills > 0), "a point is never passed: {kills:?}");
    eprintln!("{} kills in all", kills.iter().sum::<u64>());
}

/// A process that requeues the runs of a killed node may be killed doing it, and so on.
#[tokio::test(flavor = "multi_thread")]
async fn on_sqlite_a_run_killed_again_and_again_completes() {
    let _guard = in_noise().await;
    if !has_failpoints() {
        return;
    }
    let mut rng = Rng::seeded("journal_kill, again and again");
    let rounds = (0..if long() { 500 } else { 8 }).map(|round| {
        let mut armed = armed("journal.after_record", rng.range(1, 9));
        // The first commit of a run by a restarted node is the one that puts it back.
        let [fenced, requeued] = SWEEP_POINTS;
        let second = ["run.before_commit", fenced, "run.after_commit", requeued][round % 4];
        armed.push(format!("{second}:1"));
        armed.extend((0..3).map(|_| format!("{}:{}", rng.pick(&POINTS), rng.range(1, 7))));
        async move { World::new(Home::with_file()).await.tell(&armed).await }
    });
    let told: Vec<_> = stream::iter(rounds).buffer_unordered(AT_ONCE).collect().await;
    let (kills, losses) =
        told.iter().fold((0, 0), |sum, told| (sum.0 + told.kills, sum.1 + told.losses));
    eprintln!("{} runs, {kills} kills, {losses} times put back", told.len());
    assert!(kills >= 2 * told.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn on_postgres_a_run_killed_at_a_commit_point_completes() {
    let _guard = in_noise().await;
    if !has_failpoints() {
        return;
    }
    let mut rng = Rng::seeded("journal_kill on PostgreSQL");
    let (mut kills, mut slowest) = (0, Duration::ZERO);
    for _ in 0..if long() { 20 } else { 1 } {
        let mut stories = Vec::new();
        for point in POINTS {
            let Some(home) = Home::with_database("journal_kill on PostgreSQL").await else {
                return;
            };
            let nth = if point.contains("enqueue") { 1 } else { rng.range(1, 4) };
            stories.push(async move {
                let world = World::new(home).await;
                let told = world.tell(&armed(point, nth)).await;
                assert_eq!(told.kills, 1, "{point}:{nth} is never passed");
                check_recovery(point, &told);
                // Kept until all are told: dropping a database holds the others up.
                (told.recovery, world)
            });
        }
        let told: Vec<_> = stream::iter(stories).buffer_unordered(4).collect().await;
        kills += told.len();
        slowest = told.iter().map(|(took, _)| *took).chain([slowest]).max().unwrap_or_default();
    }
    eprintln!("{kills} kills, the slowest recovery took {slowest:?}");
}
