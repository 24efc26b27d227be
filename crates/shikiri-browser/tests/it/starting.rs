//! Browsers that are not to be had, and ones that are found instead of started.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::json;
use shikiri_browser::{BrowserBridge, BrowserOptions, BrowserPlan, PageCheckState, plan_browser};
use shikiri_lanes::{AskErrorCause, PageDriver as _, SendStatus};
use shikiri_model::ids::TenantId;
use shikiri_testkit::{ChatSite, Cleanup, Signal, script, unprivileged, until};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use crate::world::{Watcher, World, have_chromium, keepers, lane, options, question, then};

async fn why_not(options: BrowserOptions) -> String {
    let asked = BrowserBridge::new(options)
        .ask(&question("a-1", "chatgpt", "?"), &Watcher::default())
        .await;
    let refused = asked.unwrap_err();
    assert_eq!(refused.sent, SendStatus::No);
    match refused.cause {
        AskErrorCause::BrowserUnavailable(why) => why,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn without_a_chrome_it_is_told_how_to_get_one() {
    let folder = tempfile::tempdir().unwrap();
    let named = |path: &str| BrowserOptions {
        chrome_bin: Some(PathBuf::from(path)),
        ..options(folder.path())
    };
    let why = why_not(named("/no/such/chrome")).await;
    assert!(why.starts_with("SHIKIRI_CHROME_BIN: /no/such/chrome is no program"), "{why}");
    let why = why_not(named("/bin/false")).await;
    assert!(why.starts_with("/bin/false ended at once; see "), "{why}");

    let broken = folder.path().join("chrome");
    script(&broken, "#!/bin/sh\necho 'libnss3.so: cannot open' >&2\nexit 127\n");
    let why = why_not(named(broken.to_str().unwrap())).await;
    assert!(why.contains("libnss3.so: cannot open"), "its last words are told: {why}");
}

#[tokio::test]
async fn an_address_where_no_browser_listens_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let at = |url: String| BrowserOptions { url: Some(url), ..options(folder.path()) };
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let why = why_not(at(format!("http://{}", silent.local_addr().unwrap()))).await;
    assert!(why.starts_with("nothing answers at http://127.0.0.1:"), "{why}");

    // A port that another program has taken.
    let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = taken.local_addr().unwrap();
    let other = tokio::spawn(async move {
        let (mut caller, _) = taken.accept().await.unwrap();
        let mut request = [0; 1024];
        let _ = caller.read(&mut request).await.unwrap();
        caller.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi").await.unwrap();
    });
    let why = why_not(at(format!("http://{address}"))).await;
    other.await.unwrap();
    assert!(
        why.starts_with(&format!("no browser to drive at http://{address}/: it is no b")),
        "{why}"
    );

    let free = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let why = why_not(at(format!("http://{free}"))).await;
    assert!(why.contains("refused"), "{why}");
    let why = why_not(at("http://192.0.2.7:9222".to_owned())).await;
    assert!(why.contains("is not on this machine"), "{why}");
}

/// The profile is for its owner only; another user's is not used.
#[tokio::test(flavor = "multi_thread")]
async fn a_profile_that_cannot_be_used_is_told() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("browser"), "in the way").unwrap();
    let why =
        why_not(BrowserOptions { chrome_bin: Some("/bin/true".into()), ..options(folder.path()) })
            .await;
    assert!(why.contains("browser/local/profile cannot be used"), "{why}");

    // As root, a folder can be given to another user.
    if rustix::process::geteuid().is_root() {
        let folder = tempfile::tempdir().unwrap();
        let profile = folder.path().join("browser/local/profile");
        std::fs::create_dir_all(&profile).unwrap();
        std::os::unix::fs::chown(&profile, Some(65_534), None).unwrap();
        let why = why_not(options(folder.path())).await;
        assert!(why.contains("belongs to another user (id 65534)"), "{why}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_profile_that_another_chrome_has_open_is_told() {
    let Some(world) = World::start(&[("plain", json!({ "marked": true }))]).await else { return };
    world.ask(&question("a-1", "plain", "Begin")).await.unwrap();
    let profile = world.folder.path().join("browser/local/profile");
    let mode = profile.metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700, "only its owner can read it");
    world.describe(|_| String::new());
    // As if it were a Chrome that cannot be driven.
    std::fs::remove_file(world.folder.path().join("browser/local/devtools.sock")).unwrap();
    let why = why_not(options(world.folder.path())).await;
    assert!(why.contains("is open in another Chrome (process "), "{why}");
    // Its present users go on.
    world.describe(|text| text);
    assert!(world.ask(&question("a-1", "plain", "Still here")).await.is_ok());
}

/// A Chrome that another program started, with a port. It ends when dropped.
struct OtherChrome {
    _end: Cleanup<Box<dyn FnMut()>>,
    home: tempfile::TempDir,
}

