//! Every tool by every kind of caller: allowed or refused as the contract declares, and whatever is
//! refused changes nothing.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use shikiri_testkit::{Client, McpClient, ModernClient, Signal, TestApp, signal, until};

use super::coordinator::players;
use super::world::{Player, Project, answer, id_of, refusal};
use crate::PROGRAM;

/// What a tool asks of its caller, as the contract says.
const DECLARED: [(&str, &str); 15] = [
    ("authenticate", "no session"),
    ("help", "authenticated"),
    ("get_next_action", "taskOnly"),
    ("report_completed", "taskOnly"),
    ("delegate_to_chat_session", "taskOnly"),
    ("get_delegation", "authenticated"),
    ("get_conversation_messages", "authenticated"),
    ("get_pending_messages", "chatOnly"),
    ("respond_chat", "chatOnly"),
    ("send_message", "chatOnly"),
    ("start_conversation", "chatOnly"),
    ("send_conversation_message", "chatOnly"),
    ("respond_conversation_message", "chatOnly"),
    ("end_conversation", "chatOnly"),
    ("report_delegation_completed", "chatOnly"),
];

/// A project in which every tool has something to do.
struct Scene {
    project: Project,
    other_project: Project,
    task: String,
    delegation: String,
    dialogue: String,
    message: String,
    ann_task: Player,
    ann_chat: Player,
}

async fn scene(app: &TestApp) -> Scene {
    let project = Project::start(&app.local(), "p", &["ann", "ben", "cho"]).await;
    let other_project = Project::start(&app.local(), "q", &["dan"]).await;
    let task = project.task("ann", "work").await;
    let message = id_of(&project.write("hana", "ann", "hello").await, "id");
    let (ann_task, ann_chat) =
        (project.login("ann", "task").await, project.login("ann", "chat").await);
    ann_task.next_action().await;
    let ben = project.agent("ben");
    let wanted = json!({ "target_agent_id": ben, "purpose": "talk" });
    let made = ann_task.call("delegate_to_chat_session", wanted).await;
    let opening = json!({ "target_agent_id": ben, "initial_message": "hello" });
    let started = ann_chat.call("start_conversation", opening).await;
    let (delegation, dialogue) =
        (id_of(&made, "delegation_id"), id_of(&started, "conversation_id"));
    Scene { project, other_project, task, delegation, dialogue, message, ann_task, ann_chat }
}

impl Scene {
    /// Good arguments for ann.
    fn arguments(&self, tool: &str) -> Value {
        let target = self.project.agent("cho");
        match tool {
            "authenticate" => self.project.credentials("ann"),
            "report_completed" => json!({ "task_id": self.task }),
            "delegate_to_chat_session" => json!({ "target_agent_id": target, "purpose": "talk" }),
            "get_delegation" => json!({ "delegation_id": self.delegation }),
            "report_delegation_completed" => {
                json!({ "delegation_id": self.delegation, "status": "completed" })
            }
            "respond_chat" => json!({ "message_id": self.message, "content": "hello" }),
            "send_message" => json!({ "target_agent_id": target, "content": "hello" }),
            "start_conversation" => {
                json!({ "target_agent_id": target, "initial_message": "hello" })
            }
            "send_conversation_message" | "respond_conversation_message" => {
                json!({ "conversation_id": self.dialogue, "content": "hello" })
            }
            "end_conversation" | "get_conversation_messages" => {
                json!({ "conversation_id": self.dialogue })
            }
            _ => json!({}),
        }
    }

    async fn state(&self) -> Value {
        json!([self.project.state().await, self.other_project.state().await])
    }

    /// Calls every tool that may not be called, with good arguments.
    async fn refused_as(&self, who: &str, mcp: &McpClient, token: Option<&str>, refused: Refused) {
        let before = self.state().await;
        for (tool, need) in DECLARED {
            let Some(code) = refused(need) else { continue };
            let mut arguments = self.arguments(tool);
            if let Some(token) = token {
                arguments["session_token"] = json!(token);
            }
            let result = mcp.called(tool, arguments).await;
            assert_eq!(refusal(&result), code, "{tool} by {who}");
        }
        assert_eq!(self.state().await, before, "what {who} was refused changed something");
    }
}

