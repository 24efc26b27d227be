//! What no client should send: refused with the contract's code, and nothing is changed by it.

use serde_json::{Value, json};
use shikiri_testkit::{McpClient, TestApp};

use super::world::{PASSKEY, Player, Project, id_of, refusal};
use crate::PROGRAM;

struct Scene {
    project: Project,
    work: Player,
    ann: Player,
    ben: Player,
    cho: Player,
    /// Of ann and ben; it is ben's turn.
    living: String,
    ended: String,
    /// Ann's: one that is open, one that is over.
    open: String,
    over: String,
    task: String,
}

async fn scene(app: &TestApp) -> Scene {
    let project = Project::start(&app.local(), "p", &["ann", "ben", "cho"]).await;
    let others = Project::start(&app.local(), "q", &["dan"]).await;
    assert_eq!(others.agent("dan"), "q-dan");
    let task = project.task("ann", "work").await;
    let work = project.login("ann", "task").await;
    work.next_action().await;
    let (ann, ben) = (project.login("ann", "chat").await, project.login("ben", "chat").await);
    let cho = project.login("cho", "chat").await;
    let delegate = async || {
        let wanted = json!({ "target_agent_id": "p-cho", "purpose": "talk" });
        id_of(&work.call("delegate_to_chat_session", wanted).await, "delegation_id")
    };
    let (open, over) = (delegate().await, delegate().await);
    let report = json!({ "delegation_id": over, "status": "failed", "result": "no" });
    ann.call("report_delegation_completed", report).await;
    let start = async || {
        let opening = json!({ "target_agent_id": "p-ben", "initial_message": "hello" });
        id_of(&ann.call("start_conversation", opening).await, "conversation_id")
    };
    let ended = start().await;
    ben.call("end_conversation", json!({ "conversation_id": ended })).await;
    let living = start().await;
    Scene { project, work, ann, ben, cho, living, ended, open, over, task }
}

/// What must be refused: by whom, what, with which arguments, and the code.
type Case<'a> = (&'a Player, &'static str, Value, &'static str);

async fn all_refused(project: &Project, cases: Vec<Case<'_>>) {
    let before = project.state().await;
    for (player, tool, arguments, code) in cases {
        let shown = arguments.to_string().chars().take(200).collect::<String>();
        assert_eq!(player.refused(tool, arguments).await, code, "{tool} {shown}");
    }
    assert_eq!(project.state().await, before, "something was changed");
}

/// Rows 2.7, 2.20: unknown and human targets, oneself, other projects.
#[tokio::test(flavor = "multi_thread")]
async fn targets_that_cannot_be_talked_to() {
    let app = TestApp::new(PROGRAM).start().await;
    let scene = scene(&app).await;
    let mut cases: Vec<Case<'_>> = Vec::new();
    for (target, code) in [
        ("p-absent", "agent_not_found"),
        ("no agent's id!", "agent_not_found"),
        ("", "agent_not_found"),
        ("p-ann", "cannot_conversation_with_self"),
        ("q-dan", "target_agent_not_in_project"),
    ] {
        let delegate = json!({ "target_agent_id": target, "purpose": "talk" });
        cases.push((&scene.work, "delegate_to_chat_session", delegate, code));
        let send = json!({ "target_agent_id": target, "content": "hello" });
        cases.push((&scene.ann, "send_message", send, code));
        let start = json!({ "target_agent_id": target, "initial_message": "hello" });
        cases.push((&scene.ann, "start_conversation", start, code));
    }
    let human = json!({ "target_agent_id": "p-hana", "initial_message": "hello" });
    let code = "cannot_start_conversation_with_human";
    cases.push((&scene.ann, "start_conversation", human, code));
    let ben = json!({ "target_agent_id": "p-ben", "initial_message": "hello" });
    cases.push((&scene.ann, "start_conversation", ben, "conversation_already_active"));
    let ann = json!({ "target_agent_id": "p-ann", "initial_message": "hello" });
    cases.push((&scene.ben, "start_conversation", ann, "conversation_already_active"));
    all_refused(&scene.project, cases).await;
    // Messages to people are allowed.
    let person = json!({ "target_agent_id": "p-hana", "content": "hello" });
    scene.ann.call("send_message", person).await;
}

/// Row 2.20: texts that are none, or too long. Characters count, not bytes.
#[tokio::test(flavor = "multi_thread")]
async fn texts_that_are_empty_or_too_long() {
    let app = TestApp::new(PROGRAM).start().await;
    let scene = scene(&app).await;
    let mut cases: Vec<Case<'_>> = Vec::new();
    for (text, code) in [
        (String::new(), "invalid_argument"),
        (" \n\t　".to_owned(), "invalid_argument"),
        ("語".repeat(4_001), "content_too_long"),
        ("x".repeat(200_000), "content_too_long"),
    ] {
        let delegate = json!({ "target_agent_id": "p-ben", "purpose": text });
        cases.push((&scene.work, "delegate_to_chat_session", delegate, code));
        let send = json!({ "target_agent_id": "p-ben", "content": text });
        cases.push((&scene.ann, "send_message", send, code));
        let start = json!({ "target_agent_id": "p-cho", "initial_message": text });
        cases.push((&scene.ann, "start_conversation", start, code));
        let say = json!({ "conversation_id": scene.living, "content": text });
        cases.push((&scene.ben, "send_conversation_message", say.clone(), code));
        cases.push((&scene.ben, "respond_conversation_message", say, code));
        cases.push((&scene.ben, "respond_chat", json!({ "content": text }), code));
    }
    all_refused(&scene.project, cases).await;
    let longest = json!({ "conversation_id": scene.living, "content": "語".repeat(4_000) });
    scene.ben.call("respond_conversation_message", longest).await;
}

