//! Lanes with pages that the test holds in its hand.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use serde_json::{Value, json};
use shikiri_app::lane::{
    AskError, Asked, Cause, HistoryQuery, LaneKey, LaneOptions, PageDriver, Provider, Question,
    Timings, Witness,
};
use shikiri_app::run::{NewRun, Node, RunView};
use shikiri_app::{App, AppOptions, lane};
use shikiri_model::ids::{RunId, TenantId};
use shikiri_model::lane::{Identity, Inquiry, Lane, LaneLimits, Sent, Way};
use shikiri_model::record::{Document, RecordQuery};
use shikiri_model::time::Timestamp;
use shikiri_store::sqlite::{Durability, SqliteOptions, SqliteStore};
use shikiri_store::{FakeClock, Store};
use tokio::sync::{Notify, Semaphore};

/// A page whose questions wait until the test lets them go.
struct Pages {
    gate: Semaphore,
    came: Notify,
    state: Mutex<State>,
    /// Asks for leave to send, and says that it was refused.
    refuses: bool,
    is_enabled: bool,
}

#[derive(Default)]
struct State {
    open: BTreeSet<(String, String)>,
    most: usize,
    asked: Vec<(String, String, Option<String>)>,
    closed: Vec<(String, BTreeMap<String, String>)>,
}