/// The code with which a caller is refused what a tool needs; None if it is not.
type Refused = fn(&str) -> Option<&'static str>;

fn no_session(need: &str) -> Option<&'static str> {
    (need != "no session").then_some("notAuthenticated")
}

fn expired(need: &str) -> Option<&'static str> {
    (need != "no session").then_some("sessionExpired")
}

fn task(need: &str) -> Option<&'static str> {
    (need == "chatOnly").then_some("chatSessionRequired")
}

fn chat(need: &str) -> Option<&'static str> {
    (need == "taskOnly").then_some("taskSessionRequired")
}

/// A session of ann that has ended: opened by a server whose sessions are short.
async fn ended_session(app: &TestApp, project: &Project) -> String {
    let hurried = TestApp::new(PROGRAM).root(app.root()).env("SHIKIRI_SESSION_SECONDS", "0.3");
    let hurried = hurried.start().await;
    let short = project.login_through(&hurried.client(), "ann", Some("chat")).await;
    let over = McpClient::connect(&project.tenant.client).await;
    until("the session has ended", async || {
        let called = over.called("help", json!({ "session_token": short.token })).await;
        called["isError"] == true
    })
    .await;
    short.token
}

/// The sessions that the coordinator opened for an agent: for its task and for its talk. There is no
/// other caller that is the coordinator: it comes in by no door, and its agents have the same kind
/// of sessions as those that log in. Their processes are stopped, so that nothing else happens.
async fn opened_sessions(app: &mut TestApp, project: &Project) -> [(String, u32); 2] {
    project.add_started("eve").await;
    let (eve, ben) = (project.agent("eve"), project.agent("ben"));
    project.task("eve", &format!("{ben}と6往復しりとりをしてほしい")).await;
    // Ben never answers: the task waits for the talk, and the talk for ben.
    until("a talk", async || {
        project.list("dialogues").await.iter().any(|one| one["initiator_agent_id"] == *eve)
    })
    .await;
    let mut sessions = [(String::new(), 0), (String::new(), 0)];
    let mcp = McpClient::connect(&project.tenant.client).await;
    for player in players(app.server().pid()) {
        signal(player, Signal::STOP);
        let environment = std::fs::read_to_string(format!("/proc/{player}/environ")).unwrap();
        let mut variables = environment.split('\0');
        let token = variables.find_map(|one| one.strip_prefix("SHIKIRI_PLAYER_TOKEN=")).unwrap();
        let help = answer(&mcp.called("help", json!({ "session_token": token })).await);
        sessions[usize::from(help["purpose"] == "chat")] = (token.to_owned(), player);
    }
    assert!(sessions.iter().all(|(_, player)| *player != 0), "{sessions:?}");
    sessions
}