/// Rows 2.15, 2.20: out of turn, in a talk that is over, of others, or that is none.
#[tokio::test(flavor = "multi_thread")]
async fn words_in_conversations_where_they_do_not_belong() {
    let app = TestApp::new(PROGRAM).start().await;
    let scene = scene(&app).await;
    let mut cases: Vec<Case<'_>> = Vec::new();
    for (player, dialogue, code) in [
        (&scene.ann, scene.living.as_str(), "not_your_turn"),
        (&scene.ann, &scene.ended, "conversation_ended"),
        (&scene.ben, &scene.ended, "conversation_ended"),
        (&scene.cho, &scene.living, "not_conversation_participant"),
        (&scene.cho, &scene.ended, "not_conversation_participant"),
        (&scene.ann, "dia_nothing", "conversation_not_found"),
        (&scene.ann, "../../etc", "conversation_not_found"),
        (&scene.ann, "", "conversation_not_found"),
    ] {
        let say = json!({ "conversation_id": dialogue, "content": "hello" });
        cases.push((player, "send_conversation_message", say.clone(), code));
        cases.push((player, "respond_conversation_message", say, code));
        let id = json!({ "conversation_id": dialogue });
        // A side may end it out of turn, and read it when it is over.
        if code != "not_your_turn" {
            cases.push((player, "end_conversation", id.clone(), code));
        }
        if !matches!(code, "not_your_turn" | "conversation_ended") {
            cases.push((player, "get_conversation_messages", id, code));
        }
    }
    all_refused(&scene.project, cases).await;
}

/// Rows 2.9, 2.10, 2.20: delegations of others, and those that are over; tasks of others.
#[tokio::test(flavor = "multi_thread")]
async fn delegations_and_tasks_of_others() {
    let app = TestApp::new(PROGRAM).start().await;
    let scene = scene(&app).await;
    let Scene { project, work, ann, ben, open, over, .. } = &scene;
    let ben_work = project.login("ben", "task").await;
    let report = |id: &str| json!({ "delegation_id": id, "status": "completed" });
    let start = |to: &str, id: &str| json!({ "target_agent_id": to, "initial_message": "hello", "delegation_id": id });
    let send = |to: &str, id: &str| json!({ "target_agent_id": to, "content": "hello", "delegation_id": id });
    let cases: Vec<Case<'_>> = vec![
        (ben, "get_delegation", json!({ "delegation_id": open }), "not_delegation_owner"),
        (ben, "report_delegation_completed", report(open), "not_delegation_owner"),
        (ben, "start_conversation", start("p-cho", open), "not_delegation_owner"),
        (ben, "send_message", send("p-cho", open), "not_delegation_owner"),
        (ann, "report_delegation_completed", report(over), "delegation_already_processed"),
        (ann, "start_conversation", start("p-cho", over), "delegation_already_processed"),
        (ann, "send_message", send("p-cho", over), "delegation_already_processed"),
        (ann, "send_message", send("p-ben", open), "invalid_argument"),
        (ann, "get_delegation", json!({ "delegation_id": "dlg_no" }), "delegation_not_found"),
        (ann, "report_delegation_completed", report("no!"), "delegation_not_found"),
        (ann, "send_message", send("p-cho", "dlg_no"), "delegation_not_found"),
        (&ben_work, "report_completed", json!({ "task_id": scene.task }), "task_not_found"),
        (work, "report_completed", json!({ "task_id": "tsk_no" }), "task_not_found"),
        (work, "report_completed", json!({ "task_id": "" }), "task_not_found"),
    ];
    all_refused(project, cases).await;
}

