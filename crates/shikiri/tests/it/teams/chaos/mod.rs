//! A task whose talk is delegated, told hundreds of times with players that crash, fall silent,
//! speak out of turn, never end or delegate in circles, while the server is killed and paused.
//! However it goes, it comes to an end, and everybody who should know that does.

mod chat;
mod check;
pub(crate) mod door;
mod epilogue;
mod journal;
mod plan;
pub(crate) mod player;
pub(crate) mod state;
mod task;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::{Duration, Instant};

use futures_util::{StreamExt as _, stream};
use shikiri_testkit::{Builder, Rng, Tenant, TestApp, have_postgres, long};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;

use self::chat::ChatPlayer;
use self::check::History;
use self::door::Faults;
use self::journal::{Journal, Kills};
use self::plan::Plan;
use self::player::{PASSKEY, Player, Stage};
use self::state::{State, set_up};
use self::task::TaskPlayer;
use crate::PROGRAM;

/// Limits that come in a test's time: in seconds.
const LIMITS: [(&str, &str); 8] = [
    // Less than a session may be idle, so that talks do time out.
    ("SHIKIRI_DIALOGUE_PENDING_SECONDS", "2.5"),
    ("SHIKIRI_DIALOGUE_IDLE_SECONDS", "2.5"),
    // A waiting session gives a sign of life several times within these.
    ("SHIKIRI_DELEGATION_CLAIM_SECONDS", "2"),
    ("SHIKIRI_CHAT_IDLE_SECONDS", "3"),
    ("SHIKIRI_DELEGATION_SECONDS", "6"),
    ("SHIKIRI_SESSION_SECONDS", "6"),
    ("SHIKIRI_NODE_LEASE_SECONDS", "1"),
    // A killed process loses nothing by it; only a power cut would.
    ("SHIKIRI_DURABILITY", "normal"),
];
/// Runs at the same time: as many as two busy cores carry without every dialogue timing out. Beside
/// a PostgreSQL of its own, an unoptimised server carries fewer.
const AT_ONCE: usize = 16;
const AT_ONCE_ON_POSTGRES: usize = 5;
/// Longer than a session is silent before the others of its agent are shown what it saw.
const SILENCE: Duration = Duration::from_secs(1);
const SET_UP_AT_ONCE: usize = 8;
/// How often goes by what the machine has to spare.
const HAPPENS: [&str; 5] = ["whole games", "timeout", "completed", "failed", "lost looks"];
/// Few runs may do without.
const HAPPENS_IN_MANY: [&str; 2] = ["max_turns", "initiator_ended"];
const MANY: usize = 300;

/// Rows 2.10, 2.16.
#[tokio::test(flavor = "multi_thread")]
async fn every_run_comes_to_its_end_whatever_its_players_do() {
    let runs = if long() { 1_200 } else { 300 };
    tell("teams on SQLite", TestApp::new(PROGRAM), runs, AT_ONCE).await;
}

/// Rows 2.10, 2.16.
#[tokio::test(flavor = "multi_thread")]
async fn every_run_comes_to_its_end_on_postgresql() {
    if have_postgres("teams on PostgreSQL") {
        let runs = if long() { 300 } else { 60 };
        let builder = TestApp::new(PROGRAM).postgres();
        tell("teams on PostgreSQL", builder, runs, AT_ONCE_ON_POSTGRES).await;
    }
}

async fn tell(story: &str, builder: Builder, runs: usize, at_once: usize) {
    let mut rng = Rng::seeded(story);
    let builder = LIMITS.iter().fold(builder, |builder, (name, value)| builder.env(name, value));
    let mut app = builder.start().await;
    let local = app.local();
    let faults = Faults::default();
    let casts: Vec<Cast> = (0..runs).map(|run| Cast::draw(run, &mut rng)).collect();
    let kills = Kills::default();
    let stages = open_stages(&local, &casts, &faults).await;
    let started = Instant::now();
    let (ended, progress) = watch::channel(0);
    let playing = play_all(stages.clone(), casts, rng.fork(), ended, at_once);
    let hurt = hurt_until(&mut app, playing, progress, &mut rng, &kills).await;
    eprintln!("{story}: {runs} runs in {:.0?}, {hurt:?}", started.elapsed());
    // A session that comes now has the time to hear everything.
    app.set_env("SHIKIRI_SESSION_SECONDS", "600");
    app.set_env("SHIKIRI_CHAT_IDLE_SECONDS", "600");
    app.restart().await;
    // By then no session of a player is waited for any more.
    tokio::time::sleep(SILENCE).await;
    let ending = stages.iter().map(|stage| epilogue::end(stage, &local));
    let ended: Vec<()> = stream::iter(ending).buffer_unordered(at_once).collect().await;
    assert_eq!(ended.len(), runs);
    let mut found = faults.all();
    let mut counts = BTreeMap::new();
    for stage in &stages {
        let state = State::read(&local, &stage.project).await;
        let notes = stage.journal.notes().clone();
        let history = History { notes, state, kills: kills.all() };
        found.extend(history.faults().iter().map(|fault| format!("{}: {fault}", stage.project)));
        count(&mut counts, &history);
    }
    eprintln!("{story}: {counts:?}");
    assert!(found.is_empty(), "{} faults:\n{}", found.len(), found.join("\n"));
    // A story in which nothing happened would prove nothing.
    let of = |what: &str| counts.get(what).copied().unwrap_or(0);
    let rare = HAPPENS_IN_MANY.iter().filter(|_| runs >= MANY);
    for what in HAPPENS.iter().chain(rare) {
        assert!(of(what) > 0, "no {what}");
    }
    assert!(150 * of("whole games") >= runs, "hardly a game was played to its end");
    assert!(hurt.kills > 0);
}