impl OtherChrome {
    async fn start(user: Option<(u32, u32)>) -> Self {
        let home = tempfile::tempdir().unwrap();
        let chromium = match plan_browser(&options(home.path())).unwrap() {
            BrowserPlan::Start { program, .. } => program,
            other => panic!("{other:?}"),
        };
        let mut command = Command::new(chromium);
        command
            .args(["--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-port=0"])
            .arg(format!("--user-data-dir={}", home.path().display()))
            .env("HOME", home.path())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0);
        if let Some((uid, gid)) = user {
            std::os::unix::fs::chown(home.path(), Some(uid), Some(gid)).unwrap();
            command.uid(uid).gid(gid);
        }
        let mut chrome = command.spawn().unwrap();
        let pid = chrome.id();
        let end: Box<dyn FnMut()> = Box::new(move || {
            let group = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw).unwrap();
            let _ = rustix::process::kill_process_group(group, Signal::KILL);
            let _ = chrome.wait();
        });
        let started = Self { home, _end: Cleanup::new(end) };
        let listens = async || started.port().is_some();
        until("it listens", listens).await;
        started
    }

    fn port(&self) -> Option<u16> {
        let told = std::fs::read_to_string(self.home.path().join("DevToolsActivePort")).ok()?;
        told.lines().next()?.parse().ok()
    }

    fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port().unwrap())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_running_browser_is_attached_to_and_left_running() {
    if !have_chromium() {
        return;
    }
    let other = OtherChrome::start(None).await;
    let folder = tempfile::tempdir().unwrap();
    let site = ChatSite::start([("plain", json!({ "marked": true }))]).await;
    std::fs::write(folder.path().join("providers.toml"), site.providers()).unwrap();
    let attached = || {
        BrowserBridge::new(BrowserOptions {
            url: Some(other.url()),
            chrome_bin: Some("/no/such/chrome".into()),
            ..options(folder.path())
        })
    };
    let bridge = attached();
    let first = question("b-2", "plain", "Attached");
    let asked = bridge.ask(&first, &Watcher::default()).await.unwrap();
    assert_eq!(asked.answer, ChatSite::answer_to("Attached"));
    // A tab that is closed is noticed here too.
    let tabs = BTreeMap::from([("x".to_owned(), asked.tab.clone().unwrap())]);
    bridge.close(&lane("absent"), &tabs).await;
    let again = bridge.ask(&then(&first, &asked, "Again"), &Watcher::default()).await.unwrap();
    assert_eq!((again.answer, again.url), (ChatSite::answer_to("Again"), asked.url));
    // What a person is logged in to there is not for other tenants.
    let mut stranger = question("b-2", "plain", "And me?");
    stranger.lane.tenant = "acme".parse::<TenantId>().unwrap();
    let refused = bridge.ask(&stranger, &Watcher::default()).await.unwrap_err();
    assert!(
        matches!(&refused.cause, AskErrorCause::BrowserUnavailable(why) if why.contains("CHROME_BIN"))
    );
    drop(bridge);
    let anew = attached().ask(&question("c-3", "plain", "Still here"), &Watcher::default()).await;
    assert_eq!(anew.unwrap().answer, ChatSite::answer_to("Still here"));
}

/// Only root can be two users at once.
#[tokio::test(flavor = "multi_thread")]
async fn the_browser_of_another_user_is_not_driven() {
    let (Some((uid, gid)), true) = (unprivileged(), have_chromium()) else { return };
    let theirs = OtherChrome::start(Some((uid, gid))).await;
    let folder = tempfile::tempdir().unwrap();
    let named = BrowserOptions { url: Some(theirs.url()), ..options(folder.path()) };
    let why = why_not(named.clone()).await;
    assert!(why.contains(&format!("belongs to another user (id {uid})")), "{why}");
    let site = ChatSite::start([("plain", json!({ "marked": true }))]).await;
    std::fs::write(folder.path().join("providers.toml"), site.providers()).unwrap();
    let allowed = BrowserBridge::new(BrowserOptions { allow_remote: true, ..named });
    let asked = allowed.ask(&question("a-1", "plain", "May I?"), &Watcher::default()).await;
    assert_eq!(asked.unwrap().answer, ChatSite::answer_to("May I?"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_check_tells_what_was_found_at_each_provider() {
    let rooms = [
        ("plain", json!({ "marked": true, "input_delay_ms": 200 })),
        ("strange", json!({ "strange": true })),
        ("wall", json!({ "login": "wall" })),
    ];
    let Some(world) = World::start(&rooms).await else { return };
    // Only what never comes is given up soon.
    let strange = "[strange.seconds]\ninput = ";
    world.describe(|text| text.replace(&format!("{strange}20"), &format!("{strange}2")));
    let found = world.bridge.check(&TenantId::local()).await.unwrap();
    let states: Vec<_> = found.iter().map(|c| (c.provider.as_str(), c.state)).collect();
    let expected = [
        ("chatgpt", PageCheckState::Disabled),
        ("gemini", PageCheckState::Disabled),
        ("plain", PageCheckState::Ready),
        ("strange", PageCheckState::PageChanged),
        ("wall", PageCheckState::LoginRequired),
    ];
    assert_eq!(states, expected);
    let input = &found[2].selectors["input"][0];
    assert_eq!((input.selector.as_str(), input.visible), ("#ask", 1));
    assert!(found[3].text.contains("correct `selectors.input` in "), "{}", found[3].text);
    assert!(found[4].text.contains("shikiri browser login"), "{}", found[4].text);
    assert!(world.site.log().sends.is_empty(), "nothing is asked");
}

/// Only one of many that start at once starts a browser.
#[tokio::test(flavor = "multi_thread")]
async fn many_that_start_at_once_share_one_browser() {
    let Some(world) = World::start(&[("plain", json!({ "marked": true }))]).await else { return };
    let folder = world.folder.path().to_owned();
    let asking: Vec<_> = (0..4)
        .map(|n| {
            let bridge = BrowserBridge::new(options(&folder));
            tokio::spawn(async move {
                let asked = question(&format!("a-{n}"), "plain", &format!("number {n}"));
                let asked = bridge.ask(&asked, &Watcher::default()).await.unwrap();
                (bridge, asked.answer)
            })
        })
        .collect();
    let mut bridges = Vec::new();
    for (n, asked) in asking.into_iter().enumerate() {
        let (bridge, answer) = asked.await.unwrap();
        assert_eq!(answer, ChatSite::answer_to(&format!("number {n}")));
        bridges.push(bridge);
    }
    assert_eq!(keepers(&folder).len(), 1);
}
