//! A page in a Chromium of its own, whose requests and complaints are recorded. A lane's browser cannot
//! tell them: its keeper passes on no such events.

use std::io::{BufRead, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;

const PATIENCE: Duration = Duration::from_secs(60);
/// Chrome reads commands from descriptor 3 and writes answers to 4.
const WITH_PIPES: &str =
    "exec \"$0\" \"$@\" --remote-debugging-pipe 3<&0 4>&1 </dev/null >/dev/null";

pub(super) struct WatchedPage {
    chrome: Child,
    commands: ChildStdin,
    messages: Receiver<Value>,
    last_id: u64,
    session: Option<String>,
    requested: Vec<String>,
    complaints: Vec<String>,
    _profile: TempDir,
}

impl WatchedPage {
    pub(super) fn open(chrome: &Path, url: &str) -> Self {
        let profile = tempfile::tempdir().unwrap();
        let mut command = Command::new("/bin/sh");
        command.args(["-c", WITH_PIPES]).arg(chrome);
        command.args([
            "--headless=new",
            "--no-first-run",
            "--disable-gpu",
            "--window-size=1400,900",
        ]);
        command.args(["--disable-background-networking", "--disable-component-update"]);
        command.args(["--disable-dev-shm-usage", "--disable-sync"]);
        command.arg(format!("--user-data-dir={}", profile.path().display()));
        if shikiri_testkit::unprivileged().is_some() {
            command.arg("--no-sandbox");
        }
        command.arg("about:blank").stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut chrome = command.stderr(Stdio::null()).spawn().unwrap();
        let commands = chrome.stdin.take().unwrap();
        let messages = read_messages(BufReader::new(chrome.stdout.take().unwrap()));
        let mut page = Self {
            chrome,
            commands,
            messages,
            last_id: 0,
            session: None,
            requested: Vec::new(),
            complaints: Vec::new(),
            _profile: profile,
        };
        let made = page.call("Target.createTarget", json!({ "url": "about:blank" }));
        let target = made["targetId"].clone();
        let attach = json!({ "targetId": target, "flatten": true });
        let attached = page.call("Target.attachToTarget", attach);
        page.session = attached["sessionId"].as_str().map(str::to_owned);
        for domain in ["Network", "Log", "Runtime", "Page"] {
            page.call(&format!("{domain}.enable"), json!({}));
        }
        page.call("Page.navigate", json!({ "url": url }));
        page
    }

    fn call(&mut self, method: &str, params: Value) -> Value {
        self.last_id += 1;
        let id = self.last_id;
        let mut message = json!({ "id": id, "method": method, "params": params });
        if let Some(session) = &self.session {
            message["sessionId"] = json!(session);
        }
        self.commands.write_all(format!("{message}\0").as_bytes()).unwrap();
        loop {
            let message = self.messages.recv_timeout(PATIENCE).expect(method);
            if message["id"] == id {
                assert!(message["result"].is_object(), "{method}: {message}");
                return message["result"].clone();
            }
            self.record(&message);
        }
    }

    fn record(&mut self, event: &Value) {
        let params = &event["params"];
        match event["method"].as_str().unwrap_or_default() {
            "Network.requestWillBeSent" => {
                self.requested
                    .push(params["request"]["url"].as_str().unwrap_or_default().to_owned());
            }
            "Log.entryAdded" if params["entry"]["level"] == "error" => {
                self.complaints.push(params["entry"].to_string());
            }
            "Runtime.exceptionThrown" => self.complaints.push(params.to_string()),
            "Runtime.consoleAPICalled" if params["type"] == "error" => {
                self.complaints.push(params["args"].to_string());
            }
            _ => {}
        }
    }

    /// The value of an expression of JavaScript.
    pub(super) fn evaluate(&mut self, expression: &str) -> Value {
        let params = json!({ "expression": expression, "returnByValue": true });
        let answer = self.call("Runtime.evaluate", params);
        assert!(answer["exceptionDetails"].is_null(), "{expression}: {answer}");
        answer["result"]["value"].clone()
    }

    /// Types into what has the focus.
    pub(super) fn type_text(&mut self, text: &str) {
        self.call("Input.insertText", json!({ "text": text }));
    }

    /// The addresses that the page has asked so far.
    pub(super) fn requested(&self) -> &[String] {
        &self.requested
    }

    /// Errors of scripts, failed requests, and what the page's policy refused.
    pub(super) fn complaints(&self) -> &[String] {
        &self.complaints
    }
}

impl Drop for WatchedPage {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.chrome.kill();
        let _ = self.chrome.wait();
    }
}

/// Messages end with a NUL.
fn read_messages(mut answers: impl BufRead + Send + 'static) -> Receiver<Value> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        let mut message = Vec::new();
        while answers.read_until(0, &mut message).is_ok_and(|read| read > 0) {
            message.pop();
            let parsed = serde_json::from_slice(&message).expect("a message of Chrome");
            message.clear();
            if sender.send(parsed).is_err() {
                return;
            }
        }
    });
    receiver
}
