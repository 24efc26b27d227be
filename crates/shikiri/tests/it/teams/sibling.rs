//! Two sessions of one agent know nothing of each other: whatever one dies of, the other goes on.
//! And two delegations of one agent to one target stay two.

use std::collections::BTreeMap;

use futures_util::{StreamExt as _, stream};
use serde_json::{Value, json};
use shikiri_testkit::{Rng, StdioClient, Tenant, TestApp};

use super::chaos::door::{Door, Faults, Reply};
use super::chaos::player::{PASSKEY, items, text_of};
use super::chaos::state::{State, set_up};
use crate::PROGRAM;

/// Together two hundred.
const IDLE: usize = 60;
const SURPLUS: usize = 50;
const CRASHES: usize = 40;
/// Sessions of one agent and purpose that may live at once.
const MAX_SESSIONS: usize = 16;
const AT_ONCE: usize = 10;
/// More, where most of a trial is waiting.
const IDLE_AT_ONCE: usize = 16;

/// A session over HTTP.
struct Session {
    door: Door,
    token: String,
}

impl Session {
    async fn open(local: &Tenant, project: &str, agent: &str, purpose: &str) -> Self {
        let door = Door::new(&local.client, &Faults::default());
        let login = json!({
            "agent_id": agent, "passkey": PASSKEY, "project_id": project, "purpose": purpose,
        });
        match door.call("authenticate", login).await {
            Reply::Done(answer) => Self { door, token: text_of(&answer, "session_token") },
            other => panic!("{project} {agent} {purpose}: {other:?}"),
        }
    }

    async fn call(&self, tool: &str, mut arguments: Value) -> Reply {
        arguments["session_token"] = json!(self.token);
        self.door.call(tool, arguments).await
    }

    async fn done(&self, tool: &str, arguments: Value) -> Value {
        match self.call(tool, arguments).await {
            Reply::Done(answer) => answer,
            other => panic!("{tool}: {other:?}"),
        }
    }

    async fn look(&self, wait_seconds: u64) -> Value {
        self.done("get_pending_messages", json!({ "wait_seconds": wait_seconds })).await
    }

    async fn assert_lives(&self, what: &str) {
        let helped = self.call("help", json!({})).await;
        assert!(matches!(helped, Reply::Done(_)), "{what}: its sibling died too: {helped:?}");
    }

    async fn assert_over(&self, what: &str) {
        let expired = Reply::Refused("sessionExpired".to_owned());
        assert_eq!(self.call("help", json!({})).await, expired, "{what} should be over");
    }
}

async fn project(local: &Tenant, number: usize, tasks: &[&str]) -> String {
    let name = format!("p{number}");
    set_up(local, &name, tasks, (number == 0).then_some(PASSKEY)).await;
    name
}

/// Row 2.1.
#[tokio::test(flavor = "multi_thread")]
async fn a_chat_session_that_idles_away_leaves_its_task_session() {
    let app = TestApp::new(PROGRAM).env("SHIKIRI_CHAT_IDLE_SECONDS", "6").start().await;
    let local = app.local();
    // The first makes the agents.
    idle_away(&local, 0).await;
    let trials = (1..IDLE).map(|number| idle_away(&local, number));
    stream::iter(trials).buffer_unordered(IDLE_AT_ONCE).collect::<Vec<_>>().await;
}

async fn idle_away(local: &Tenant, number: usize) {
    let project = project(local, number, &["ann"]).await;
    let task = Session::open(local, &project, "ann", "task").await;
    let work = task.done("get_next_action", json!({})).await;
    assert_eq!(work["action"], "work");
    let partner = Session::open(local, &project, "ben", "chat").await;
    let chat = Session::open(local, &project, "ann", "chat").await;
    let talk = json!({ "target_agent_id": "ben", "initial_message": "りんご" });
    chat.done("start_conversation", talk).await;
    assert_eq!(items(&partner.look(10).await, "invitations").len(), 1);
    // Its dialogue ends with it, which its partner hears.
    let ended = partner.look(20).await;
    assert_eq!(ended["ended_conversations"][0]["reason"], "session_expired", "{ended}");
    chat.assert_over(&project).await;
    task.assert_lives(&project).await;
    let report = json!({ "task_id": work["task"]["id"], "status": "done" });
    task.done("report_completed", report).await;
}

/// Row 2.1.
#[tokio::test(flavor = "multi_thread")]
async fn a_session_too_many_ends_none_of_the_other_purpose() {
    let app = TestApp::new(PROGRAM).start().await;
    let local = app.local();
    for (number, (purpose, sibling)) in [("task", "chat"), ("chat", "task")].into_iter().enumerate()
    {
        let project = project(&local, number, &[]).await;
        let sibling = Session::open(&local, &project, "ann", sibling).await;
        let partner = Session::open(&local, &project, "ben", "chat").await;
        let mut sessions = Vec::new();
        for _ in 0..MAX_SESSIONS {
            sessions.push(Session::open(&local, &project, "ann", purpose).await);
        }
        if purpose == "chat" {
            let talk = json!({ "target_agent_id": "ben", "initial_message": "りんご" });
            sessions[MAX_SESSIONS - 1].done("start_conversation", talk).await;
        }
        for trial in 0..SURPLUS {
            sessions.push(Session::open(&local, &project, "ann", purpose).await);
            sessions[trial].assert_over("the oldest").await;
            sibling.assert_lives("one too many").await;
        }
        sessions[SURPLUS].assert_lives("the oldest of those that are left").await;
        // While one session is there to go on, the agent's dialogues live.
        let news = partner.look(0).await;
        assert!(items(&news, "ended_conversations").is_empty(), "{news}");
        assert_eq!(items(&news, "invitations").len(), usize::from(purpose == "chat"));
    }
}

