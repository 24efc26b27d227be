//! A store of each kind, an app on it, and pages that wait until the test lets them answer.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use serde_json::{Value, json};
use shikiri_app::lane::{
    AskError, Asked, Cause, HistoryQuery, LaneKey, LaneOptions, PageDriver, Provider, Question,
    Timings, Witness,
};
use shikiri_app::run::{NewRun, RunView};
use shikiri_app::{App, AppOptions, lane};
use shikiri_model::ids::{RunId, TenantId};
use shikiri_model::lane::{Identity, Inquiry, Lane, LaneLimits, Way};
use shikiri_model::record::{Document, RecordQuery};
use shikiri_model::time::Timestamp;
use shikiri_store::postgres::{PostgresOptions, PostgresStore};
use shikiri_store::sqlite::{Durability, SqliteOptions, SqliteStore};
use shikiri_store::{FakeClock, Store};
use shikiri_testkit::{TestDatabase, have_postgres, wait_until};
use tokio::sync::{Notify, Semaphore};

/// On a busy machine, too.
const PATIENCE: Duration = Duration::from_secs(20);

/// A page whose questions wait until the test lets them go.
pub(super) struct Pages {
    pub(super) gate: Semaphore,
    /// What is typed waits here before it is sent.
    pub(super) typing: Semaphore,
    came: Notify,
    /// How often it was looked up whom it asks: a question's last step before it stands in line.
    looked_up: AtomicUsize,
    state: Mutex<State>,
    /// Before anything is sent.
    fails: bool,
    is_enabled: bool,
}

#[derive(Default)]
pub(super) struct State {
    open: BTreeSet<(String, String)>,
    pub(super) most: usize,
    pub(super) sent: Vec<String>,
    pub(super) asked: Vec<(String, String, Option<String>)>,
    pub(super) closed: Vec<(String, BTreeMap<String, String>)>,
}

impl Pages {
    /// So many questions are answered at once; the others wait for the gate.
    pub(super) fn new(free: usize) -> Arc<Self> {
        Arc::new(Self::plain(free))
    }

    /// Nothing is sent until the test lets it.
    pub(super) fn hesitant() -> Arc<Self> {
        Arc::new(Self { typing: Semaphore::new(0), ..Self::plain(100) })
    }

    pub(super) fn switched_off() -> Arc<Self> {
        Arc::new(Self { is_enabled: false, ..Self::plain(0) })
    }

    pub(super) fn failing() -> Arc<Self> {
        Arc::new(Self { fails: true, ..Self::plain(0) })
    }

    fn plain(free: usize) -> Self {
        Self {
            gate: Semaphore::new(free),
            typing: Semaphore::new(1_000),
            came: Notify::new(),
            looked_up: AtomicUsize::new(0),
            state: Mutex::default(),
            fails: false,
            is_enabled: true,
        }
    }

    pub(super) fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// Until so many questions were about to stand in line.
    pub(super) async fn until_looked_up(&self, count: usize) {
        let is_so = async || self.looked_up.load(Ordering::SeqCst) >= count;
        wait_until("a question stands in line", PATIENCE, is_so).await;
    }

    pub(super) async fn until_open(&self, count: usize) {
        loop {
            let came = self.came.notified();
            if self.state().open.len() >= count {
                return;
            }
            let _ = tokio::time::timeout(Duration::from_millis(50), came).await;
        }
    }
}

#[async_trait]
impl PageDriver for Pages {
    fn providers(&self) -> Vec<Provider> {
        self.looked_up.fetch_add(1, Ordering::SeqCst);
        let provider = |id: &str| Provider {
            id: id.to_owned(),
            name: id.to_owned(),
            is_enabled: self.is_enabled,
        };
        vec![provider("chatgpt"), provider("gemini")]
    }

    async fn ask(&self, question: &Question, witness: &dyn Witness) -> Result<Asked, AskError> {
        let place = (question.lane.lane.clone(), question.provider.clone());
        {
            let mut state = self.state();
            assert!(state.open.insert(place.clone()), "two at once in {place:?}");
            state.most = state.most.max(state.open.len());
            state.asked.push((place.0.clone(), question.text.clone(), question.url.clone()));
        }
        self.came.notify_waiters();
        // It is given back also if the question is given up.
        let _leave = Leave(self, place.clone());
        if self.fails {
            return Err(AskError::unsent(Cause::Broken("no page".into())));
        }
        self.typing.acquire().await.unwrap().forget();
        witness.before_send().await.map_err(|_| AskError::unsent(Cause::GivenUp))?;
        self.state().sent.push(question.text.clone());
        self.gate.acquire().await.unwrap().forget();
        let url = question.url.clone();
        let url = url.unwrap_or_else(|| format!("https://page.example/{}/{}", place.0, place.1));
        let tab = Some(format!("tab-{}-{}", place.0, place.1));
        let answer = format!("to {}", question.text);
        Ok(Asked { answer, url: Some(url), tab, timings: Timings::default() })
    }

    async fn close(&self, lane: &LaneKey, tabs: &BTreeMap<String, String>) {
        self.state().closed.push((lane.lane.clone(), tabs.clone()));
    }
}

struct Leave<'a>(&'a Pages, (String, String));

impl Drop for Leave<'_> {
    fn drop(&mut self) {
        self.0.state().open.remove(&self.1);
    }
}

/// Where a store lies; it goes with this value.
enum Place {
    Folder(tempfile::TempDir),
    Database(TestDatabase),
}

