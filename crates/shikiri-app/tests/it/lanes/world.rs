//! A store of each kind, an app on it, and pages that wait until the test lets them answer.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use serde_json::{Value, json};
use shikiri_app::{App, AppOptions};
use shikiri_lanes::{
    AskError, AskErrorCause, AskTimings, HistoryQuery, LaneKey, LaneOptions, LaneRuntime,
    PageAnswer, PageDriver, PageQuestion, ProviderInfo, SendGate,
};
use shikiri_model::ids::{RunId, TenantId};
use shikiri_model::lane::{CallerIdentity, CallerOrigin, Lane, LaneLimits, ProviderQuestion};
use shikiri_model::record::{Document, RecordQuery};
use shikiri_runtime::RuntimeOptions;
use shikiri_runtime::run::{NewRun, RunView};
use shikiri_store::Store;
use shikiri_testkit::{FakeClock, TestStore, until};
use tokio::sync::Semaphore;

/// On a busy machine, too.
const PATIENCE: Duration = Duration::from_secs(20);

/// A page whose questions wait until the test lets them go.
pub(super) struct Pages {
    pub(super) gate: Semaphore,
    /// What is typed waits here before it is sent.
    pub(super) typing: Semaphore,
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
        until("a question stands in line", is_so).await;
    }

    pub(super) async fn until_open(&self, count: usize) {
        until("the pages are asked", async || self.state().open.len() >= count).await;
    }
}

#[async_trait]
impl PageDriver for Pages {
    fn providers(&self) -> Vec<ProviderInfo> {
        self.looked_up.fetch_add(1, Ordering::SeqCst);
        let provider = |id: &str| ProviderInfo {
            id: id.to_owned(),
            name: id.to_owned(),
            is_enabled: self.is_enabled,
        };
        vec![provider("chatgpt"), provider("gemini")]
    }

    async fn ask(
        &self,
        question: &PageQuestion,
        witness: &dyn SendGate,
    ) -> Result<PageAnswer, AskError> {
        let place = (question.lane.lane.clone(), question.provider.clone());
        {
            let mut state = self.state();
            assert!(state.open.insert(place.clone()), "two at once in {place:?}");
            state.most = state.most.max(state.open.len());
            state.asked.push((place.0.clone(), question.text.clone(), question.url.clone()));
        }
        // It is given back also if the question is given up.
        let _leave = Leave(self, place.clone());
        if self.fails {
            return Err(AskError::unsent(AskErrorCause::Broken("no page".into())));
        }
        self.typing.acquire().await.unwrap().forget();
        witness.before_send().await.map_err(|_| AskError::unsent(AskErrorCause::GivenUp))?;
        self.state().sent.push(question.text.clone());
        self.gate.acquire().await.unwrap().forget();
        let url = question.url.clone();
        let url = url.unwrap_or_else(|| format!("https://page.example/{}/{}", place.0, place.1));
        let tab = Some(format!("tab-{}-{}", place.0, place.1));
        let answer = format!("to {}", question.text);
        Ok(PageAnswer { answer, url: Some(url), tab, timings: AskTimings::default() })
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

pub(super) struct World {
    pub(super) app: App,
    pub(super) clock: Arc<FakeClock>,
    pub(super) pages: Arc<Pages>,
    store: Arc<dyn Store>,
    /// After what uses it.
    _data: TestStore,
}

impl World {
    /// One on each kind of store, with pages of its own.
    pub(super) async fn each(pages: impl Fn() -> Arc<Pages>, lanes: &LaneOptions) -> Vec<Self> {
        let mut worlds = Vec::new();
        for data in TestStore::each("the use cases of lanes").await {
            worlds.push(Self::on(data, pages(), lanes.clone()).await);
        }
        worlds
    }

    async fn on(data: TestStore, pages: Arc<Pages>, lanes: LaneOptions) -> Self {
        let store = data.open().await;
        let node_lease = Duration::from_secs(60);
        let options = AppOptions {
            lanes,
            runtime: RuntimeOptions { node_lease, ..RuntimeOptions::default() },
            ..AppOptions::default()
        };
        let app = app_with_pages(store.clone(), options, pages.clone());
        app.tenancy.ensure_local_tenant().await.unwrap();
        Self { app, clock: data.clock.clone(), pages, store, _data: data }
    }

    /// The same store, as another process has it that carries so many runs, with these pages.
    pub(super) fn another_app(&self, max_runs: usize, pages: &Arc<Pages>) -> App {
        let mut options = self.app.options().clone();
        options.runtime.max_runs = max_runs;
        app_with_pages(self.store.clone(), options, pages.clone())
    }

    pub(super) async fn ask(&self, who: &CallerIdentity, tool: &str, question: &str) -> RunId {
        let origin = json!({ "lane": who, "connection": "con_1" });
        let new = NewRun {
            agent: tool.into(),
            input: json!({ "question": question }),
            idempotency_key: None,
            origin: Some(origin),
        };
        self.app.runtime.start_run(&TenantId::local(), new).await.unwrap().run.id
    }

    /// Until a worker executes the run and has come to its question.
    pub(super) async fn until_at_it(&self, run: &RunId) {
        let (tenant, stream) = (TenantId::local(), shikiri_model::run::run_stream(run));
        let mut watch = self.app.runtime.watch(&tenant, stream.clone(), 0).await.unwrap();
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
        let stream = shikiri_model::run::run_stream(run);
        let mut watch = self.app.runtime.watch(&TenantId::local(), stream, 0).await.unwrap();
        let over = async { while watch.next().await.unwrap().is_some() {} };
        tokio::time::timeout(PATIENCE, over).await.expect("waited too long");
        self.app.runtime.run(&TenantId::local(), run).await.unwrap()
    }

    pub(super) async fn answer(&self, run: &RunId) -> Value {
        let view = self.end_of(run).await;
        view.run.result.unwrap_or_else(|| panic!("{:?}", view.run.error))
    }

    pub(super) async fn history(&self) -> Vec<ProviderQuestion> {
        let query = HistoryQuery { limit: 100, ..HistoryQuery::default() };
        let (found, _) = self.app.lanes.history(&TenantId::local(), query).await.unwrap();
        found.into_iter().map(|stored| stored.value).collect()
    }

    pub(super) async fn open_lanes(&self) -> Vec<String> {
        let (lanes, _) =
            self.app.lanes.list_lanes(&TenantId::local(), false, None, 100).await.unwrap();
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

pub(super) fn who(pid: u32) -> CallerIdentity {
    CallerIdentity::of(&CallerOrigin::Process { pid, started_ms: 1, declared: None }, "x")
}

pub(super) fn limits(max_lanes: u32) -> LaneOptions {
    let limits = LaneLimits { max_lanes, ..LaneLimits::default() };
    LaneOptions { limits, ..LaneOptions::default() }
}

/// An app whose lanes are asked at `pages`.
pub(super) fn app_with_pages(
    store: Arc<dyn Store>,
    options: AppOptions,
    pages: Arc<dyn PageDriver>,
) -> App {
    let lanes = Arc::new(LaneRuntime::new(pages, options.lanes.clone()));
    App::new(store, shikiri_lanes::agents(&lanes), options).with_lanes(lanes)
}