/// Row 2.7: arguments of another kind, missing, unknown or out of range are refusals of the tool,
/// not errors of the protocol.
#[tokio::test(flavor = "multi_thread")]
async fn arguments_that_are_none() {
    let app = TestApp::new(PROGRAM).start().await;
    let scene = scene(&app).await;
    let Scene { project, work, ann, ben, living, .. } = &scene;
    let start = |turns: Value| json!({ "target_agent_id": "p-cho", "initial_message": "hello", "max_turns": turns });
    let mut cases: Vec<(&Player, &'static str, Value)> = vec![
        (work, "delegate_to_chat_session", json!({ "target_agent_id": "p-ben" })),
        (work, "delegate_to_chat_session", json!({ "purpose": "talk" })),
        (work, "delegate_to_chat_session", json!({ "target_agent_id": 7, "purpose": "talk" })),
        (
            work,
            "delegate_to_chat_session",
            json!({ "target_agent_id": "p-ben", "purpose": "talk", "contxt": "x" }),
        ),
        (work, "report_completed", json!({})),
        (work, "report_completed", json!({ "task_id": scene.task, "status": "todo" })),
        (ann, "report_delegation_completed", json!({ "delegation_id": scene.open })),
        (
            ann,
            "report_delegation_completed",
            json!({ "delegation_id": scene.open, "status": "pending" }),
        ),
        (ben, "send_conversation_message", json!({ "conversation_id": living })),
        (ben, "send_conversation_message", json!({ "conversation_id": living, "content": ["x"] })),
        (ben, "respond_chat", json!({ "content": "to what?" })),
        (ben, "respond_chat", json!({ "message_id": "msg_no", "content": "hello" })),
        (ann, "get_conversation_messages", json!({ "conversation_id": living, "after": -1 })),
    ];
    for turns in [json!(1), json!(41), json!(0), json!(-2), json!(2.5), json!("20"), json!(1e300)] {
        cases.push((ann, "start_conversation", start(turns)));
    }
    for wait in [json!(-1), json!("10"), json!(true), json!([])] {
        cases.push((work, "get_next_action", json!({ "wait_seconds": wait })));
        cases.push((ann, "get_pending_messages", json!({ "wait_seconds": wait })));
    }
    let cases = cases
        .into_iter()
        .map(|(player, tool, arguments)| (player, tool, arguments, "invalid_argument") as Case<'_>);
    all_refused(project, cases.collect()).await;
    // The token itself, and a login.
    let mcp = &ann.mcp;
    let called = mcp.called("help", json!({ "session_token": 7 })).await;
    assert_eq!(refusal(&called), "invalid_argument");
    for spoilt in ["agent_id", "passkey", "project_id"] {
        let mut login = project.credentials("ann");
        login[spoilt] = json!(null);
        assert_eq!(refusal(&mcp.called("authenticate", login.clone()).await), "invalid_argument");
        login[spoilt] = json!(7);
        assert_eq!(refusal(&mcp.called("authenticate", login).await), "invalid_argument");
    }
    let mut login = project.credentials("ann");
    login["purpose"] = json!("fun");
    assert_eq!(refusal(&mcp.called("authenticate", login).await), "invalid_argument");
}

/// Row 2.2: who is not who it says to be is not told what was wrong, and cannot try for long.
#[tokio::test(flavor = "multi_thread")]
async fn wrong_passkeys_are_counted() {
    let app = TestApp::new(PROGRAM).start().await;
    let project = Project::start(&app.local(), "p", &["ann", "ben"]).await;
    let mcp = McpClient::connect(&app.client()).await;
    let login = async |agent: &str, passkey: &str, project: &str| {
        let login = json!({ "agent_id": agent, "passkey": passkey, "project_id": project });
        mcp.called("authenticate", login).await
    };
    let wrong = login("p-ben", "wrong", "p").await;
    assert_eq!(refusal(&wrong), "notAuthenticated");
    for other in [
        login("p-absent", PASSKEY, "p").await,
        login("no agent's id!", PASSKEY, "p").await,
        login("p-ben", "", "p").await,
    ] {
        assert_eq!(other, wrong, "a caller learns which agents there are");
    }
    assert_eq!(refusal(&login("p-ann", PASSKEY, "q").await), "project_not_found");
    assert_eq!(refusal(&login("p-ann", PASSKEY, "no project!").await), "project_not_found");
    for _ in 0..10 {
        assert_eq!(refusal(&login("p-ann", "guess", "p").await), "notAuthenticated");
    }
    let right = login("p-ann", PASSKEY, "p").await;
    assert_eq!(refusal(&right), "notAuthenticated", "even the right one has to wait now");
    assert!(right["content"][0]["text"].as_str().unwrap().contains("too many"), "{right}");
    // Others are not held up by it.
    project.login("ben", "chat").await;
}

/// Row 2.2: a client that guesses in an agent's name is told how long it is kept out; the agent is not.
#[tokio::test(flavor = "multi_thread")]
async fn guesses_in_an_agents_name_do_not_keep_it_out() {
    let app = TestApp::new(PROGRAM).start().await;
    let project = Project::start(&app.local(), "p", &["ann", "ben"]).await;
    let ben = project.login("ben", "chat").await;
    let before = project.state().await;
    let mut last = json!(null);
    for guess in 0..12 {
        // However many sessions it opens, it is the same agent.
        let session = if guess % 4 == 0 { &ben } else { &project.login("ben", "task").await };
        let guesser = McpClient::connect(&app.client().with_key(&session.token)).await;
        let mut login = project.credentials("ann");
        login["passkey"] = json!(format!("guess {guess}"));
        last = guesser.called("authenticate", login).await;
        assert_eq!(refusal(&last), "notAuthenticated", "{guess}");
    }
    let text = last["content"][0]["text"].as_str().unwrap();
    assert!(text.contains("too many wrong passkeys") && text.contains(" s,"), "{text}");
    project.login("ann", "chat").await;
    assert_eq!(project.state().await, before);
}
