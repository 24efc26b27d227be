//! Nodes and their database come and go, on PostgreSQL: runs go on, elsewhere or afterwards, and
//! each log tells one story.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use shikiri_app::App;
use shikiri_model::ids::TenantId;
use shikiri_model::run::{Run, RunStatus};
use shikiri_runtime::run::NewRun;
use shikiri_store::Store;
use shikiri_testkit::{long, until};
use shikiri_testpg::{Cluster, Installed};
use tokio::time::sleep;

use super::child::{Child, Role, in_noise, in_quiet};
use super::journal_kill::answer_everything;
use super::node_check::{Story, Told, check_run_counts};
use super::node_child::{NodeTask, app};
use super::place::{Home, Place};

struct World {
    store: Arc<dyn Store>,
    app: App,
    task: NodeTask,
    lines: PathBuf,
}

impl World {
    async fn new(home: &Home, place: Place, lease: Duration) -> Self {
        let lines = home.folder().join("lines");
        let store = place.open().await;
        let app = app(Arc::clone(&store), &lines, lease);
        app.tenancy.ensure_local_tenant().await.unwrap();
        let task = NodeTask { place, lines: lines.clone(), lease, runs: Vec::new() };
        Self { store, app, task, lines }
    }

    fn node(&self) -> Child {
        Child::spawn(&Role::Node(self.task.clone()))
    }

    async fn start(&self, agent: &str, input: Value) {
        let new = NewRun { agent: agent.to_owned(), input, idempotency_key: None, origin: None };
        self.app.runtime.start_run(&TenantId::local(), new).await.unwrap();
    }

    async fn start_walks(&self, walks: u64, steps: u64, step_ms: u64) {
        for n in 0..walks {
            let name = format!("散歩{n}");
            let input = json!({ "name": name, "steps": steps, "step_ms": step_ms });
            self.start("walk", input).await;
        }
    }

    /// A store that is away for a moment has none.
    async fn runs(&self) -> Vec<Run> {
        let page = self.app.runtime.list_runs(&TenantId::local(), None, None, 1_000).await;
        page.map_or_else(|_| Vec::new(), |(runs, _)| runs.into_iter().map(|r| r.value).collect())
    }

    async fn until_all(&self, what: &str, wanted: impl Fn(&Run) -> bool) {
        let all = async || {
            let runs = self.runs().await;
            !runs.is_empty() && runs.iter().all(&wanted)
        };
        until(what, all).await;
    }

    async fn stories(&self) -> Vec<(Run, Story)> {
        let mut stories = Vec::new();
        for run in self.runs().await {
            let story = Story::of(&run, &*self.store, &self.lines).await;
            stories.push((run, story));
        }
        stories
    }

    /// Waits for the end of all runs and checks each; returns how often nodes were lost.
    async fn all_complete(&self) -> u64 {
        self.until_all("every run has ended", |run| run.status.is_terminal()).await;
        let mut losses = 0;
        for (run, story) in self.stories().await {
            assert_eq!(run.status, RunStatus::Completed, "{:?}", run.error);
            story.check();
            losses += story.losses();
        }
        check_run_counts(&self.app).await;
        losses
    }
}

/// What was in the log once is there for ever.
fn check_kept(before: &[(Run, Story)], after: &[(Run, Story)]) {
    for (run, story) in before {
        let kept = after.iter().find(|(same, _)| same.id == run.id).map(|(_, story)| story);
        let kept: &[Told] = kept.map_or(&[], |story| &story.events);
        assert!(kept.starts_with(&story.events), "{} lost events", run.id);
    }
}

/// The node keeps its lease all the time: no other node would pick up a run that it dropped.
#[tokio::test(flavor = "multi_thread")]
async fn runs_go_on_when_the_database_comes_back() {
    let _guard = in_noise().await;
    let Some(installed) = Installed::find_or_skip("runs_go_on_when_the_database_comes_back") else {
        return;
    };
    let cluster = tokio::task::spawn_blocking(move || Cluster::start(&installed)).await.unwrap();
    let cluster = Arc::new(cluster.unwrap());
    let home = Home::with_file();
    let place = Place::Database(cluster.url());
    let world = World::new(&home, place, Duration::from_secs(30)).await;
    let person = tokio::spawn(answer_everything(world.app.clone()));
    let mut node = world.node();
    let restarts = if long() { 48 } else { 3 };
    for (round, away_ms) in [0, 200, 4_000].into_iter().cycle().take(restarts).enumerate() {
        for n in 0..8 {
            world.start("journey", json!({ "name": format!("旅{round}.{n}") })).await;
        }
        sleep(Duration::from_millis(150)).await;
        let before = world.stories().await;
        let cluster = Arc::clone(&cluster);
        let restart = move || {
            cluster.stop().unwrap();
            std::thread::sleep(Duration::from_millis(away_ms));
            cluster.restart().unwrap();
        };
        tokio::task::spawn_blocking(restart).await.unwrap();
        let losses = world.all_complete().await;
        check_kept(&before, &world.stories().await);
        eprintln!("database away for {away_ms} ms: all complete, {losses} put back so far");
    }
    assert_eq!(node.ended(), None);
    person.abort();
    drop(node);
}

#[tokio::test(flavor = "multi_thread")]
async fn another_node_takes_over_from_a_killed_one() {
    let _guard = in_quiet().await;
    let Some(home) = Home::with_database("node_loss, killed").await else { return };
    let lease = Duration::from_secs(1);
    let world = World::new(&home, home.place(), lease).await;
    let mut first = world.node();
    // Long enough not to end before the kill.
    world.start_walks(10, 100, 40).await;
    world.until_all("all are carried", |run| run.status == RunStatus::Running).await;
    let _second = world.node();
    sleep(Duration::from_millis(500)).await;
    first.kill();
    let killed_at = world.store.now().await.unwrap();
    let losses = world.all_complete().await;
    let mut slowest = Duration::ZERO;
    for (run, _) in world.stories().await {
        let page = world.store.read(&TenantId::local(), &run.stream(), 0, 1 << 20).await.unwrap();
        let events = page.chunks.iter().flat_map(|chunk| chunk.events());
        let again = events.filter(|event| event.kind == "started").nth(1);
        slowest = slowest.max(again.expect("it was taken over").at.since(killed_at));
    }
    eprintln!("{losses} runs taken over, the last {slowest:?} after the kill (lease {lease:?})");
    assert!(losses >= 10);
    // The lease, a sweep, and some time for a busy machine.
    assert!(slowest < lease + lease / 5 + Duration::from_secs(8), "{slowest:?}");
}

/// A node that only slept finds its runs carried by another, and writes nothing into them.
#[tokio::test(flavor = "multi_thread")]
async fn a_paused_node_writes_nothing_into_runs_that_were_taken_over() {
    let _guard = in_noise().await;
    let Some(home) = Home::with_database("node_loss, paused").await else { return };
    let lease = Duration::from_millis(800);
    let world = World::new(&home, home.place(), lease).await;
    let nodes = [world.node(), world.node()];
    let pauses: u64 = if long() { 100 } else { 4 };
    world.start_walks(10, pauses * 40, 40).await;
    world.until_all("all are carried", |run| run.status == RunStatus::Running).await;
    for round in 0..pauses {
        let node = &nodes[usize::from(round % 2 == 1)];
        sleep(lease / 4).await;
        node.stop();
        sleep(lease * 2).await;
        node.go_on();
    }
    let losses = world.all_complete().await;
    eprintln!("{pauses} pauses: {losses} runs taken over, every log whole");
    assert!(losses > 0);
}
