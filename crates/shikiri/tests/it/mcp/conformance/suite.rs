//! Runs the suite, a program of Node, and reads what it found.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde::Deserialize;
use shikiri_testkit::{Client, Follower};

/// Far longer than a run takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(300);
/// The suite cannot be told to send a header, so one is added to each request on its way out.
/// Nothing else of the request changes.
const ADD_KEY: &str = r#"
import { subscribe } from "node:diagnostics_channel";
const value = `Bearer ${process.env.CONFORMANCE_KEY}`;
subscribe("undici:request:create", ({ request }) => request.addHeader("authorization", value));
subscribe("http.client.request.created", ({ request }) => request.setHeader("authorization", value));
"#;
/// What stands after the scenario's name in the name of its folder, such as
/// `-2026-11-16T10-20-30-456Z`.
const STAMP: usize = 25;

/// Where a suite is and what it should try.
pub(super) struct Suite<'a> {
    pub(super) node: PathBuf,
    pub(super) program: PathBuf,
    pub(super) arguments: &'a [&'a str],
}

/// One thing that the suite looked at.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Check {
    id: String,
    status: String,
    description: Option<String>,
    error_message: Option<String>,
}

/// What was found, by scenario.
pub(super) struct Findings(BTreeMap<String, Vec<Check>>);

impl Suite<'_> {
    /// Against the server of this client; `folder` is for what the suite writes.
    pub(super) async fn run(&self, client: &Client, folder: &Path) -> Findings {
        let url = format!("{}/mcp", client.base());
        let (preload, results) = (folder.join("add_key.mjs"), folder.join("results"));
        std::fs::write(&preload, ADD_KEY).unwrap();
        let mut command = Command::new(&self.node);
        command.env_clear().env("HOME", folder).env("NO_COLOR", "1");
        command.env("CONFORMANCE_KEY", client.key().expect("a key"));
        command.current_dir(folder).arg("--import").arg(&preload).arg(&self.program);
        command.args(["server", "--url", &url, "-o"]).arg(&results).args(self.arguments);
        let run = move || {
            let mut node = Follower::start(&mut command);
            // It does not count every failure in its exit code; its files tell more.
            node.wait(PATIENCE);
            node.output()
        };
        let said = tokio::task::spawn_blocking(run).await.unwrap();
        Findings::read(&results).unwrap_or_else(|| panic!("the suite found nothing:\n{said}"))
    }
}

impl Findings {
    fn read(folder: &Path) -> Option<Self> {
        let scenarios = std::fs::read_dir(folder).ok()?.map(|entry| {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            let name = name.strip_prefix("server-").unwrap_or(&name);
            let name = name.get(..name.len() - STAMP).expect("a scenario's folder").to_owned();
            let text = std::fs::read_to_string(path.join("checks.json")).unwrap();
            (name, serde_json::from_str(&text).expect("a list of checks"))
        });
        Some(Self(scenarios.collect()))
    }

    pub(super) fn scenarios(&self) -> Vec<&str> {
        self.0.keys().map(String::as_str).collect()
    }

    /// What stopped short of a success, one line each. Plain information is neither.
    pub(super) fn troubles(&self) -> Vec<String> {
        let all = self.0.iter().flat_map(|(name, checks)| checks.iter().map(move |c| (name, c)));
        let bad = all.filter(|(_, check)| !matches!(check.status.as_str(), "SUCCESS" | "INFO"));
        bad.map(|(name, check)| format!("{name}: {check}")).collect()
    }

    pub(super) fn successes(&self, scenario: &str) -> Vec<&str> {
        let checks = self.0.get(scenario).into_iter().flatten();
        checks.filter(|check| check.status == "SUCCESS").map(|check| check.id.as_str()).collect()
    }
}

impl std::fmt::Display for Check {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.id, self.status)?;
        for text in [&self.description, &self.error_message].into_iter().flatten() {
            write!(f, ": {text}")?;
        }
        Ok(())
    }
}