pub(super) struct World {
    pub(super) app: App,
    pub(super) clock: Arc<FakeClock>,
    pub(super) pages: Arc<Pages>,
    store: Arc<dyn Store>,
    /// After what uses it.
    _place: Place,
}

impl World {
    /// One on each kind of store, with pages of its own.
    pub(super) async fn each(pages: impl Fn() -> Arc<Pages>, lanes: &LaneOptions) -> Vec<Self> {
        let mut places = vec![Place::Folder(tempfile::tempdir().unwrap())];
        if have_postgres("the use cases of lanes") {
            places.push(Place::Database(TestDatabase::create().await));
        }
        let mut worlds = Vec::new();
        for place in places {
            worlds.push(Self::at(place, pages(), lanes.clone()).await);
        }
        worlds
    }

    async fn at(place: Place, pages: Arc<Pages>, lanes: LaneOptions) -> Self {
        let start = "2026-11-15T20:00:00.000Z".parse::<Timestamp>().unwrap();
        let clock = Arc::new(FakeClock::starting_at(start));
        let store: Arc<dyn Store> = match &place {
            Place::Folder(folder) => {
                let options =
                    SqliteOptions { clock: clock.clone(), durability: Durability::Normal };
                Arc::new(SqliteStore::open(&folder.path().join("state.db"), options).unwrap())
            }
            Place::Database(database) => {
                let options = PostgresOptions { clock: Some(clock.clone()), max_connections: 6 };
                Arc::new(PostgresStore::connect(database.url(), options).await.unwrap())
            }
        };
        let node_lease = Duration::from_secs(60);
        let options = AppOptions { lanes, node_lease, ..AppOptions::default() };
        let app = App::new(store.clone(), lane::agents(), options).with_pages(pages.clone());
        app.ensure_local_tenant().await.unwrap();
        Self { app, clock, pages, store, _place: place }
    }

    /// The same store, as another process has it that carries so many runs, with these pages.
    pub(super) fn another_app(&self, max_runs: usize, pages: &Arc<Pages>) -> App {
        let options = AppOptions { max_runs, ..self.app.options().clone() };
        App::new(self.store.clone(), lane::agents(), options).with_pages(pages.clone())
    }

    pub(super) async fn ask(&self, who: &Identity, tool: &str, question: &str) -> RunId {
        let origin = json!({ "lane": who, "connection": "con_1" });
        let new = NewRun {
            agent: tool.into(),
            input: json!({ "question": question }),
            idempotency_key: None,
            origin: Some(origin),
        };
        self.app.start_run(&TenantId::local(), new).await.unwrap().run.id
    }

    /// Until somebody carries the run and has come to its question.
    pub(super) async fn until_at_it(&self, run: &RunId) {
        let (tenant, stream) = (TenantId::local(), shikiri_model::run::stream_of(run));
        let mut watch = self.app.watch(&tenant, stream.clone(), 0).await.unwrap();
        let begun = async {
            loop {
                let page = self.store.read(&tenant, &stream, 0, usize::MAX).await.unwrap();
                let mut events = page.chunks.iter().flat_map(|chunk| chunk.events());
                if events.any(|event| event.kind == "step_started") {
                    return;
                }
                assert!(watch.next().await.unwrap().is_some(), "it ended before it began");
            }
        };
        tokio::time::timeout(PATIENCE, begun).await.expect("waited too long");
    }

    pub(super) async fn end_of(&self, run: &RunId) -> RunView {
        let stream = shikiri_model::run::stream_of(run);
        let mut watch = self.app.watch(&TenantId::local(), stream, 0).await.unwrap();
        let over = async { while watch.next().await.unwrap().is_some() {} };
        tokio::time::timeout(PATIENCE, over).await.expect("waited too long");
        self.app.run(&TenantId::local(), run).await.unwrap()
    }

    pub(super) async fn answer(&self, run: &RunId) -> Value {
        let view = self.end_of(run).await;
        view.run.result.unwrap_or_else(|| panic!("{:?}", view.run.error))
    }

    pub(super) async fn history(&self) -> Vec<Inquiry> {
        let query = HistoryQuery { limit: 100, ..HistoryQuery::default() };
        let (found, _) = self.app.history(&TenantId::local(), query).await.unwrap();
        found.into_iter().map(|stored| stored.value).collect()
    }

    pub(super) async fn open_lanes(&self) -> Vec<String> {
        let (lanes, _) = self.app.list_lanes(&TenantId::local(), false, None, 100).await.unwrap();
        lanes.into_iter().map(|stored| stored.value.name).collect()
    }

    /// How many lanes are open at one moment. The app's own listing is read in several slices,
    /// between which one lane may end for another.
    pub(super) async fn open_at_once(&self) -> usize {
        let query = RecordQuery {
            kind: Lane::KIND,
            tenant: Some(TenantId::local()),
            state: Some("open".to_owned()),
            limit: 100,
            ..RecordQuery::default()
        };
        self.store.list(query).await.unwrap().len()
    }
}

pub(super) fn who(pid: u32) -> Identity {
    Identity::of(&Way::Process { pid, started_ms: 1, declared: None }, "x")
}

pub(super) fn limits(max_lanes: u32) -> LaneOptions {
    let limits = LaneLimits { max_lanes, ..LaneLimits::default() };
    LaneOptions { limits, ..LaneOptions::default() }
}
