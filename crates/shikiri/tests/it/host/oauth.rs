//! Logins at servers that ask for one, by the program as people call it. The browser is ours; its
//! person agrees to everything.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use serde_json::json;
use shikiri_testkit::{Cli, Ended, FakeLogin};
use tempfile::TempDir;

use crate::PROGRAM;

const PATIENCE: Duration = Duration::from_secs(60);

/// A project whose one server wants a login.
struct World {
    fake: FakeLogin,
    folder: TempDir,
    cli: Cli,
}

impl World {
    async fn new() -> Self {
        let fake = FakeLogin::start().await;
        let folder = TempDir::new().unwrap();
        let servers = json!({ "mcpServers": { "fake": { "url": fake.url() } } });
        fs::write(folder.path().join(".mcp.json"), servers.to_string()).unwrap();
        // Whatever anything logs is looked through for secrets.
        let cli =
            Cli::new(PROGRAM, folder.path()).env("SHIKIRI_LOG", "trace").env("SHIKIRI_TRUST", "1");
        Self { fake, folder, cli }
    }

    /// Logs in; the exit code and everything that was printed.
    async fn log_in(&self) -> (i32, String) {
        let mut login = self.cli.start(&["host", "login", "fake"]);
        let page = |line: &str| line.starts_with("http://").then(|| line.trim().to_owned());
        let Some(page) = login.find(PATIENCE, page) else {
            return (login.wait(PATIENCE), login.output());
        };
        FakeLogin::visit(&page).await;
        (login.wait(PATIENCE), login.output())
    }

    async fn logged_in(&self) {
        let (code, said) = self.log_in().await;
        assert_eq!(code, 0, "{said}");
        self.assert_secret(&said);
    }

    fn call(&self) -> Ended {
        let ended = self.cli.run(&["host", "call", "fake", "whoami"]);
        self.assert_secret(&ended.stderr);
        self.assert_secret(&ended.stdout);
        ended
    }

    #[track_caller]
    fn assert_called(&self) {
        assert_eq!(self.call().done().stdout, "hello, you\n");
    }

    /// No person sits there, so there is no wait.
    #[track_caller]
    fn assert_refused(&self, words: &str) {
        let ended = self.call();
        assert_eq!(ended.code, 3, "{ended:?}");
        let said = ended.stderr.lines().last().unwrap_or_default();
        assert!(said.contains(words), "{said}");
    }

    #[track_caller]
    fn assert_secret(&self, text: &str) {
        for secret in self.fake.book().secrets() {
            assert!(!text.contains(&secret), "{secret} is told: {text}");
        }
    }

    fn data(&self) -> std::path::PathBuf {
        self.folder.path().join(".shikiri")
    }

    fn asked(&self) -> Vec<String> {
        self.fake.book().asked.clone()
    }
}

/// Every file below, with its bytes.
fn files(folder: &Path, found: &mut Vec<(String, Vec<u8>)>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => files(&path, found),
            false => found.push((path.display().to_string(), fs::read(&path).unwrap())),
        }
    }
}

