//! The official clients against the real server. Each is made to do the same things by a script in
//! `tests/peers/clients`, which tells what the client saw; that is judged here, check by check, so
//! that a failure names client, era and check.

mod cutter;
mod judge;
mod quirks;
mod report;

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};
use shikiri_testkit::{Follower, TestApp, peer};

use self::cutter::Cutter;
use self::judge::Judge;
use self::quirks::Quirks;
use self::report::Report;
use super::served::Served;
use crate::PROGRAM;

/// Nothing that a script waits for takes longer, on a busy machine either.
const PATIENCE: Duration = Duration::from_secs(120);
/// After so long a server that is in a hurry answers with the run.
const HASTE: Duration = Duration::from_millis(300);

const SCRIPTS: [(&str, &str); 6] = [
    ("checks.py", include_str!("../../../peers/clients/checks.py")),
    ("checks.mjs", include_str!("../../../peers/clients/checks.mjs")),
    ("python_new.py", include_str!("../../../peers/clients/python_new.py")),
    ("python_old.py", include_str!("../../../peers/clients/python_old.py")),
    ("ts_new.mjs", include_str!("../../../peers/clients/ts_new.mjs")),
    ("ts_old.mjs", include_str!("../../../peers/clients/ts_old.mjs")),
];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Era {
    Legacy,
    Modern,
}

impl Era {
    fn name(self) -> &'static str {
        match self {
            Self::Legacy => "legacy",
            Self::Modern => "modern",
        }
    }
}

/// A client, and the peers that its script needs: what runs it, and where its packages are.
struct Official {
    name: &'static str,
    script: &'static str,
    runner: &'static str,
    packages: Option<&'static str>,
    quirks: Quirks,
}

const PYTHON_NEW: Official = Official {
    name: "Python mcp",
    script: "python_new.py",
    runner: "SHIKIRI_PEER_PYTHON",
    packages: None,
    quirks: Quirks::PYTHON_NEW,
};
const PYTHON_OLD: Official = Official {
    name: "Python mcp",
    script: "python_old.py",
    runner: "SHIKIRI_PEER_PYTHON_OLD",
    packages: None,
    quirks: Quirks::PYTHON_OLD,
};
const TS_NEW: Official = Official {
    name: "TypeScript client",
    script: "ts_new.mjs",
    runner: "SHIKIRI_PEER_NODE",
    packages: Some("SHIKIRI_PEER_TS"),
    quirks: Quirks::TS_NEW,
};
const TS_OLD: Official = Official {
    name: "TypeScript sdk",
    script: "ts_old.mjs",
    runner: "SHIKIRI_PEER_NODE",
    packages: Some("SHIKIRI_PEER_TS"),
    quirks: Quirks::TS_OLD,
};

#[tokio::test(flavor = "multi_thread")]
async fn python_new_speaks_the_modern_era_over_http() {
    PYTHON_NEW.over_http(Era::Modern).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn python_new_speaks_the_legacy_era_over_http() {
    PYTHON_NEW.over_http(Era::Legacy).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn python_old_speaks_the_legacy_era_over_http() {
    PYTHON_OLD.over_http(Era::Legacy).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn typescript_new_speaks_the_modern_era_over_http() {
    TS_NEW.over_http(Era::Modern).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn typescript_new_speaks_the_legacy_era_over_http() {
    TS_NEW.over_http(Era::Legacy).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn typescript_old_speaks_the_legacy_era_over_http() {
    TS_OLD.over_http(Era::Legacy).await;
}

#[test]
fn python_new_speaks_both_eras_over_stdio() {
    PYTHON_NEW.over_stdio(Era::Modern);
    PYTHON_NEW.over_stdio(Era::Legacy);
}

#[test]
fn python_old_speaks_the_legacy_era_over_stdio() {
    PYTHON_OLD.over_stdio(Era::Legacy);
}

#[test]
fn typescript_new_speaks_both_eras_over_stdio() {
    TS_NEW.over_stdio(Era::Modern);
    TS_NEW.over_stdio(Era::Legacy);
}

#[test]
fn typescript_old_speaks_the_legacy_era_over_stdio() {
    TS_OLD.over_stdio(Era::Legacy);
}

impl Official {
    async fn over_http(&self, era: Era) {
        let folder = tempfile::tempdir().unwrap();
        let Some(mut command) = self.command(folder.path()) else { return };
        let app = TestApp::new(PROGRAM).env("SHIKIRI_DURABILITY", "normal").start().await;
        let hasty = Served::with_patience(shikiri_agents::samples(), HASTE).await;
        // By name: on a busy machine there are heartbeats in between.
        let once = Cutter::start(app.port(), &[(b"step 3 done", 1)]).await;
        let twice = Cutter::start(app.port(), &[(b"step 3 done", 1), (b"step 4 done", 1)]).await;
        // In the older era the first change is told because a subscription is new.
        let change = if era == Era::Legacy { 2 } else { 1 };
        let changes = Cutter::start(app.port(), &[(b"resources/updated", change)]).await;
        let place = json!({
            "era": era.name(),
            "url": format!("http://127.0.0.1:{}/mcp", app.port()),
            "key": app.admin_key(),
            "hasty_url": format!("{}/mcp", hasty.client().base()),
            "hasty_key": hasty.client().key(),
            "cut_once_url": once.url(),
            "cut_twice_url": twice.url(),
            "cut_changes_url": changes.url(),
        });
        let mut report = tokio::task::block_in_place(|| self.run(&mut command, era, &place));
        let mut judge = Judge { report: &mut report, era, quirks: &self.quirks };
        judge.http(&app.local()).await;
        report.is_so("resume", "the stream was cut", once.is_done());
        report.is_so("subscription_resume", "the stream was cut", changes.is_done());
        if era == Era::Legacy {
            report.is_so("resume_twice", "the stream was cut twice", twice.is_done());
        }
        report.finish();
    }

    fn over_stdio(&self, era: Era) {
        let folder = tempfile::tempdir().unwrap();
        let Some(mut command) = self.command(folder.path()) else { return };
        let place = json!({ "era": era.name(), "program": PROGRAM, "folder": folder.path() });
        let mut report = self.run(&mut command, era, &place);
        Judge { report: &mut report, era, quirks: &self.quirks }.stdio();
        report.finish();
    }

    /// The script in a folder of its own; None if its peers are not there.
    fn command(&self, folder: &Path) -> Option<Command> {
        let runner = peer(self.runner)?;
        for (name, text) in SCRIPTS {
            std::fs::write(folder.join(name), text).unwrap();
        }
        if let Some(packages) = self.packages {
            let packages = peer(packages)?.join("node_modules");
            std::os::unix::fs::symlink(packages, folder.join("node_modules")).unwrap();
        }
        let mut command = Command::new(runner);
        command.arg(folder.join(self.script)).current_dir(folder).env_clear();
        command.env("PATH", std::env::var_os("PATH").unwrap_or_default()).env("HOME", folder);
        Some(command)
    }

    fn run(&self, command: &mut Command, era: Era, place: &Value) -> Report {
        let mut script = Follower::start(command.arg(place.to_string()));
        let code = script.wait(PATIENCE);
        let who = format!("{} {}, {} era", self.name, self.quirks.version, era.name());
        Report::read(who, code, &script.output())
    }
}
