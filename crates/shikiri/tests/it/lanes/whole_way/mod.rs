//! The whole way of a question with all its real parts: an MCP client, the program, the browser
//! bridge, a Chromium, and chat pages of our own in the places of ChatGPT and Gemini.

mod crowd;
mod devtools;
mod endings;
mod hindrances;

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use shikiri_browser::{BrowserOptions, plan_browser};
use shikiri_testkit::{Builder, ChatSite, Cli, KeeperClient, TestApp, skip};
use tempfile::TempDir;

use super::exported;
use crate::PROGRAM;

/// How long a browser may take to end when it is no longer used.
const ENDING: Duration = Duration::from_secs(30);

/// A project whose `providers.toml` leads to the site. What a test starts in it is to be declared
/// after it, and so goes before it.
struct Home {
    site: ChatSite,
    folder: TempDir,
}

/// As the real pages have it: the box comes late, the button later, the answer in pieces, and there
/// is a button to stop it.
fn manner() -> Value {
    json!({
        "marked": true, "editor": "editable", "input_delay_ms": 150, "send_delay_ms": 50,
        "piece_ms": 10,
    })
}

impl Home {
    /// None, loudly, where there is no Chromium.
    async fn start() -> Option<Self> {
        let chrome_bin = std::env::var_os("SHIKIRI_CHROME_BIN").map(Into::into);
        let options = BrowserOptions { chrome_bin, ..BrowserOptions::default() };
        if let Err(error) = plan_browser(&options) {
            skip("a test with Chromium", &error.to_string());
            return None;
        }
        let gemini = json!({ "marked": true, "input_delay_ms": 100, "piece_ms": 10 });
        let site = ChatSite::start([("chatgpt", manner()), ("gemini", gemini)]).await;
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join(".shikiri")).unwrap();
        let home = Self { site, folder };
        home.describe(|text| text);
        Some(home)
    }

    /// A person corrects the description of the pages.
    fn describe(&self, change: impl FnOnce(String) -> String) {
        let file = self.folder.path().join(".shikiri/providers.toml");
        std::fs::write(file, change(self.site.providers())).unwrap();
    }

    fn cli(&self) -> Cli {
        let cli = Cli::new(PROGRAM, self.folder.path()).env("SHIKIRI_TRUST", "1");
        match std::env::var_os("SHIKIRI_CHROME_BIN") {
            Some(named) => cli.env("SHIKIRI_CHROME_BIN", named),
            None => cli,
        }
    }

    fn server(&self) -> Builder {
        let server = TestApp::new(PROGRAM).root(self.folder.path()).env("SHIKIRI_TRUST", "1");
        match std::env::var("SHIKIRI_CHROME_BIN") {
            Ok(named) => server.env("SHIKIRI_CHROME_BIN", named),
            Err(_) => server,
        }
    }

    /// Closes the tab that a lane has at a provider, as a person would: the lane knows nothing of it.
    async fn close_tab(&self, lane: &str, provider: &str) {
        let lanes = tokio::task::block_in_place(|| exported(&self.cli()));
        let tab = lanes["agents"][lane][provider]["tabId"].as_str().expect("a tab").to_owned();
        let browser = self.folder.path().join(".shikiri/browser/local");
        tokio::task::block_in_place(|| KeeperClient::connect(&browser).close_tab(&tab));
    }

    /// The address of a chat, as the site knows it.
    fn chat<'a>(&self, url: &'a Value) -> &'a str {
        let url = url.as_str().expect("an address");
        assert!(url.starts_with(self.site.origin()), "{url}");
        url.rsplit('/').next().unwrap()
    }
}

impl Drop for Home {
    /// The browser still writes to the folder while it ends.
    fn drop(&mut self) {
        let start = Instant::now();
        while is_used(self.folder.path()) && start.elapsed() < ENDING {
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

/// Whether a process was told of the folder on its command line, as browsers and their keepers are.
fn is_used(folder: &Path) -> bool {
    let folder = folder.to_str().unwrap();
    std::fs::read_dir("/proc").unwrap().flatten().any(|entry| {
        let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).contains(folder)
    })
}

/// Text as it is, but for how lines are broken.
fn plain(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
