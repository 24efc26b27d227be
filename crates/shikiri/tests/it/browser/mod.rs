//! `shikiri browser` as a person meets it, with a real Chromium and chat pages of our own.

mod api_page;
mod login;
mod watched_page;

use std::path::Path;

use serde_json::{Value, json};
use shikiri_testkit::{ChatSite, Cli, Ended, skip, until};
use tempfile::TempDir;

use crate::PROGRAM;

/// A project that knows the site's rooms.
fn project(providers: &str) -> (TempDir, Cli) {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join(".shikiri")).unwrap();
    std::fs::write(folder.path().join(".shikiri/providers.toml"), providers).unwrap();
    let mut cli = Cli::new(PROGRAM, folder.path()).env("SHIKIRI_TRUST", "1");
    if let Some(named) = std::env::var_os("SHIKIRI_CHROME_BIN") {
        cli = cli.env("SHIKIRI_CHROME_BIN", named);
    }
    (folder, cli)
}

fn run(cli: &Cli, words: &[&str]) -> Ended {
    tokio::task::block_in_place(|| cli.run(words))
}

fn is_used(folder: &Path) -> bool {
    let folder = folder.to_str().unwrap();
    std::fs::read_dir("/proc").unwrap().flatten().any(|entry| {
        let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).contains(folder)
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_check_tells_what_was_found_and_leaves_no_browser() {
    let rooms = [("plain", json!({ "marked": true })), ("wall", json!({ "login": "wall" }))];
    let site = ChatSite::start(rooms).await;
    let (folder, cli) = project(&site.providers());
    let checked = run(&cli, &["browser", "check", "--json"]);
    if checked.code == 5 && checked.stderr.contains("no Chrome or Chromium was found") {
        return skip("a test with Chromium", &checked.stderr);
    }
    assert_eq!(checked.code, 1, "{checked:?}");
    assert!(checked.stderr.contains("not ready: wall"), "{}", checked.stderr);
    let found: Value = serde_json::from_str(&checked.stdout).unwrap();
    let states: Vec<_> = found["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| (item["provider"].as_str().unwrap(), item["state"].as_str().unwrap()))
        .collect();
    let expected = [
        ("chatgpt", "disabled"),
        ("gemini", "disabled"),
        ("plain", "ready"),
        ("wall", "login_required"),
    ];
    assert_eq!(states, expected);
    until("the browser has ended", async || !is_used(folder.path())).await;

    let told = run(&cli, &["browser", "check"]);
    assert!(told.stdout.contains("plain: ready: the input box is there"), "{}", told.stdout);
    assert!(told.stdout.contains("input: #ask (1 visible)"), "{}", told.stdout);
    let doctor = run(&cli, &["doctor"]);
    assert!(doctor.stdout.contains("without a window"), "{}", doctor.stdout);
    let as_root = doctor.stdout.contains("as root it runs without its sandbox");
    assert_eq!(as_root, shikiri_testkit::unprivileged().is_some(), "{}", doctor.stdout);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_keeps_a_browser_from_being_used_is_one_line() {
    let (folder, cli) = project("");
    let line = |ended: &Ended| {
        assert_eq!(ended.stderr.trim_end().lines().count(), 1, "{ended:?}");
        ended.stderr.clone()
    };
    let login = run(&cli, &["browser", "login"]);
    assert_eq!(login.code, 5, "{login:?}");
    assert!(line(&login).contains("no display"), "{login:?}");
    for (url, why) in [
        ("http://192.0.2.7:9222", "is not on this machine"),
        ("nonsense", "is no address"),
        ("http://127.0.0.1:1", "no browser to drive at"),
    ] {
        let refused = run(&cli, &["browser", "check", "--browser-url", url]);
        assert_eq!(refused.code, 5, "{refused:?}");
        assert!(line(&refused).contains(why), "{refused:?}");
    }
    let none = cli.clone().env("SHIKIRI_CHROME_BIN", "/no/such/chrome");
    let refused = run(&none, &["browser", "check"]);
    assert_eq!(refused.code, 5, "{refused:?}");
    assert!(line(&refused).contains("SHIKIRI_CHROME_BIN: /no/such/chrome"), "{refused:?}");

    std::fs::write(folder.path().join(".shikiri/providers.toml"), "[chatgpt]\nnmae = 1").unwrap();
    let refused = run(&cli, &["browser", "check"]);
    assert_eq!(refused.code, 2, "{refused:?}");
    let told = line(&refused);
    assert!(told.contains("providers.toml: line 2: unknown field `nmae`"), "{told}");
}