/// A key that another user put there could open what it seals.
#[tokio::test(flavor = "multi_thread")]
async fn sealing_key_that_others_can_read_or_that_is_a_link_is_refused() {
    let world = World::new().await;
    let key = world.folder.path().join(".shikiri/sealing.key");
    fs::create_dir(key.parent().unwrap()).unwrap();
    fs::write(&key, "0".repeat(64)).unwrap();
    fs::set_permissions(&key, fs::Permissions::from_mode(0o644)).unwrap();
    let (code, told) = world.log_in().await;
    assert!(code != 0 && told.contains("others may read the sealing key"), "{code}: {told}");
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
    fs::rename(&key, world.folder.path().join("elsewhere.key")).unwrap();
    std::os::unix::fs::symlink("../elsewhere.key", &key).unwrap();
    let (code, told) = world.log_in().await;
    assert!(code != 0 && told.contains("sealing.key: is a link"), "{code}: {told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn one_logs_in_once_and_every_later_command_is_known() {
    let world = World::new().await;
    world.assert_refused("fake: wants you to log in: `shikiri host login fake`");
    assert_eq!(world.asked(), Vec::<String>::new(), "no client is registered needlessly");
    world.logged_in().await;
    world.assert_called();
    world.assert_called();
    assert_eq!(world.asked(), ["register", "authorize", "authorization_code"]);
    assert_eq!(world.fake.book().faults, Vec::<String>::new());
    let out = world.cli.run(&["host", "logout", "fake"]).done();
    assert_eq!(out.stdout, "logged out of fake\n");
    world.assert_refused("`shikiri host login fake`");
    let again = world.cli.run(&["host", "logout", "fake"]).done();
    assert_eq!(again.stdout, "no login was kept for fake\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn no_secret_lies_in_the_project_in_clear() {
    let world = World::new().await;
    world.logged_in().await;
    let secrets = world.fake.book().secrets();
    assert_eq!(secrets.len(), 4, "a registration's, a code and two tokens: {secrets:?}");
    let mut found = Vec::new();
    files(world.folder.path(), &mut found);
    let kept = found.iter().any(|(_, bytes)| contains(bytes, b"host_credential"));
    assert!(kept, "the search finds what is not secret");
    for (name, bytes) in &found {
        for secret in &secrets {
            assert!(!contains(bytes, secret.as_bytes()), "{secret} lies in {name}");
        }
    }
    let key = world.data().join("sealing.key");
    assert_eq!(fs::metadata(&key).unwrap().permissions().mode() & 0o777, 0o600);
    let key = fs::read_to_string(key).unwrap();
    let elsewhere = found.iter().filter(|(name, _)| !name.ends_with("sealing.key"));
    for (name, bytes) in elsewhere {
        assert!(!contains(bytes, key.trim().as_bytes()), "the key lies in {name}");
    }
}

fn contains(bytes: &[u8], wanted: &[u8]) -> bool {
    bytes.windows(wanted.len()).any(|part| part == wanted)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_that_runs_out_or_is_revoked_is_refreshed_by_the_next_process() {
    let world = World::new().await;
    world.fake.book().lifetime = 1;
    world.logged_in().await;
    world.fake.book().lifetime = 3_600;
    world.assert_called();
    let refreshed = ["register", "authorize", "authorization_code", "refresh_token"];
    assert_eq!(world.asked(), refreshed);
    world.fake.book().revoke_access();
    world.assert_called();
    assert_eq!(world.asked().len(), refreshed.len() + 1);
    // Revoked altogether: a person is needed, and only then.
    world.fake.book().revoke_access();
    world.fake.book().revoke_refresh();
    world.assert_refused("`shikiri host login fake`");
    world.logged_in().await;
    world.assert_called();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_of_another_issuer_or_to_another_question_is_no_login() {
    for (iss, state, words) in [
        (Some("https://elsewhere.example"), None, "calls itself https://elsewhere.example"),
        (Some(""), None, "does not say that it is"),
        (None, Some("forged"), "its state is wrong"),
    ] {
        let world = World::new().await;
        world.fake.book().told_issuer = iss.map(str::to_owned);
        world.fake.book().told_state = state.map(str::to_owned);
        let (code, said) = world.log_in().await;
        assert_eq!(code, 3, "{said}");
        assert!(said.contains(words), "{said}");
        assert_eq!(world.asked(), ["register", "authorize"], "the code was sent nowhere");
        world.assert_refused("`shikiri host login fake`");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_one_issuer_gave_is_not_shown_to_another() {
    let world = World::new().await;
    world.logged_in().await;
    let other = FakeLogin::start().await;
    world.fake.book().issuer = Some(other.issuer());
    world.fake.book().revoke_access();
    world.assert_refused("`shikiri host login fake`");
    world.logged_in().await;
    let ours = world.fake.book().clients.clone();
    let theirs = other.book();
    assert_eq!(theirs.asked, ["register", "authorize", "authorization_code"]);
    assert!(!ours.is_empty() && theirs.clients.is_disjoint(&ours), "{:?}", theirs.clients);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_login_that_was_kept_with_another_key_is_explained_and_stays() {
    let world = World::new().await;
    world.logged_in().await;
    let key = world.data().join("sealing.key");
    let kept = fs::read_to_string(&key).unwrap();
    fs::write(&key, "0".repeat(64)).unwrap();
    let ended = world.call();
    assert_ne!(ended.code, 0, "{ended:?}");
    assert!(ended.stderr.contains("sealed with another key"), "{}", ended.stderr);
    fs::write(&key, "nonsense").unwrap();
    world.assert_refused("does not hold a sealing key");
    fs::remove_file(&key).unwrap();
    world.assert_refused("SHIKIRI_SEALING_KEY_FILE");
    fs::write(&key, kept).unwrap();
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
    world.assert_called();
}
