//! `shikiri browser login`: a window on a display of its own (Xvfb), a person who logs in there, and a
//! browser without a window that is logged in afterwards.

use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::json;
use shikiri_browser::{BrowserOptions, plan_browser};
use shikiri_testkit::{ChatSite, Cli, Follower, KeeperClient, Signal, skip, until};

use super::{is_used, project, run};

const PATIENCE: Duration = Duration::from_secs(60);

/// A display without a viewer; it ends when dropped.
struct Display {
    _server: Follower,
    name: String,
}

impl Display {
    /// None, loudly, where there is no Xvfb or no Chromium.
    fn start() -> Option<Self> {
        let chrome_bin = std::env::var_os("SHIKIRI_CHROME_BIN").map(Into::into);
        let options = BrowserOptions { chrome_bin, ..BrowserOptions::default() };
        if let Err(error) = plan_browser(&options) {
            skip("a test with Chromium", &error.to_string());
            return None;
        }
        let mut command = Command::new("Xvfb");
        if command.arg("-help").stdout(Stdio::null()).stderr(Stdio::null()).status().is_err() {
            skip("a login in a window", "Xvfb is not installed");
            return None;
        }
        // It takes a display that is free and says which.
        let mut command = Command::new("Xvfb");
        command.args(["-displayfd", "1", "-screen", "0", "1280x900x24", "-nolisten", "tcp"]);
        let mut server = Follower::start(&mut command);
        let number = |line: &str| line.trim().parse::<u32>().ok();
        let number = server.find(PATIENCE, number).expect("the number of a display");
        Some(Self { _server: server, name: format!(":{number}") })
    }

    fn login(&self, cli: &Cli) -> Follower {
        cli.clone().env("DISPLAY", &self.name).start(&["browser", "login", "--json"])
    }
}

/// Waits for a line that the command tells a person.
fn told(command: &mut Follower, words: &str) {
    let found = command.find(PATIENCE, |line| line.contains(words).then_some(()));
    assert!(found.is_some(), "{words:?} was not told:\n{}", command.output());
}

/// The browser of a project, as another process drives it.
fn browser(folder: &std::path::Path) -> KeeperClient {
    KeeperClient::connect(&folder.join(".shikiri/browser/local"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_person_logs_in_once_in_a_window_and_stays_logged_in_without_one() {
    let Some(display) = Display::start() else { return };
    let locked = json!({ "login": "cookie", "marked": true });
    let site =
        ChatSite::start([("open", json!({ "marked": true })), ("locked", locked.clone())]).await;
    let (folder, cli) = project(&site.providers());
    let checked = run(&cli, &["browser", "check", "--json"]);
    assert_eq!(checked.code, 1, "{checked:?}");
    assert!(checked.stderr.contains("not ready: locked"), "{}", checked.stderr);
    until("the browser has ended", async || !is_used(folder.path())).await;

    let mut login = display.login(&cli);
    tokio::task::block_in_place(|| {
        told(&mut login, "log in to each page in the window");
        told(&mut login, "open: logged in");
        told(&mut login, "locked: waits for a login");
    });
    let version = browser(folder.path()).call("Browser.getVersion", &json!({})).to_string();
    assert!(version.contains("Chrome/") && !version.contains("Headless"), "{version}");
    // The person logs in.
    let mut known = locked.clone();
    known["knows_the_person"] = json!(true);
    site.change("locked", known);
    tokio::task::block_in_place(|| told(&mut login, "locked: logged in"));
    site.change("locked", locked);
    // The pages are closed one by one, as a person does it.
    let mut window = browser(folder.path());
    let pages = window.tabs();
    let tabs: Vec<_> = pages.iter().filter(|(_, url)| url.starts_with(site.origin())).collect();
    assert_eq!(tabs.len(), 2, "{pages:?}");
    for (tab, _) in tabs {
        window.close_tab(tab);
    }
    let code = tokio::task::block_in_place(|| login.wait(PATIENCE));
    assert_eq!(code, 0, "{}", login.output());
    assert!(!login.output().contains("\"logged_in\": false"), "{}", login.output());
    until("the browser has ended", async || !is_used(folder.path())).await;

    let checked = run(&cli, &["browser", "check", "--json"]);
    assert_eq!(checked.code, 0, "logged in once is enough: {checked:?}");
    until("the browser has ended", async || !is_used(folder.path())).await;
    assert!(site.log().sends.is_empty(), "nothing is asked");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_person_who_gives_up_is_told_where_no_login_was_made() {
    let Some(display) = Display::start() else { return };
    let site = ChatSite::start([("locked", json!({ "login": "cookie" }))]).await;
    let (folder, cli) = project(&site.providers());
    let mut login = display.login(&cli);
    tokio::task::block_in_place(|| {
        told(&mut login, "locked: waits for a login");
        login.signal(Signal::INT);
        assert_eq!(login.wait(PATIENCE), 1, "{}", login.output());
        told(&mut login, "there is no login at locked");
    });
    until("the browser has ended", async || !is_used(folder.path())).await;
}
