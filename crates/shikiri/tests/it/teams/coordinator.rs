//! Agents that the server starts by itself: no one logs in by hand here. Their model is the offline
//! one, so each is a player, a process of its own that comes in by the MCP door.

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use shikiri_testkit::{
    Builder, Signal, Tenant, TestApp, TestDatabase, have_postgres, script, signal, until,
    until_within,
};

use crate::PROGRAM;

pub(super) const PATIENCE: Duration = Duration::from_secs(60);
pub(super) const GAME: &str = "worker-bと6往復しりとりをしてほしい";

/// A project whose agents the server starts.
pub(super) struct Office {
    pub(super) tenant: Tenant,
}

impl Office {
    pub(super) async fn open(app: &TestApp, agents: &[&str], spawn: &str) -> Self {
        let office = Self { tenant: app.local() };
        office.post("", &json!({ "id": "p", "name": "遊び" })).await;
        office.hire(agents, spawn).await;
        office
    }

    pub(super) async fn hire(&self, agents: &[&str], spawn: &str) {
        for id in agents {
            self.post("/p/agents", &json!({ "id": id, "kind": "ai", "spawn": spawn })).await;
        }
    }

    pub(super) async fn post(&self, path: &str, body: &Value) -> Value {
        let path = self.tenant.path(&format!("/projects{path}"));
        self.tenant.client.post(&path, body).await.expect(201)
    }

    pub(super) async fn list(&self, what: &str) -> Vec<Value> {
        let path = self.tenant.path(&format!("/projects/p/{what}"));
        let answer = self.tenant.client.get(&path).await;
        answer.expect(200)["items"].as_array().unwrap().clone()
    }

    pub(super) async fn assign(&self, agent: &str, title: &str) -> String {
        let task = json!({ "title": title, "description": "", "assignee": agent });
        self.post("/p/tasks", &task).await["id"].as_str().unwrap().to_owned()
    }

    /// From a person.
    async fn write_to(&self, agent: &str, content: &str) {
        let message =
            json!({ "from_agent_id": "hanako", "to_agent_id": agent, "content": content });
        self.post("/p/messages", &message).await;
    }

    pub(super) async fn task(&self, id: &str) -> Value {
        let tasks = self.list("tasks").await;
        tasks.into_iter().find(|task| task["id"] == id).unwrap()
    }

    pub(super) async fn done(&self, task: &str) -> Value {
        until("the task is done", async || self.task(task).await["status"] == "done").await;
        self.task(task).await
    }

    /// Answers to the person.
    async fn answers(&self) -> Vec<Value> {
        let mut messages = self.list("messages").await;
        messages.retain(|message| message["to_agent_id"] == "hanako");
        messages
    }

    async fn answered(&self, count: usize) {
        let what = format!("{count} answers");
        until(&what, async || self.answers().await.len() >= count).await;
    }

    /// All that was ever done for one agent and purpose, newest first.
    async fn executions(&self, agent: &str, purpose: &str) -> Vec<Value> {
        let all = self.tenant.client.get(&self.tenant.path("/conversations")).await.expect(200);
        let all = all["items"].as_array().unwrap();
        let title = format!("p · {agent} · {purpose}");
        let Some(own) = all.iter().find(|one| one["title"] == title) else { return Vec::new() };
        let path = format!("/conversations/{}/executions", own["id"].as_str().unwrap());
        let found = self.tenant.client.get(&self.tenant.path(&path)).await.expect(200);
        found["items"].as_array().unwrap().clone()
    }

    /// Twelve messages in turn, one end, and what follows from it.
    pub(super) async fn check_game(&self) {
        let dialogues = self.list("dialogues").await;
        assert_eq!(dialogues.len(), 1, "{dialogues:#?}");
        assert_eq!(
            (&dialogues[0]["state"], &dialogues[0]["messages"]),
            (&json!("ended"), &json!(12))
        );
        assert_eq!(dialogues[0]["end_reason"], "max_turns");
        let id = dialogues[0]["id"].as_str().unwrap();
        let lines = self.list(&format!("dialogues/{id}/messages")).await;
        let speakers: Vec<_> = lines.iter().map(|line| line["from_agent_id"].clone()).collect();
        let expected: Vec<_> = ["worker-a", "worker-b"].into_iter().cycle().take(12).collect();
        assert_eq!(speakers, expected);
        let delegations = self.list("delegations").await;
        assert_eq!(delegations.len(), 1, "{delegations:#?}");
        assert_eq!(delegations[0]["status"], "completed");
    }
}