/// Who plays in a run.
struct Cast {
    project: String,
    /// Whose tasks.
    tasks: Vec<&'static str>,
    loops: u32,
}

impl Cast {
    fn draw(run: usize, rng: &mut Rng) -> Self {
        let project = format!("p{run}");
        match rng.range(0, 6) {
            // Two delegations of one agent to one target, at the same time.
            0 => Self { project, tasks: vec!["ann", "ann"], loops: 0 },
            // Each delegates to the other, again and again.
            1 => Self { project, tasks: vec!["ann", "ben"], loops: 3 },
            _ => Self { project, tasks: vec!["ann"], loops: 0 },
        }
    }
}

async fn open_stages(local: &Tenant, casts: &[Cast], faults: &Faults) -> Vec<Stage> {
    // The first makes the agents; the others let them in.
    let (first, others) = casts.split_first().expect("a run");
    set_up(local, &first.project, &first.tasks, Some(PASSKEY)).await;
    let opening = others.iter().map(|cast| set_up(local, &cast.project, &cast.tasks, None));
    stream::iter(opening).buffer_unordered(SET_UP_AT_ONCE).collect::<Vec<_>>().await;
    let stage = |cast: &Cast| Stage {
        project: cast.project.clone(),
        client: local.client.clone(),
        faults: faults.clone(),
        journal: Journal::default(),
        busy: Arc::new(AtomicUsize::new(cast.tasks.len())),
    };
    casts.iter().map(stage).collect()
}

async fn play_all(
    stages: Vec<Stage>,
    casts: Vec<Cast>,
    mut rng: Rng,
    ended: watch::Sender<usize>,
    at_once: usize,
) {
    let room = Arc::new(Semaphore::new(at_once));
    let mut runs = JoinSet::new();
    for (stage, cast) in stages.into_iter().zip(casts) {
        let (room, rng) = (Arc::clone(&room), rng.fork());
        runs.spawn(async move {
            let _place = room.acquire().await.expect("room");
            play(&stage, &cast, rng).await;
        });
    }
    while let Some(run) = runs.join_next().await {
        run.expect("a run without panic");
        ended.send_modify(|ended| *ended += 1);
    }
}

async fn play(stage: &Stage, cast: &Cast, mut rng: Rng) {
    let mut players = JoinSet::new();
    for agent in &cast.tasks {
        let plan = Plan { loops: cast.loops, ..Plan::draw(&mut rng) };
        let player = Player::new(stage, agent, "task", plan, rng.fork());
        players.spawn(TaskPlayer::new(player).play());
    }
    for agent in ["ann", "ben"] {
        let player = Player::new(stage, agent, "chat", Plan::draw(&mut rng), rng.fork());
        players.spawn(ChatPlayer::new(player).play());
    }
    while let Some(player) = players.join_next().await {
        player.expect("a player without panic");
    }
}

/// What was done to the server.
#[derive(Debug, Default)]
struct Hurt {
    kills: u32,
    pauses: u32,
}

/// Kills and pauses the server until the story is told. How often goes by how many runs have ended,
/// not by the clock: on a slow machine the players need longer to get anywhere.
async fn hurt_until(
    app: &mut TestApp,
    story: impl Future<Output = ()>,
    mut progress: watch::Receiver<usize>,
    rng: &mut Rng,
    kills: &Kills,
) -> Hurt {
    let mut hurt = Hurt::default();
    let mut next = 0;
    tokio::pin!(story);
    loop {
        let moment = async {
            let _ = progress.wait_for(|ended| *ended >= next).await;
            tokio::time::sleep(Duration::from_millis(rng.range(0, 1_500))).await;
        };
        tokio::select! {
            () = &mut story => return hurt,
            () = moment => {}
        }
        next = *progress.borrow() + rng.index(20) + 1;
        if rng.one_in(4) {
            app.stop_signal();
            tokio::time::sleep(Duration::from_millis(rng.range(100, 1_200))).await;
            app.cont();
            hurt.pauses += 1;
        } else {
            app.kill9();
            kills.note();
            app.restart().await;
            hurt.kills += 1;
        }
    }
}

fn count(all: &mut BTreeMap<String, usize>, history: &History) {
    let mut add = |what: &str, times: usize| *all.entry(what.to_owned()).or_default() += times;
    let History { notes, state, .. } = history;
    for dialogue in &state.dialogues {
        add("dialogues", 1);
        add(dialogue.end_reason.as_deref().unwrap_or("living"), 1);
        add("messages", dialogue.lines.len());
        add("whole games", usize::from(dialogue.lines.len() >= 12));
    }
    for delegation in &state.delegations {
        add("delegations", 1);
        add(&delegation.status, 1);
        add(&format!("attempts {}", delegation.attempts), 1);
    }
    add("sessions", notes.sessions);
    add("lost looks", notes.lost_looks);
    add("told", notes.told.len());
    add("outcomes heard", notes.outcomes.len());
    add("tasks done by players", notes.done.len());
}
