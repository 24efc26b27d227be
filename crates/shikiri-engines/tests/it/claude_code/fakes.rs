//! CLIs that behave badly: small scripts in the place of the real one.

use std::cell::OnceCell;
use std::time::Instant;

use shikiri_testkit::{Follower, Signal, role, script, spawn_role, until};

use super::*;

/// A program that says it is Claude Code, and otherwise does what the script says.
struct Fake {
    place: TempDir,
    engine: ClaudeCodeEngine,
}

impl Fake {
    fn new(script: &str) -> Self {
        Self::of_version("2.1.325 (Claude Code)", script)
    }

    fn of_version(version: &str, rest: &str) -> Self {
        let place = TempDir::new().unwrap();
        let program = place.path().join("claude");
        let text = format!(
            "#!/bin/sh\nif [ \"$1\" = --version ]; then echo '{version}'; exit; fi\n{rest}\n"
        );
        script(&program, &text);
        Self { engine: claude_code(&program), place }
    }

    fn order(&self) -> TurnRequest {
        let path = std::env::var("PATH").unwrap();
        let env = [("PATH", path.as_str()), ("X_API_KEY", "canary-99")];
        TurnRequest {
            folder: self.place.path().join("work"),
            home: self.place.path().join("home"),
            secrets: vec!["token-4711".to_owned()],
            ..order("go", Model::offline(), env)
        }
    }

    async fn run(&self) -> Outcome {
        let ended = run(&self.engine, self.order(), |_| false).await;
        self.until_gone().await;
        ended
    }

    /// The words with which a run failed.
    async fn failure(&self) -> String {
        self.run().await.outcome.unwrap_err().0
    }

    async fn until_gone(&self) {
        until_gone(&self.order().home).await;
    }
}