/// A server with limits for a test's time. On a busy machine a server may stand still for seconds,
/// and a player needs more of them before it is heard.
pub(super) fn server() -> Builder {
    TestApp::new(PROGRAM)
        .env("SHIKIRI_NODE_LEASE_SECONDS", 5)
        .env("SHIKIRI_SPAWN_GUARD_SECONDS", 20)
        .env("SHIKIRI_LOG", "info")
}

/// One that goes on soon after an accident: how long that takes goes by the guard.
fn quick_server() -> Builder {
    server().env("SHIKIRI_SPAWN_GUARD_SECONDS", 6)
}

/// Players that a server process has started.
pub(super) fn players(server: u32) -> Vec<u32> {
    let parent = format!("PPid:\t{server}");
    let is_player = |folder: &Path| {
        let arguments = std::fs::read(folder.join("cmdline")).unwrap_or_default();
        let is_play = arguments.split(|byte| *byte == 0).nth(1) == Some(b"play");
        let status = std::fs::read_to_string(folder.join("status")).unwrap_or_default();
        is_play && status.lines().any(|line| line == parent)
    };
    let all = std::fs::read_dir("/proc").unwrap().flatten();
    all.filter(|process| is_player(&process.path()))
        .filter_map(|process| process.file_name().to_str()?.parse().ok())
        .collect()
}

/// Of all processes on this machine.
fn all_arguments() -> String {
    let all = std::fs::read_dir("/proc").unwrap().flatten();
    let arguments = all.filter_map(|process| std::fs::read(process.path().join("cmdline")).ok());
    arguments.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).collect()
}

fn count(log: &str, what: &str) -> usize {
    log.lines().filter(|line| line.contains(what)).count()
}

const STARTED: &str = "started an agent";