impl Pages {
    fn new(free: usize) -> Arc<Self> {
        Arc::new(Self {
            gate: Semaphore::new(free),
            came: Notify::new(),
            state: Mutex::default(),
            refuses: false,
            is_enabled: true,
        })
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    async fn until_open(&self, count: usize) {
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
        if self.refuses {
            return Err(AskError::unsent(Cause::Broken("no page".into())));
        }
        witness.before_send().await.map_err(|_| AskError::unsent(Cause::GivenUp))?;
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

struct World {
    app: App,
    store: Arc<SqliteStore>,
    clock: Arc<FakeClock>,
    pages: Arc<Pages>,
    _folder: tempfile::TempDir,
}

impl World {
    async fn new(pages: Arc<Pages>, lanes: LaneOptions) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let start = "2026-11-15T20:00:00.000Z".parse::<Timestamp>().unwrap();
        let clock = Arc::new(FakeClock::starting_at(start));
        let options = SqliteOptions { clock: clock.clone(), durability: Durability::Normal };
        let store = SqliteStore::open(&folder.path().join("state.db"), options).unwrap();
        let store = Arc::new(store);
        let options = AppOptions { lanes, ..AppOptions::default() };
        let app = App::new(store.clone(), lane::agents(), options).with_pages(pages.clone());
        app.ensure_local_tenant().await.unwrap();
        Self { app, store, clock, pages, _folder: folder }
    }

    async fn ask(&self, who: &Identity, tool: &str, question: &str) -> RunId {
        let origin = json!({ "lane": who, "connection": "con_1" });
        let new = NewRun {
            agent: tool.into(),
            input: json!({ "question": question }),
            idempotency_key: None,
            origin: Some(origin),
        };
        self.app.start_run(&TenantId::local(), new).await.unwrap().run.id
    }

    async fn end_of(&self, run: &RunId) -> RunView {
        let stream = shikiri_model::run::stream_of(run);
        let mut watch = self.app.watch(&TenantId::local(), stream, 0).await.unwrap();
        let over = async { while watch.next().await.unwrap().is_some() {} };
        tokio::time::timeout(Duration::from_secs(20), over).await.expect("waited too long");
        self.app.run(&TenantId::local(), run).await.unwrap()
    }

    async fn answer(&self, run: &RunId) -> Value {
        let view = self.end_of(run).await;
        view.run.result.unwrap_or_else(|| panic!("{:?}", view.run.error))
    }

    async fn history(&self) -> Vec<Inquiry> {
        let query = HistoryQuery { limit: 100, ..HistoryQuery::default() };
        let (found, _) = self.app.history(&TenantId::local(), query).await.unwrap();
        found.into_iter().map(|stored| stored.value).collect()
    }

    async fn open_lanes(&self) -> Vec<String> {
        let (lanes, _) = self.app.list_lanes(&TenantId::local(), false, None, 100).await.unwrap();
        lanes.into_iter().map(|stored| stored.value.name).collect()
    }

    /// How many lanes are open at one moment. The app's own listing is read in several slices,
    /// between which one lane may end for another.
    async fn open_at_once(&self) -> usize {
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

fn who(pid: u32) -> Identity {
    Identity::of(&Way::Process { pid, started_ms: 1, declared: None }, "x")
}

fn limits(max_lanes: u32) -> LaneOptions {
    let limits = LaneLimits { max_lanes, ..LaneLimits::default() };
    LaneOptions { limits, ..LaneOptions::default() }
}

/// Rows 0.15, 0.16: what is open grows with lanes and providers, and in no place there are ever two
/// questions at once; whoever waits is asked in its order.
#[tokio::test(flavor = "multi_thread")]
async fn each_lane_and_provider_is_asked_alone_and_nothing_is_shared() {
    let world = World::new(Pages::new(0), limits(10)).await;
    let node = Node::start(world.app.clone());
    node.joined().await;
    let mut runs = Vec::new();
    for pid in 1..=3 {
        for turn in 0..3 {
            let question = format!("{pid}/{turn}");
            runs.push((
                question.clone(),
                world.ask(&who(pid), "ask_chatgpt_gemini_web", &question).await,
            ));
        }
    }
    // Three lanes at two providers.
    world.pages.until_open(6).await;
    world.pages.gate.add_permits(100);
    for (question, run) in &runs {
        let result = world.answer(run).await;
        for provider in ["chatgpt", "gemini"] {
            assert_eq!(result[provider]["answer"], format!("to {question}"));
            let lane = result["lane"].as_str().unwrap();
            assert_eq!(result[provider]["url"], format!("https://page.example/{lane}/{provider}"));
        }
    }
    assert_eq!(world.pages.state().most, 6);
    assert_eq!(world.history().await.len(), 18);
    assert!(world.history().await.iter().all(|asked| asked.sent == Sent::Yes));
    node.leave().await;
}

/// Who asks first is asked first: a lane's waiting questions keep their order.
#[tokio::test(flavor = "multi_thread")]
async fn a_lane_keeps_the_order_of_its_questions() {
    let world = World::new(Pages::new(0), limits(10)).await;
    let node = Node::start(world.app.clone());
    node.joined().await;
    let mut runs = vec![world.ask(&who(1), "ask_chatgpt_web", "0").await];
    world.pages.until_open(1).await;
    for number in 1..8 {
        runs.push(world.ask(&who(1), "ask_chatgpt_web", &number.to_string()).await);
        // Until it stands in the queue; its order is that of coming.
        tokio::time::sleep(Duration::from_millis(60)).await;
    }
    world.pages.gate.add_permits(100);
    for run in &runs {
        world.answer(run).await;
    }
    let asked: Vec<String> =
        world.pages.state().asked.iter().map(|asked| asked.1.clone()).collect();
    assert_eq!(asked, ["0", "1", "2", "3", "4", "5", "6", "7"]);
    node.leave().await;
}

/// Row 0.11: thirty minutes without a call, and the next sweep ends a lane; its chat is remembered.
#[tokio::test(flavor = "multi_thread")]
async fn an_idle_lane_ends_with_the_next_sweep_and_its_chat_is_remembered() {
    let world = World::new(Pages::new(100), limits(10)).await;
    let node = Node::start(world.app.clone());
    node.joined().await;
    for pid in [1, 2] {
        let run = world.ask(&who(pid), "ask_chatgpt_web", "?").await;
        world.answer(&run).await;
    }
    world.clock.jump(29 * 60_000);
    let touched = world.app.lane_info(&TenantId::local(), &who(1)).await.unwrap();
    assert!(touched.lane.is_some());
    assert_eq!(world.app.clean_lanes().await.unwrap(), 0);
    world.clock.jump(60_000);
    // The node sweeps too: whoever comes first ends it.
    world.app.clean_lanes().await.unwrap();
    let wait = async {
        while world.open_lanes().await != ["x-1"] {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), wait).await.expect("it never ended");
    assert!(world.app.lane_info(&TenantId::local(), &who(2)).await.unwrap().lane.is_none());
    let run = world.ask(&who(2), "ask_chatgpt_web", "again").await;
    assert_eq!(world.answer(&run).await["url"], "https://page.example/x-2/chatgpt");
    let asked = world.pages.state().asked.last().cloned().unwrap();
    assert_eq!(asked.2.as_deref(), Some("https://page.example/x-2/chatgpt"));
    node.leave().await;
}

/// Row 0.15: the tabs that are closed are those of the lane that goes.
#[tokio::test(flavor = "multi_thread")]
async fn a_lane_that_ends_takes_its_own_tabs_along_and_no_others() {
    let world = World::new(Pages::new(100), limits(2)).await;
    let node = Node::start(world.app.clone());
    node.joined().await;
    for pid in [1, 2, 3] {
        let run = world.ask(&who(pid), "ask_chatgpt_gemini_web", "?").await;
        world.answer(&run).await;
        world.clock.jump(1_000);
    }
    let tab = |provider: &str| (provider.to_owned(), format!("tab-x-1-{provider}"));
    let tabs = BTreeMap::from([tab("chatgpt"), tab("gemini")]);
    assert_eq!(world.pages.state().closed, [("x-1".to_owned(), tabs)]);
    assert_eq!(world.open_lanes().await, ["x-2", "x-3"]);
    node.leave().await;
}

/// Two processes that open lanes at the same moment do not pass the limit together.
#[tokio::test(flavor = "multi_thread")]
async fn lanes_that_are_opened_at_once_stay_within_the_limit() {
    let world = World::new(Pages::new(100), limits(5)).await;
    let tenant = TenantId::local();
    let opened = (1..=30).map(|pid| {
        let (app, tenant) = (world.app.clone(), tenant.clone());
        tokio::spawn(async move { app.open_lane(&tenant, &who(pid)).await.unwrap() })
    });
    for opened in opened.collect::<Vec<_>>() {
        opened.await.unwrap();
        let open = world.open_at_once().await;
        assert!(open <= 5, "{open} lanes are open");
    }
    assert_eq!(world.open_at_once().await, 5);
}

/// A provider that is switched off is not asked, nor one that fails twice.
#[tokio::test(flavor = "multi_thread")]
async fn a_disabled_provider_is_refused_and_a_page_that_fails_is_told() {
    let pages = Arc::into_inner(Pages::new(100)).unwrap();
    let world = World::new(Arc::new(Pages { is_enabled: false, ..pages }), limits(10)).await;
    let node = Node::start(world.app.clone());
    node.joined().await;
    let run = world.ask(&who(1), "ask_chatgpt_web", "?").await;
    let error = world.end_of(&run).await.run.error.unwrap();
    assert_eq!(error.code, "UNKNOWN_PROVIDER");
    assert!(world.history().await.is_empty() && world.open_lanes().await.is_empty());
    node.leave().await;

    let pages = Arc::into_inner(Pages::new(100)).unwrap();
    let world = World::new(Arc::new(Pages { refuses: true, ..pages }), limits(10)).await;
    let node = Node::start(world.app.clone());
    node.joined().await;
    let run = world.ask(&who(1), "ask_chatgpt_gemini_web", "?").await;
    let error = world.end_of(&run).await.run.error.unwrap();
    assert_eq!((error.code.as_str(), error.message.as_str()), ("BROWSER_FAILED", "no page"));
    assert!(world.history().await.iter().all(|asked| asked.sent == Sent::No));
    node.leave().await;
}