#[tokio::test]
async fn rubbish_is_an_error_that_shows_it() {
    let long = "x".repeat(300);
    let ended = Fake::new(&format!("echo 'canary-99 {long}'; echo more")).failure().await;
    let shown = "x".repeat(200 - "canary-99 ".len());
    assert_eq!(ended, format!("Claude Code wrote what is no message: [REDACTED] {shown}"));
    // One that does not end by itself is not waited for.
    let begun = Instant::now();
    let ended = Fake::new("while :; do echo rubbish; done").failure().await;
    assert_eq!(ended, "Claude Code wrote what is no message: rubbish");
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn a_little_rubbish_between_messages_is_passed_over() {
    let result = r#"{"type":"result","is_error":false,"result":"fine","num_turns":1}"#;
    let fake = Fake::new(&format!("echo warning: old kernel; echo; echo '{result}'; sleep 600"));
    assert_eq!(fake.run().await.result(), "fine");
}

#[tokio::test]
async fn a_line_without_end_is_not_read_on() {
    let ended = Fake::new("head -c 17825792 /dev/zero | tr '\\0' x; sleep 600").failure().await;
    assert!(ended.contains("more than 16 MiB") && ended.contains("\"xxxx"), "{ended}");
}

#[tokio::test]
async fn a_flood_of_events_stops_at_its_source_without_a_listener() {
    let fake = Fake::new(
        "n=0; while :; do n=$((n+1)); echo '{\"type\":\"system\",\"subtype\":\"odd\"}'; \
         echo $n > ../home/count; done",
    );
    let count = fake.order().home.join("count");
    let (told, mut heard) = EngineSender::channel();
    let running = fake.engine.run(fake.order(), told, CancellationToken::new());
    let mut last = (String::new(), Instant::now());
    let stands_still = async || {
        let now = std::fs::read_to_string(&count).unwrap_or_default();
        if now.is_empty() || now != last.0 {
            last = (now, Instant::now());
        }
        // Before the channel is full it may stand still for want of a core.
        let written = last.0.trim().parse().unwrap_or(0);
        written >= 256 && last.1.elapsed() > Duration::from_secs(1)
    };
    tokio::select! {
        ended = running => panic!("{ended:?}"),
        () = until("it stands still", stands_still) => {}
    }
    // What the pipe, the reader and the channel hold, and not a line more.
    let written: usize = last.0.trim().parse().unwrap();
    assert!(written < 10_000, "{written}");
    assert!(matches!(heard.recv().await, Some(EngineMessage::Note { .. })));
    fake.until_gone().await;
}

#[tokio::test]
async fn one_that_hears_nothing_is_killed_with_its_children() {
    let fake = Fake::new(
        "trap '' TERM INT HUP; (setsid sleep 600 &) ; echo '{\"type\":\"system\"}'; \
         while :; do sleep 600; done",
    );
    // Two seconds for a result and one more to end; after five it would be given up. A busy
    // machine may need longer, but not each time.
    let mut times = Vec::new();
    while times.last().is_none_or(|took| *took >= Duration::from_secs(5)) {
        assert!(times.len() < 3, "{times:?}");
        let stopped = OnceCell::new();
        let at_once = |_: &EngineMessage| {
            stopped.get_or_init(Instant::now);
            true
        };
        let ended = run(&fake.engine, fake.order(), at_once).await;
        let took = stopped.get().unwrap().elapsed();
        assert!(took > Duration::from_secs(3), "{took:?}");
        times.push(took);
        assert_eq!(ended.outcome, Ok(()));
        fake.until_gone().await;
    }
}

#[tokio::test]
async fn one_that_gives_up_is_quoted_without_secrets() {
    let script = "head -c 9000 /dev/zero | tr '\\0' y >&2; \
                  echo 'bad canary-99 or key-token-4711' >&2; exit 3";
    let ended = Fake::new(script).failure().await;
    let start = "Claude Code ended with exit code 3 without a result: yyy";
    assert!(
        ended.starts_with(start) && ended.ends_with("bad [REDACTED] or key-[REDACTED]"),
        "{ended}"
    );
    assert!(ended.len() < 4_300, "only the end is kept: {}", ended.len());
    let ended = Fake::new("kill -9 $$").failure().await;
    assert_eq!(ended, "Claude Code ended with exit code 137 without a result: it does not say why");
    let refusal = r#"{"type":"control_response","response":{"subtype":"error","request_id":"initialize","error":"no such option"}}"#;
    let ended = Fake::new(&format!("echo '{refusal}'; sleep 600")).failure().await;
    assert_eq!(ended, "Claude Code refused to start: no such option");
}

#[tokio::test]
async fn a_program_that_will_not_do_is_told_before_anything_starts() {
    let model = Model::offline();
    let missing = claude_code(Path::new("/no/such/claude"))
        .check(&model, &std::collections::BTreeMap::new())
        .await
        .unwrap_err()
        .0;
    let start = "Claude Code cannot be started from /no/such/claude: ";
    assert!(missing.starts_with(start) && missing.contains("SHIKIRI_CLAUDE_BIN"), "{missing}");
    let old = Fake::of_version("2.0.14 (Claude Code)", "touch ../started");
    let place = old.place.path().join("claude").display().to_string();
    let expected = format!("Claude Code at {place} is too old: 2.0.14, needed is 2.1.197 or newer");
    assert_eq!(
        old.engine.check(&model, &std::collections::BTreeMap::new()).await.unwrap_err().0,
        expected
    );
    assert_eq!(old.failure().await, expected);
    assert!(!old.place.path().join("started").exists());
    let other = Fake::of_version("GNU coreutils 9.4", "")
        .engine
        .check(&model, &std::collections::BTreeMap::new())
        .await
        .unwrap_err()
        .0;
    assert!(other.ends_with("is no Claude Code: its version is \"GNU coreutils 9.4\""), "{other}");
    assert_eq!(
        Fake::new("").engine.check(&model, &std::collections::BTreeMap::new()).await,
        Ok(())
    );
}

/// In the role of a server: runs this CLI until it is killed.
async fn be_a_server() {
    let place = PathBuf::from(std::env::var_os("TEST_PLACE").unwrap());
    let mut order = Fake::new("").order();
    (order.folder, order.home) = (place.join("work"), place.join("home"));
    let (told, _heard) = EngineSender::channel();
    let _ = claude_code(&place.join("claude")).run(order, told, CancellationToken::new()).await;
}

/// A server that is started again may go on with the conversation at once.
#[tokio::test]
async fn once_its_server_is_killed_a_cli_writes_no_more() {
    if role().is_some() {
        return be_a_server().await;
    }
    let fake = Fake::new("trap '' TERM INT HUP; while :; do echo on >> lines; sleep 0.02; done");
    let lines = fake.order().folder.join("lines");
    let this = "claude_code::fakes::once_its_server_is_killed_a_cli_writes_no_more";
    let mut server =
        Follower::start(spawn_role(this, "server").env("TEST_PLACE", fake.place.path()));
    until("it writes", async || lines.exists()).await;
    server.signal(Signal::KILL);
    server.wait(PATIENCE);
    let count = || std::fs::read_to_string(&lines).unwrap().lines().count();
    let before = count();
    fake.until_gone().await;
    // There are about thirty a second, and two seconds would be far too long.
    let later = count() - before;
    assert!(later < 15, "{later} lines");
}