/// Rows 2.11 and 2.19: the delegating agent's own chat session is started for a delegation, and the
/// partner's for the invitation.
#[tokio::test(flavor = "multi_thread")]
async fn a_task_with_a_talk_is_played_to_its_end_by_agents_that_the_server_starts() {
    let mut app = server().start().await;
    let office = Office::open(&app, &["worker-a", "worker-b"], "auto").await;
    let task = office.assign("worker-a", GAME).await;
    let pid = app.server().pid();
    let mut tokens = Vec::new();
    until("three players", async || {
        let environments = players(pid)
            .into_iter()
            .filter_map(|player| std::fs::read_to_string(format!("/proc/{player}/environ")).ok());
        for environment in environments {
            let token =
                environment.split('\0').find_map(|v| v.strip_prefix("SHIKIRI_PLAYER_TOKEN="));
            tokens.extend(token.map(str::to_owned).filter(|token| !tokens.contains(token)));
        }
        tokens.len() == 3
    })
    .await;
    let arguments = all_arguments();
    assert!(!tokens.iter().any(|token| arguments.contains(token)), "a token is an argument");
    let done = office.done(&task).await;
    let result = done["result"].as_str().unwrap();
    assert!(result.contains("offline player") && result.contains("りんご → ご"), "{result}");
    office.check_game().await;
    for agent in ["worker-a", "worker-b"] {
        let chats = office.executions(agent, "chat").await;
        assert_eq!(chats.len(), 1, "{agent}: {chats:#?}");
    }
    assert_eq!(count(&app.log(), STARTED), 3, "each is started once");
    // They go when nothing is left to do, and their sessions with them.
    until("no player", async || players(pid).is_empty()).await;
    until("three ends", async || count(&app.log(), "an agent has ended") == 3).await;
    let chat = &office.executions("worker-b", "chat").await[0];
    let events =
        office.tenant.path(&format!("/executions/{}/events", chat["id"].as_str().unwrap()));
    let events = office.tenant.client.get(&events).await.text();
    assert!(events.contains("This is the offline player"), "{events}");
    until("no agent at work", async || {
        let metrics = app.client().get("/metrics").await.text();
        metrics.contains("shikiri_agents_at_work 0")
    })
    .await;
    app.terminate().await;
    let mut places =
        vec![("log".to_owned(), app.log().into_bytes()), ("events".into(), events.into())];
    for file in std::fs::read_dir(app.data_folder()).unwrap().flatten() {
        if file.path().is_file() {
            places.push((file.path().display().to_string(), std::fs::read(file.path()).unwrap()));
        }
    }
    assert!(places.iter().any(|(name, _)| name.ends_with("state.db")), "the store was looked at");
    for token in tokens {
        for (name, bytes) in &places {
            let found = bytes.windows(token.len()).any(|window| window == token.as_bytes());
            assert!(!found, "a session's token is in {name}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_is_answered_by_an_agent_that_may_be_started_and_by_no_other() {
    let mut app = server().start().await;
    let office = Office::open(&app, &["worker-a"], "auto").await;
    office.hire(&["worker-b"], "never").await;
    office.post("/p/agents", &json!({ "id": "hanako", "kind": "human" })).await;
    office.write_to("worker-b", "聞こえますか").await;
    let task = office.assign("worker-b", "片付け").await;
    office.write_to("worker-a", "聞こえますか").await;
    office.answered(1).await;
    let answers = office.answers().await;
    assert_eq!((answers.len(), &answers[0]["from_agent_id"]), (1, &json!("worker-a")));
    assert!(answers[0]["content"].as_str().unwrap().contains("聞こえますか"));
    let pid = app.server().pid();
    until("no player", async || players(pid).is_empty()).await;
    // It came first, so it would have been started first.
    assert_eq!(office.task(&task).await["status"], "todo");
    assert_eq!(count(&app.log(), STARTED), 1, "{}", app.log());
}

/// A sentence of the kind that people write, to an agent as a message and as a task.
#[tokio::test(flavor = "multi_thread")]
async fn six_rounds_are_played_because_of_one_sentence() {
    const SENTENCE: &str = "Play six rounds of shiritori with worker-b";
    for is_task in [false, true] {
        let app = server().start().await;
        let office = Office::open(&app, &["worker-a", "worker-b"], "auto").await;
        office.post("/p/agents", &json!({ "id": "hanako", "kind": "human" })).await;
        if is_task {
            let task = office.assign("worker-a", SENTENCE).await;
            office.done(&task).await;
            office.check_game().await;
            continue;
        }
        office.write_to("worker-a", SENTENCE).await;
        until("the talk has ended", async || {
            let dialogues = office.list("dialogues").await;
            dialogues.iter().any(|dialogue| dialogue["state"] == "ended")
        })
        .await;
        let dialogues = office.list("dialogues").await;
        assert_eq!(dialogues.len(), 1, "{dialogues:#?}");
        assert_eq!(
            (&dialogues[0]["end_reason"], &dialogues[0]["messages"]),
            (&json!("max_turns"), &json!(12))
        );
        office.answered(1).await;
        let answer = office.answers().await[0]["content"].as_str().unwrap().to_owned();
        assert!(answer.contains(dialogues[0]["id"].as_str().unwrap()), "{answer}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn players_that_are_killed_are_started_again_and_the_task_ends() {
    let mut app = quick_server().start().await;
    let office = Office::open(&app, &["worker-a", "worker-b"], "auto").await;
    let task = office.assign("worker-a", GAME).await;
    let pid = app.server().pid();
    // The first ones to come: the task's own and then those that talk.
    let mut killed = Vec::new();
    until("three kills", async || {
        for player in players(pid) {
            if killed.len() < 3 && !killed.contains(&player) {
                signal(player, Signal::KILL);
                killed.push(player);
            }
        }
        killed.len() == 3
    })
    .await;
    office.done(&task).await;
    let log = app.log();
    assert!(count(&log, STARTED) >= 4, "{log}");
    assert!(log.contains("it is started again"), "{log}");
    // The talk went on where it was, and nothing was asked for twice.
    office.check_game().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_killed_takes_its_players_with_it_and_the_next_goes_on() {
    let mut app = quick_server().start().await;
    let mut office = Office::open(&app, &["worker-a", "worker-b"], "auto").await;
    let task = office.assign("worker-a", GAME).await;
    let pid = app.server().pid();
    until("a player", async || !players(pid).is_empty()).await;
    let orphans = players(pid);
    app.kill9();
    let is_there = |player: &u32| {
        let arguments = std::fs::read(format!("/proc/{player}/cmdline")).unwrap_or_default();
        arguments.split(|byte| *byte == 0).nth(1) == Some(b"play")
    };
    until("no player is left", async || !orphans.iter().any(is_there)).await;
    app.restart().await;
    office.tenant = app.local();
    office.done(&task).await;
    office.check_game().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_more_agents_work_at_once_than_may() {
    let mut app = server().env("SHIKIRI_MAX_SPAWNS", 2).start().await;
    let agents = ["w1", "w2", "w3", "w4", "w5"];
    let office = Office::open(&app, &agents, "auto").await;
    office.post("/p/agents", &json!({ "id": "hanako", "kind": "human" })).await;
    for agent in agents {
        office.write_to(agent, "聞こえますか").await;
    }
    let pid = app.server().pid();
    let mut most = 0;
    until("five answers", async || {
        most = most.max(players(pid).len());
        office.answers().await.len() == 5
    })
    .await;
    assert_eq!(most, 2);
}

/// A program that says it is Claude Code, and then nothing more.
fn mute_cli(folder: &Path) -> std::path::PathBuf {
    let program = folder.join("claude");
    let text = "#!/bin/sh\ncase \"$1\" in --version) echo '2.1.325 (Claude Code)';; *) exec sleep 600;; esac\n";
    script(&program, text);
    program
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_does_nothing_is_given_up_when_the_guard_is_over_and_not_before() {
    let folder = tempfile::tempdir().unwrap();
    let program = mute_cli(folder.path());
    let guard = 4;
    let app = server()
        .env("SHIKIRI_SPAWN_GUARD_SECONDS", guard)
        .env("SHIKIRI_CLAUDE_BIN", program.display())
        .start()
        .await;
    let model = json!({ "id": "mute", "engine": "claude-code", "model_name": "m" });
    app.client().post("/v1/models", &model).await.expect(201);
    let office = Office::open(&app, &[], "auto").await;
    let agent = json!({ "id": "worker-a", "kind": "ai", "spawn": "auto", "model_id": "mute" });
    office.post("/p/agents", &agent).await;
    let since = std::time::Instant::now();
    office.assign("worker-a", "片付け").await;
    until("a start", async || count(&app.log(), STARTED) >= 1).await;
    // More work for the same agent is no reason to start it twice.
    office.assign("worker-a", "掃除").await;
    let given_up = "gave an agent up";
    until("it is given up", async || {
        let log = app.log();
        assert!(count(&log, STARTED) == 1 || log.contains(given_up), "{log}");
        log.contains(given_up)
    })
    .await;
    assert!(since.elapsed() >= Duration::from_secs(guard), "after {:?}", since.elapsed());
    until("another start", async || count(&app.log(), STARTED) >= 2).await;
    let runs = office.executions("worker-a", "task").await;
    assert!(runs.len() >= 2, "{runs:#?}");
    assert_eq!(runs.last().unwrap()["status"], "cancelled", "{runs:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_nodes_one_leads_and_when_it_dies_the_other_does() {
    if !have_postgres("two coordinators") {
        return;
    }
    let database = TestDatabase::create().await;
    let mut first = quick_server().store(database.url()).start().await;
    let leading = "leading: starting agents";
    until("the first leads", async || first.log().contains(leading)).await;
    let lease = Duration::from_secs(20);
    let mut second = quick_server()
        .env("SHIKIRI_NODE_LEASE_SECONDS", lease.as_secs())
        .store(database.url())
        .start()
        .await;
    let mut office = Office::open(&first, &["worker-a", "worker-b"], "auto").await;
    let quick = office.assign("worker-a", "片付け").await;
    office.done(&quick).await;
    assert!(!second.log().contains(leading), "{}", second.log());
    assert_eq!(count(&second.log(), STARTED), 0);

    let task = office.assign("worker-a", GAME).await;
    let pid = first.server().pid();
    until("players of the first", async || !players(pid).is_empty()).await;
    first.kill9();
    office.tenant = second.local();
    until("the second leads", async || second.log().contains(leading)).await;
    office.done(&task).await;
    office.check_game().await;

    // One that is asked to end gives the lead up at once: its lease would last for longer.
    first.restart().await;
    second.terminate().await;
    until_within(lease * 3 / 5, "the first leads again", async || {
        count(&first.log(), leading) >= 2
    })
    .await;
}