/// Rows 2.3, 2.4, 2.5, 2.6, 2.20: what each kind of caller is refused, and that it changes nothing;
/// then what it is allowed.
#[tokio::test(flavor = "multi_thread")]
async fn every_tool_by_every_kind_of_caller() {
    let mut app = TestApp::new(PROGRAM).start().await;
    let scene = scene(&app).await;
    let opened = opened_sessions(&mut app, &scene.project).await;
    let [(opened_task, _), (opened_chat, _)] = &opened;
    let key = McpClient::connect(&app.client()).await;
    let foreign_tenant = app.tenant("other").await;
    let foreign = Project::start(&foreign_tenant, "p", &["ann"]).await;
    let foreign_task = foreign.login("ann", "task").await;
    let foreign_chat = foreign.login("ann", "chat").await;
    let (of_task, of_chat) = (&scene.ann_task.token, &scene.ann_chat.token);
    let ended = ended_session(&app, &scene.project).await;
    let person = scene.project.login("hana", "chat").await;
    let person_task = scene.project.login("hana", "task").await;
    let wrong = format!("{}0", of_chat);
    for (who, token, refused) in [
        ("a key alone", None, no_session as Refused),
        ("a made-up token", Some("sst_local.00"), no_session),
        ("no token at all", Some("hello"), no_session),
        ("an empty token", Some(""), no_session),
        ("a token that was changed", Some(wrong.as_str()), no_session),
        ("an ended session", Some(ended.as_str()), expired),
        ("a task session", Some(of_task.as_str()), task),
        ("a chat session", Some(of_chat.as_str()), chat),
        ("a task session of the coordinator", Some(opened_task.as_str()), task),
        ("a chat session of the coordinator", Some(opened_chat.as_str()), chat),
        ("a person's chat session", Some(person.token.as_str()), chat),
        ("a person's task session", Some(person_task.token.as_str()), task),
        ("a task session of another tenant", Some(foreign_task.token.as_str()), no_session),
        ("a chat session of another tenant", Some(foreign_chat.token.as_str()), no_session),
    ] {
        scene.refused_as(who, &key, token, refused).await;
    }
    // The other tenant's own door does not let ours in either.
    let their_door = McpClient::connect(&foreign_tenant.client).await;
    scene
        .refused_as("ours at the other tenant's door", &their_door, Some(of_chat), no_session)
        .await;
    // Sessions in the header.
    for (who, token, refused) in [
        ("a task session in the header", of_task, task as Refused),
        ("a chat session in the header", of_chat, chat),
        ("a task session of the coordinator in the header", opened_task, task),
        ("a chat session of the coordinator in the header", opened_chat, chat),
    ] {
        let mcp = McpClient::connect(&app.client().with_key(token)).await;
        scene.refused_as(who, &mcp, None, refused).await;
        scene.refused_as(who, &mcp, Some(&foreign_chat.token), no_session).await;
    }
    // An argument wins over the header.
    let mcp = McpClient::connect(&app.client().with_key(of_chat)).await;
    scene.refused_as("a task session besides a chat session", &mcp, Some(of_task), task).await;
    everything_else_is_allowed(&scene).await;
    what_it_lists_is_what_it_may(&app, &opened).await;
    for (_, player) in opened {
        signal(player, Signal::KILL);
    }
}

/// A session that the coordinator opened is offered what its purpose allows, and nothing else.
async fn what_it_lists_is_what_it_may(app: &TestApp, opened: &[(String, u32); 2]) {
    for ((token, _), refused) in opened.iter().zip([task as Refused, chat]) {
        let mcp = McpClient::connect(&app.client().with_key(token)).await;
        let listed = mcp.result("tools/list", json!({})).await;
        let listed = listed["tools"].as_array().unwrap().iter().map(|tool| id_of(tool, "name"));
        let allowed = DECLARED.iter().filter(|(_, need)| refused(need).is_none());
        let allowed: BTreeSet<_> = allowed.map(|(tool, _)| (*tool).to_owned()).collect();
        assert_eq!(listed.collect::<BTreeSet<_>>(), allowed);
    }
}

/// Row 2.20: what a session may use, it can use.
async fn everything_else_is_allowed(scene: &Scene) {
    let state = scene.state().await;
    let schemas = schemas(&scene.project.tenant.client).await;
    for (tool, need) in DECLARED {
        let player = if need == "chatOnly" { &scene.ann_chat } else { &scene.ann_task };
        let arguments = scene.arguments(tool);
        // Ann has spoken; that it is not her turn is no matter of permission.
        if matches!(tool, "send_conversation_message" | "respond_conversation_message") {
            assert_eq!(player.refused(tool, arguments).await, "not_your_turn", "{tool}");
            continue;
        }
        let answer = player.call(tool, arguments).await;
        let schema = jsonschema::validator_for(&schemas[tool]).unwrap();
        let faults: Vec<_> = schema.iter_errors(&answer).map(|fault| fault.to_string()).collect();
        assert!(faults.is_empty(), "{tool}: {answer}: {faults:?}");
    }
    assert_ne!(scene.state().await, state);
}

/// What each tool says about its answers.
async fn schemas(client: &Client) -> BTreeMap<String, Value> {
    let listed = McpClient::connect(client).await.result("tools/list", json!({})).await;
    let tools = listed["tools"].as_array().unwrap().iter();
    tools.map(|tool| (id_of(tool, "name"), tool["outputSchema"].clone())).collect()
}

