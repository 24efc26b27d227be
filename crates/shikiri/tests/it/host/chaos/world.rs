//! A server and a host in folders of their own, and host processes whose every line is kept although
//! they are killed.

use std::fs::File;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::Value;
use shikiri_testkit::{Cli, Ended, TestApp, until_blocking};
use tempfile::TempDir;

use crate::PROGRAM;

/// Longer than several kills, restarts and lapsed leases together.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

pub(super) struct World {
    pub(super) app: TestApp,
    pub(super) host: Home,
}

impl World {
    pub(super) async fn new() -> Self {
        let app = TestApp::new(PROGRAM)
            .env("SHIKIRI_NODE_LEASE_SECONDS", "0.4")
            // A killed process loses nothing by it; only a power cut would.
            .env("SHIKIRI_DURABILITY", "normal")
            .start()
            .await;
        let host = Home::of(&app);
        Self { app, host }
    }
}

/// Where a host works: its folder, and the server that it calls.
pub(super) struct Home {
    folder: TempDir,
    url: String,
    key: String,
    started: AtomicUsize,
}

impl Home {
    pub(super) fn of(app: &TestApp) -> Self {
        let url = format!("http://127.0.0.1:{}/mcp", app.port());
        let folder = TempDir::new().unwrap();
        Self { folder, url, key: app.admin_key(), started: AtomicUsize::new(0) }
    }

    /// The same calls, from where another server is expected at that address.
    pub(super) fn now_at(&mut self, app: &TestApp) {
        self.url = format!("http://127.0.0.1:{}/mcp", app.port());
        self.key = app.admin_key();
    }

    pub(super) fn cli(&self) -> Cli {
        Cli::new(PROGRAM, self.folder.path())
            .env("SHIKIRI_TRUST", "1")
            .env("SHIKIRI_KEY", &self.key)
            .env("SHIKIRI_DURABILITY", "normal")
    }

    /// `.mcp.json`, so that servers have names.
    pub(super) fn name_server(&self, name: &str) {
        let servers = serde_json::json!({ "mcpServers": { name: {
            "type": "http",
            "url": self.url,
            "headers": { "Authorization": "Bearer ${SHIKIRI_KEY}" },
        } } });
        std::fs::write(self.folder.path().join(".mcp.json"), servers.to_string()).unwrap();
    }

    fn words<'a>(&'a self, words: &[&'a str]) -> Vec<&'a str> {
        [&["host", "--url", &self.url], words].concat()
    }

    /// A host command to its end.
    pub(super) fn run(&self, words: &[&str]) -> Ended {
        tokio::task::block_in_place(|| self.cli().run(&self.words(words)))
    }

    /// A host command that can be killed.
    pub(super) fn start(&self, words: &[&str]) -> HostProcess {
        self.start_with(words, None)
    }

    /// One that kills itself at the given point of its code.
    pub(super) fn start_with(&self, words: &[&str], failpoint: Option<&str>) -> HostProcess {
        let number = self.started.fetch_add(1, Ordering::SeqCst);
        let file = |kind: &str| self.folder.path().join(format!("{number}.{kind}"));
        let cli = match failpoint {
            Some(point) => self.cli().env("SHIKIRI_FAILPOINT", point),
            None => self.cli(),
        };
        HostProcess::start(&cli, &self.words(words), file("out"), file("err"))
    }

    /// The calls that can be taken up.
    pub(super) fn open(&self) -> Vec<Value> {
        let listed = self.run(&["tokens", "list", "--json"]).done().json();
        listed["items"].as_array().expect("items").clone()
    }
}

/// A host process. Its outputs are files, so that nothing of them is lost with it.
pub(super) struct HostProcess {
    child: Child,
    out: PathBuf,
    err: PathBuf,
}

impl HostProcess {
    fn start(cli: &Cli, words: &[&str], out: PathBuf, err: PathBuf) -> Self {
        let mut command = cli.command(words);
        command.stdin(Stdio::null());
        command.stdout(File::create(&out).unwrap()).stderr(File::create(&err).unwrap());
        Self { child: command.spawn().unwrap(), out, err }
    }

    /// What it has shown: whole lines only.
    pub(super) fn events(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(&self.out).unwrap();
        text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }

    pub(super) fn said(&self) -> String {
        std::fs::read_to_string(&self.err).unwrap()
    }

    /// Its exit code, or the negated signal; None while it lives.
    pub(super) fn ended(&mut self) -> Option<i32> {
        use std::os::unix::process::ExitStatusExt as _;
        let status = self.child.try_wait().unwrap()?;
        Some(status.code().unwrap_or_else(|| -status.signal().unwrap_or(0)))
    }

    /// Waits until it has shown what is wanted; false if it ends before.
    pub(super) async fn until(&mut self, wanted: impl Fn(&[Value]) -> bool) -> bool {
        let look = || {
            let has_ended = self.ended().is_some();
            if wanted(&self.events()) { Some(true) } else { has_ended.then_some(false) }
        };
        tokio::task::block_in_place(|| until_blocking("the host shows what is wanted", look))
    }

    pub(super) async fn until_event(&mut self, kind: &str) {
        let found = self.until(|events| events.iter().any(|event| event["event"] == kind)).await;
        assert!(found, "no {kind}: {:?}\n{}", self.events(), self.said());
    }

    /// Its exit code.
    pub(super) async fn wait(&mut self) -> i32 {
        tokio::task::block_in_place(|| until_blocking("the host ends", || self.ended()))
    }

    pub(super) fn kill9(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for HostProcess {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("a host showed {:?}\n{}", self.events(), self.said());
        }
        self.kill9();
    }
}
