//! A site with rooms, a project that describes them, and a bridge to a Chromium of its own.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use async_trait::async_trait;
use serde_json::Value;
use shikiri_browser::{BrowserBridge, BrowserOptions, plan_browser};
use shikiri_lanes::{
    AskError, AskStage, LaneKey, PageAnswer, PageDriver as _, PageQuestion, SendGate, SendRefusal,
};
use shikiri_model::ids::TenantId;
use shikiri_testkit::{ChatSite, KeeperClient, skip};
use tempfile::TempDir;
use tokio::sync::Notify;

pub(crate) struct World {
    pub(crate) site: ChatSite,
    pub(crate) bridge: BrowserBridge,
    /// After the bridge: it goes when the browser was let go of.
    pub(crate) folder: TempDir,
}

pub(crate) fn options(folder: &Path) -> BrowserOptions {
    BrowserOptions {
        folder: folder.to_owned(),
        chrome_bin: std::env::var_os("SHIKIRI_CHROME_BIN").map(PathBuf::from),
        is_headless: true,
        keeper: Some(env!("CARGO_BIN_EXE_keep-browser").into()),
        ..BrowserOptions::default()
    }
}

/// Whether there is a Chromium to test with.
pub(crate) fn have_chromium() -> bool {
    match plan_browser(&options(Path::new("/"))) {
        Ok(_) => true,
        Err(error) => {
            skip("a test with Chromium", &error.to_string());
            false
        }
    }
}

impl World {
    /// None, loudly, where there is no Chromium.
    pub(crate) async fn start(rooms: &[(&str, Value)]) -> Option<Self> {
        if !have_chromium() {
            return None;
        }
        let site = ChatSite::start(rooms.iter().cloned()).await;
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("providers.toml"), site.providers()).unwrap();
        let bridge = BrowserBridge::new(options(folder.path()));
        Some(Self { site, bridge, folder })
    }

    /// A correction of what is described.
    pub(crate) fn describe(&self, change: impl FnOnce(String) -> String) {
        let file = self.folder.path().join("providers.toml");
        std::fs::write(file, change(self.site.providers())).unwrap();
    }

    pub(crate) async fn ask(&self, question: &PageQuestion) -> Result<PageAnswer, AskError> {
        self.bridge.ask(question, &Watcher::default()).await
    }

    /// Closes a tab as a person would: its lane knows nothing of it.
    pub(crate) async fn close_tab(&self, tab: &str) {
        let absent = lane("absent");
        self.bridge.close(&absent, &BTreeMap::from([("x".to_owned(), tab.to_owned())])).await;
    }

    /// The tabs that the browser has.
    pub(crate) fn tabs(&self) -> Vec<String> {
        let tabs = KeeperClient::connect(&self.folder.path().join("browser/local")).tabs();
        tabs.into_iter().map(|(id, _)| id).collect()
    }
}

pub(crate) fn lane(name: &str) -> LaneKey {
    LaneKey { tenant: TenantId::local(), lane: name.to_owned() }
}

pub(crate) fn question(lane_name: &str, provider: &str, text: &str) -> PageQuestion {
    PageQuestion {
        lane: lane(lane_name),
        provider: provider.to_owned(),
        text: text.to_owned(),
        url: None,
        tab: None,
    }
}

/// The same question's lane asks on, in the chat that it has.
pub(crate) fn then(before: &PageQuestion, asked: &PageAnswer, text: &str) -> PageQuestion {
    PageQuestion {
        text: text.to_owned(),
        url: asked.url.clone(),
        tab: asked.tab.clone(),
        ..before.clone()
    }
}

/// Text as it is, but for how lines are broken.
pub(crate) fn plain(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[derive(Default)]
pub(crate) struct Watcher {
    pub(crate) stages: Mutex<Vec<AskStage>>,
    answering: Notify,
    pub(crate) asked: AtomicUsize,
    pub(crate) refuses: AtomicBool,
}

impl Watcher {
    /// Until a part of an answer is there.
    pub(crate) async fn answering(&self) {
        self.answering.notified().await;
    }
}

#[async_trait]
impl SendGate for Watcher {
    async fn before_send(&self) -> Result<(), SendRefusal> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        if self.refuses.load(Ordering::SeqCst) { Err(SendRefusal) } else { Ok(()) }
    }

    fn report_stage(&self, stage: AskStage) {
        if matches!(stage, AskStage::Answering { .. }) {
            self.answering.notify_one();
        }
        self.stages.lock().unwrap().push(stage);
    }
}

/// The process of the Chromium that has a project's profile open.
pub(crate) fn chromium(folder: &Path) -> Option<u32> {
    let link = std::fs::read_link(folder.join("browser/local/profile/SingletonLock")).ok()?;
    link.to_str()?.rsplit_once('-')?.1.parse().ok()
}

/// The processes that show its pages.
pub(crate) fn renderers(folder: &Path) -> Vec<u32> {
    let browser = chromium(folder).unwrap();
    let belongs =
        |pid: u32| std::iter::successors(Some(pid), |pid| parent(*pid)).any(|p| p == browser);
    let all = command_lines().filter(|(_, line)| line.contains("--type=renderer"));
    all.map(|(pid, _)| pid).filter(|pid| belongs(*pid)).collect()
}

fn parent(pid: u32) -> Option<u32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // After its name, which may hold anything: its state, then its parent.
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

fn command_lines() -> impl Iterator<Item = (u32, String)> {
    std::fs::read_dir("/proc").unwrap().filter_map(|entry| {
        let entry = entry.ok()?;
        let line = std::fs::read(entry.path().join("cmdline")).ok()?;
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        Some((entry.file_name().to_str()?.parse().ok()?, line))
    })
}

/// Processes that were told of a folder on their command lines, with those lines.
pub(crate) fn processes_of(folder: &Path) -> Vec<(u32, String)> {
    let folder = folder.to_str().unwrap();
    command_lines().filter(|(_, line)| line.contains(folder)).collect()
}

/// Those that keep a browser.
pub(crate) fn keepers(folder: &Path) -> Vec<u32> {
    let all = processes_of(folder).into_iter();
    all.filter(|(_, line)| line.contains(" keep-browser ")).map(|(pid, _)| pid).collect()
}