/// Row 2.20: a session of one project finds nothing of another.
#[tokio::test(flavor = "multi_thread")]
async fn a_session_of_another_project_finds_nothing_here() {
    let app = TestApp::new(PROGRAM).start().await;
    let scene = scene(&app).await;
    let dan_task = scene.other_project.login("dan", "task").await;
    let dan_chat = scene.other_project.login("dan", "chat").await;
    let before = scene.state().await;
    for (tool, need) in DECLARED {
        let player = if need == "chatOnly" { &dan_chat } else { &dan_task };
        let called = player.called(tool, scene.arguments(tool)).await;
        match tool {
            "get_next_action" => assert_eq!(answer(&called)["action"], "none"),
            "get_pending_messages" => {
                let nothing = json!({
                    "pending_messages": [], "pending_delegations": [],
                    "invitations": [], "ended_conversations": [],
                });
                assert_eq!(answer(&called), nothing);
            }
            "help" | "authenticate" => drop(answer(&called)),
            _ => assert_eq!(refusal(&called), not_here(tool), "{tool}"),
        }
    }
    assert_eq!(scene.state().await, before);
}

fn not_here(tool: &str) -> &'static str {
    match tool {
        "report_completed" => "task_not_found",
        "get_delegation" | "report_delegation_completed" => "delegation_not_found",
        "delegate_to_chat_session" | "send_message" | "start_conversation" => {
            "target_agent_not_in_project"
        }
        "respond_chat" => "invalid_argument",
        _ => "conversation_not_found",
    }
}

/// Rows 2.5, 2.20: a session in the header opens team tools and nothing else of the tenant's.
#[tokio::test(flavor = "multi_thread")]
async fn a_session_opens_nothing_but_team_tools() {
    let app = TestApp::new(PROGRAM).start().await;
    let scene = scene(&app).await;
    let run = app.start_run("long_running_agent", json!({ "steps": 1, "step_ms": 1 })).await;
    let client = app.client().with_key(&scene.ann_chat.token);
    let mcp = McpClient::connect(&client).await;
    let all = McpClient::connect(&app.client()).await.result("tools/list", json!({})).await;
    let tools = all["tools"].as_array().unwrap().iter().map(|tool| id_of(tool, "name"));
    let others: Vec<_> =
        tools.filter(|tool| !DECLARED.iter().any(|(declared, _)| declared == tool)).collect();
    assert!(others.len() > 7, "{others:?}");
    for tool in others {
        let called = mcp.called(&tool, json!({ "run_id": run })).await;
        assert_eq!(refusal(&called), "tool_not_allowed", "{tool}");
    }
    for uri in [format!("shikiri://runs/{run}"), format!("shikiri://runs/{run}/events")] {
        let params = json!({ "uri": uri });
        mcp.request("resources/read", params.clone()).await.error(-32002).await;
        mcp.request("resources/subscribe", params).await.error(-32002).await;
    }
    assert_eq!(mcp.result("resources/list", json!({})).await["resources"], json!([]));
    assert_eq!(mcp.result("prompts/list", json!({})).await["prompts"], json!([]));
    mcp.request("prompts/get", json!({ "name": "travel_agent" })).await.error(-32602).await;
    let modern = ModernClient::new(&client).with_tasks();
    modern.request("tasks/get", json!({ "taskId": run })).await.error(-32602).await;
    for path in ["/v1/tenants/local/runs", "/v1/tenants/local/projects/p/tasks", "/v1/models"] {
        client.get(path).await.problem(401);
    }
}

/// Row 2.5: an ended session, an unknown one and a broken one do not come in at all.
#[tokio::test(flavor = "multi_thread")]
async fn the_door_is_closed_to_sessions_that_are_none() {
    let app = TestApp::new(PROGRAM).start().await;
    let project = Project::start(&app.local(), "p", &["ann"]).await;
    let ended = ended_session(&app, &project).await;
    for token in [&ended, "sst_local.00", "sst_", "sst_absent.00", "sst_../../x.1"] {
        let client = app.client().with_key(token);
        let opened = McpClient::initialize(&client, &shikiri_testkit::Hello::default()).await;
        assert_eq!(opened.status, 401, "{token}");
    }
    let keyless = McpClient::initialize(&app.client().without_key(), &Default::default()).await;
    assert_eq!(keyless.status, 401);
}