/// Row 2.1.
#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_is_killed_leaves_the_sessions_of_the_others() {
    let mut rng = Rng::seeded("a killed process");
    let app = TestApp::new(PROGRAM).start().await;
    let local = app.local();
    for number in 0..CRASHES {
        let project = project(&local, number, &["ann"]).await;
        let (purpose, sibling) = if number % 2 == 0 { ("task", "chat") } else { ("chat", "task") };
        let over_http = Session::open(&local, &project, "ann", sibling).await;
        let (tool, pause) = (waits_with(purpose), rng.range(0, 40));
        let dies = || {
            let mut pipe = StdioClient::start(&mut app.cli().command(&["mcp"]));
            pipe.initialize(json!({}), "pipe");
            let token = log_in(&mut pipe, &project, purpose);
            let look = json!({ "session_token": token, "wait_seconds": 30 });
            pipe.request("tools/call", json!({ "name": tool, "arguments": look }));
            std::thread::sleep(std::time::Duration::from_millis(pause));
            pipe.kill9();
        };
        tokio::task::block_in_place(dies);
        over_http.assert_lives(&project).await;
        let waits = waits_with(sibling);
        over_http.done(waits, json!({ "wait_seconds": 0 })).await;
    }
}

fn waits_with(purpose: &str) -> &'static str {
    if purpose == "task" { "get_next_action" } else { "get_pending_messages" }
}

fn log_in(pipe: &mut StdioClient, project: &str, purpose: &str) -> String {
    let login = json!({
        "agent_id": "ann", "passkey": PASSKEY, "project_id": project, "purpose": purpose,
    });
    let call = json!({ "name": "authenticate", "arguments": login });
    text_of(&pipe.result("tools/call", call)["structuredContent"], "session_token")
}

/// Row 2.14.
#[tokio::test(flavor = "multi_thread")]
async fn two_delegations_at_once_to_one_target_never_mix() {
    let mut rng = Rng::seeded("two delegations");
    let app = TestApp::new(PROGRAM).start().await;
    let local = app.local();
    two_delegations(&local, 0, rng.fork()).await;
    let seeds: Vec<_> = (1..30).map(|number| (number, rng.fork())).collect();
    let trials = seeds.into_iter().map(|(number, rng)| two_delegations(&local, number, rng));
    stream::iter(trials).buffer_unordered(AT_ONCE).collect::<Vec<_>>().await;
}

async fn two_delegations(local: &Tenant, number: usize, mut rng: Rng) {
    let project = project(local, number, &["ann", "ann"]).await;
    let mut sessions = Vec::new();
    for _ in 0..2 {
        let session = Session::open(local, &project, "ann", "task").await;
        let work = session.done("get_next_action", json!({})).await;
        sessions.push((session, text_of(&work["task"], "id")));
    }
    assert_ne!(sessions[0].1, sessions[1].1, "two sessions with one task");
    let delegate = |at: usize| {
        let (session, task) = &sessions[at];
        let wanted = json!({ "target_agent_id": "ben", "purpose": task, "context": task });
        session.done("delegate_to_chat_session", wanted)
    };
    let (first, second) = tokio::join!(delegate(0), delegate(1));
    let delegations = [text_of(&first, "delegation_id"), text_of(&second, "delegation_id")];

    let mut said = talk_of_both(local, &project, &mut rng).await;
    for (at, (session, task)) in sessions.iter().enumerate() {
        let next = session.done("get_next_action", json!({ "wait_seconds": 10 })).await;
        assert_eq!(next["action"], "delegation_result", "{next}");
        assert_eq!(next["delegation_id"], delegations[at]);
        let messages = items(&next, "messages").iter();
        let contents: Vec<_> = messages.map(|message| text_of(message, "content")).collect();
        assert_eq!(Some(contents), said.remove(task), "{task}");
    }
    for found in State::read(local, &project).await.delegations {
        let at = usize::from(found.id == delegations[1]);
        assert_eq!(found.task.as_ref(), Some(&sessions[at].1));
    }
}

/// Carries out both, one after the other, in either order. Gives what was said by its purpose,
/// which is the task's id.
async fn talk_of_both(
    local: &Tenant,
    project: &str,
    rng: &mut Rng,
) -> BTreeMap<String, Vec<String>> {
    let ann = Session::open(local, project, "ann", "chat").await;
    let ben = Session::open(local, project, "ben", "chat").await;
    let mut wanted = Vec::new();
    while wanted.len() < 2 {
        wanted.extend(items(&ann.look(10).await, "pending_delegations").to_vec());
    }
    if rng.one_in(2) {
        wanted.reverse();
    }
    let mut said = BTreeMap::new();
    for delegation in wanted {
        let purpose = text_of(&delegation, "purpose");
        assert_eq!(delegation["context"], purpose.as_str());
        let (first, second) = (format!("{purpose}?"), format!("{purpose}!"));
        let talk = json!({
            "target_agent_id": "ben",
            "initial_message": first,
            "delegation_id": delegation["delegation_id"],
        });
        let started = ann.done("start_conversation", talk).await;
        let conversation = text_of(&started, "conversation_id");
        ben.look(10).await;
        let answer = json!({ "conversation_id": conversation, "content": second });
        ben.done("respond_conversation_message", answer).await;
        ann.done("end_conversation", json!({ "conversation_id": conversation })).await;
        said.insert(purpose, vec![first, second]);
    }
    said
}
