//! Teams as a person sees and steers them: projects, agents, tasks, messages, dialogues.

mod bounds;
mod changes;

use std::time::Duration;

use axum::http::StatusCode;
use serde_json::{Value, json};
use shikiri_model::key::SecretToken;
use shikiri_model::team::{SessionPurpose, SessionRequirement, ToolPermission};
use shikiri_teams::{AgentLoginRequest, AgentSessionHandle, NewDialogue, NextAction, TeamError};

use crate::world::{Answer, World};

const HELP: ToolPermission = ToolPermission { tool: "help", requires: SessionRequirement::Session };

const P: &str = "/v1/tenants/a/projects/p";

struct Team {
    world: World,
    key: String,
}

impl Team {
    /// Two agents and a person in project `p` of tenant `a`.
    async fn new() -> Self {
        let world = World::new().await;
        let key = world.tenant("a").await;
        let team = Self { world, key };
        team.post("/v1/tenants/a/projects", json!({ "id": "p" })).await;
        for (id, kind) in [("mia", "ai"), ("ben", "ai"), ("ann", "human")] {
            let agent = json!({ "id": id, "kind": kind, "passkey": format!("pass-{id}") });
            let made = team.post(&format!("{P}/agents"), agent).await;
            assert_eq!(made.status, StatusCode::CREATED, "{}", made.text);
        }
        team
    }

    async fn post(&self, path: &str, body: Value) -> Answer {
        self.world.call(&self.key, "POST", path, Some(body)).await
    }

    async fn get(&self, path: &str) -> Answer {
        self.world.call(&self.key, "GET", path, None).await
    }

    async fn patch(&self, path: &str, body: Value) -> Answer {
        self.world.call(&self.key, "PATCH", path, Some(body)).await
    }

    async fn task(&self, assignee: &str) -> String {
        let body = json!({ "title": "しりとり", "assignee": assignee });
        let made = self.post(&format!("{P}/tasks"), body).await;
        assert_eq!(made.status, StatusCode::CREATED, "{}", made.text);
        made.json()["id"].as_str().unwrap().to_owned()
    }

    async fn login(&self, agent: &str, purpose: SessionPurpose) -> Result<SecretToken, TeamError> {
        let login = AgentLoginRequest {
            agent_id: agent.to_owned(),
            passkey: SecretToken::from_caller(&format!("pass-{agent}")),
            project_id: "p".to_owned(),
            purpose: Some(purpose),
            by: "key".to_owned(),
        };
        let (_, token) = self.world.app.teams.authenticate(&"a".parse().unwrap(), login).await?;
        Ok(token)
    }

    async fn desk(&self, agent: &str, purpose: SessionPurpose) -> AgentSessionHandle {
        let token = self.login(agent, purpose).await.unwrap();
        self.world.app.teams.enter_session(&token, HELP).await.unwrap()
    }

    /// Mia's words to Ben.
    async fn dialogue(&self, mia: &AgentSessionHandle) -> String {
        let talk = NewDialogue {
            target: "ben".to_owned(),
            initial_message: "りんご".to_owned(),
            ..NewDialogue::default()
        };
        mia.start_conversation(&talk).await.unwrap().conversation_id.to_string()
    }
}

fn names(value: &Value) -> Vec<&str> {
    let mut names: Vec<_> = value.as_object().unwrap().keys().map(String::as_str).collect();
    names.sort_unstable();
    names
}

fn ids(page: &Value) -> Vec<&str> {
    page["items"].as_array().unwrap().iter().map(|item| item["id"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn projects_and_agents_are_made_and_never_show_a_passkey() {
    let team = Team::new().await;
    let made = team.post("/v1/tenants/a/projects", json!({ "name": "Second" })).await;
    assert_eq!(made.status, StatusCode::CREATED);
    assert_eq!(names(&made.json()), ["created_at", "id", "name", "updated_at"]);
    let id = made.json()["id"].as_str().unwrap().to_owned();
    assert!(id.starts_with("prj_") && made.headers["location"].to_str().unwrap().ends_with(&id));
    let listed = team.get("/v1/tenants/a/projects").await.json();
    assert_eq!(ids(&listed), ["p", id.as_str()]);
    assert_eq!(team.get(P).await.json()["name"], "p");
    let again = team.post("/v1/tenants/a/projects", json!({ "id": "p" })).await;
    assert_eq!(again.problem(), (409, "CONFLICT".to_owned()));

    let listed = team.get(&format!("{P}/agents")).await;
    let page = listed.json();
    assert_eq!(ids(&page), ["mia", "ben", "ann"]);
    let mut mia = page["items"][0].clone();
    for time in ["created_at", "updated_at"] {
        assert!(mia[time].take().is_string());
    }
    let expected = json!({
        "id": "mia", "agent_id": "mia", "name": "mia", "kind": "ai", "rank": "worker",
        "role": null, "has_passkey": true, "model_id": null, "spawn": "never",
        "created_at": null, "updated_at": null,
    });
    assert_eq!(mia, expected);
    assert!(!listed.text.contains("pass-") && !listed.text.contains("\"passkey"));

    // The same agent joins another project; only with its own passkey, if one is given.
    let agents = format!("/v1/tenants/a/projects/{id}/agents");
    let wrong = team.post(&agents, json!({ "id": "mia", "passkey": "wrong" })).await;
    assert_eq!(wrong.problem(), (409, "CONFLICT".to_owned()));
    let joined = team.post(&agents, json!({ "id": "mia", "passkey": "pass-mia" })).await;
    assert_eq!(joined.status, StatusCode::CREATED);
    assert_eq!(ids(&team.get(&agents).await.json()), ["mia"]);
}

#[tokio::test]
async fn a_task_follows_its_assignee_and_leaves_the_list_when_it_is_done() {
    let team = Team::new().await;
    let id = team.task("mia").await;
    let path = format!("{P}/tasks/{id}");
    let shown = team.get(&path).await.json();
    let fields = [
        "assignee",
        "created_at",
        "description",
        "id",
        "parent_id",
        "priority",
        "project_id",
        "result",
        "status",
        "task_id",
        "title",
        "updated_at",
    ];
    assert_eq!(names(&shown), fields);
    assert_eq!((&shown["status"], &shown["task_id"]), (&json!("todo"), &json!(id)));

    let now = Duration::ZERO;
    let mut mia = team.desk("mia", SessionPurpose::Task).await;
    assert!(matches!(mia.next_action(now).await.unwrap(), NextAction::Work(_)));
    assert_eq!(team.get(&path).await.json()["status"], "in_progress");

    // Handed over: it starts anew with Ben, and Mia has nothing left.
    let moved = team.patch(&path, json!({ "assignee": "ben", "priority": 7 })).await.json();
    assert_eq!(
        (&moved["status"], &moved["assignee"], &moved["priority"]),
        (&json!("todo"), &json!("ben"), &json!(7))
    );
    assert!(matches!(mia.next_action(now).await.unwrap(), NextAction::None));
    let mut ben = team.desk("ben", SessionPurpose::Task).await;
    assert!(matches!(ben.next_action(now).await.unwrap(), NextAction::Work(_)));

    // Blocked by a person: gone from the list; set back to todo, it is there again.
    team.patch(&path, json!({ "status": "blocked" })).await;
    assert!(matches!(ben.next_action(now).await.unwrap(), NextAction::None));
    let waiting = ben.next_action(Duration::from_secs(20));
    let (woken, _) = tokio::join!(waiting, team.patch(&path, json!({ "status": "todo" })));
    assert!(
        matches!(woken.unwrap(), NextAction::Work(_)),
        "a change wakes a session that waits for work"
    );
    let done = team.patch(&path, json!({ "status": "done", "title": "終わり" })).await.json();
    assert_eq!((&done["status"], &done["title"]), (&json!("done"), &json!("終わり")));
    assert!(matches!(ben.next_action(now).await.unwrap(), NextAction::None));

    let open = team.task("ben").await;
    let listed = team.get(&format!("{P}/tasks?status=todo")).await.json();
    assert_eq!(ids(&listed), [open.as_str()]);
    assert_eq!(ids(&team.get(&format!("{P}/tasks")).await.json()).len(), 2);
    let unassigned = team.patch(&format!("{P}/tasks/{open}"), json!({ "assignee": null })).await;
    assert_eq!(unassigned.json()["assignee"], Value::Null);
    assert!(matches!(ben.next_action(now).await.unwrap(), NextAction::None));
}

#[tokio::test]
async fn a_person_writes_to_an_agent_and_sees_whether_it_was_read() {
    let team = Team::new().await;
    let messages = format!("{P}/messages");
    let body = json!({ "from_agent_id": "ann", "to_agent_id": "mia", "content": "こんにちは" });
    let sent = team.post(&messages, body).await;
    assert_eq!(sent.status, StatusCode::CREATED);
    let sent = sent.json();
    let fields = [
        "content",
        "created_at",
        "delegation_id",
        "from_agent_id",
        "id",
        "in_reply_to",
        "message_id",
        "read",
        "read_at",
        "to_agent_id",
    ];
    assert_eq!(names(&sent), fields);
    assert_eq!((&sent["read"], &sent["read_at"]), (&json!(false), &Value::Null));
    let mut mia = team.desk("mia", SessionPurpose::Chat).await;
    let pending = mia.pending(Duration::ZERO).await.unwrap();
    assert_eq!(pending.pending_messages.len(), 1);
    mia.respond_chat(None, "はい").await.unwrap();

    let body = json!({ "from_agent_id": "ann", "to_agent_id": "ben", "content": "and you?" });
    team.post(&messages, body).await;
    let of_mia = team.get(&format!("{messages}?agent_id=mia")).await.json();
    let items = of_mia["items"].as_array().unwrap();
    assert_eq!(items.len(), 2);
    assert_eq!((&items[0]["id"], &items[0]["read"]), (&sent["id"], &json!(true)));
    assert_eq!(items[1]["in_reply_to"], sent["id"]);
    assert_eq!(ids(&team.get(&messages).await.json()).len(), 3);

    // Page by page it is the same.
    let (mut seen, mut path) = (Vec::new(), format!("{messages}?agent_id=ann&limit=1"));
    loop {
        let page = team.get(&path).await.json();
        seen.extend(ids(&page).into_iter().map(str::to_owned));
        let Some(cursor) = page["next_cursor"].as_str() else { break };
        path = format!("{messages}?agent_id=ann&limit=1&cursor={cursor}");
    }
    let whole = team.get(&format!("{messages}?agent_id=ann")).await.json();
    assert_eq!(seen, ids(&whole));
    assert_eq!(seen.len(), 3);
}

#[tokio::test]
async fn delegations_and_dialogues_are_seen_and_a_dialogue_is_cancelled_once() {
    let team = Team::new().await;
    team.task("mia").await;
    let mut worker = team.desk("mia", SessionPurpose::Task).await;
    worker.next_action(Duration::ZERO).await.unwrap();
    let asked = worker.delegate("ben", "しりとり", Some("6 rounds".to_owned())).await.unwrap();
    let talker = team.desk("mia", SessionPurpose::Chat).await;
    let talk = NewDialogue {
        target: "ben".to_owned(),
        initial_message: "りんご".to_owned(),
        max_turns: Some(12),
        delegation: Some(asked.id.to_string()),
        ..NewDialogue::default()
    };
    let id = talker.start_conversation(&talk).await.unwrap().conversation_id.to_string();

    let path = format!("{P}/dialogues/{id}");
    let shown = team.get(&path).await.json();
    let fields = [
        "conversation_id",
        "created_at",
        "delegation_id",
        "end_reason",
        "ended_at",
        "id",
        "initiator_agent_id",
        "max_turns",
        "messages",
        "participant_agent_id",
        "project_id",
        "purpose",
        "state",
        "turn_agent_id",
        "turns_left",
    ];
    assert_eq!(names(&shown), fields);
    assert_eq!(
        (&shown["state"], &shown["turn_agent_id"], &shown["turns_left"], &shown["delegation_id"]),
        (&json!("pending"), &json!("ben"), &json!(11), &json!(asked.id))
    );
    assert_eq!(ids(&team.get(&format!("{P}/dialogues?state=pending")).await.json()), [id.as_str()]);
    let said = team.get(&format!("{path}/messages")).await.json();
    assert_eq!(said["items"][0]["content"], "りんご");
    assert_eq!(said["items"][0]["from_agent_id"], "mia");

    let cancelled = team.post(&format!("{path}/cancel"), json!({})).await.json();
    assert_eq!(
        (&cancelled["state"], &cancelled["end_reason"], &cancelled["turn_agent_id"]),
        (&json!("ended"), &json!("cancelled"), &Value::Null)
    );
    assert!(cancelled["ended_at"].is_string());
    let again = team.post(&format!("{path}/cancel"), json!({})).await;
    assert_eq!(again.problem(), (409, "CONFLICT".to_owned()));
    // Both sides are told, and the delegation has its outcome.
    for agent in ["mia", "ben"] {
        let mut desk = team.desk(agent, SessionPurpose::Chat).await;
        let told = desk.pending(Duration::ZERO).await.unwrap().ended_conversations;
        assert_eq!(told.len(), 1, "{agent}");
    }
    let done = team.get(&format!("{P}/delegations/{}", asked.id)).await.json();
    let fields = [
        "agent_id",
        "attempts",
        "context",
        "conversation_id",
        "created_at",
        "delegation_id",
        "id",
        "processed_at",
        "project_id",
        "purpose",
        "result",
        "status",
        "target_agent_id",
        "task_id",
    ];
    assert_eq!(names(&done), fields);
    assert_eq!(
        (&done["status"], &done["result"]["end_reason"], &done["conversation_id"]),
        (&json!("failed"), &json!("cancelled"), &json!(id))
    );
    let listed = team.get(&format!("{P}/delegations?status=failed")).await.json();
    assert_eq!(ids(&listed), [asked.id.as_str()]);
    assert!(ids(&team.get(&format!("{P}/delegations?status=pending")).await.json()).is_empty());
}

#[tokio::test]
async fn a_dialogue_is_followed_to_its_end_and_read_again_from_any_event() {
    let team = Team::new().await;
    let mia = team.desk("mia", SessionPurpose::Chat).await;
    let id = team.dialogue(&mia).await;
    let path = format!("{P}/dialogues/{id}");
    let events = format!("{path}/events");
    // The stream ends with the dialogue: reading it whole waits for that.
    let reading = team.get(&events);
    let talking = async {
        let ben = team.desk("ben", SessionPurpose::Chat).await;
        ben.send_dialogue_message(&id, "ごりら").await.unwrap();
        mia.end_conversation(&id, None).await.unwrap();
    };
    let (whole, ()) = tokio::join!(reading, talking);
    let lines: Vec<_> = whole.text.lines().filter(|line| line.starts_with("event: ")).collect();
    assert_eq!(lines, ["event: message", "event: message", "event: conversation_ended"]);
    assert!(whole.text.contains(&format!(r#""conversation_id":"{id}","message_id""#)));
    assert!(whole.text.contains(r#""reason":"initiator_ended""#), "{}", whole.text);
    let rest = team.get(&format!("{events}?after=2")).await.text;
    assert!(rest.contains("id: 3\n") && !rest.contains("id: 2\n"), "{rest}");
    let page = team.get(&format!("{path}/messages?limit=1")).await.json();
    let cursor = page["next_cursor"].as_str().unwrap();
    let next = team.get(&format!("{path}/messages?limit=1&cursor={cursor}")).await.json();
    assert_eq!(next["items"][0]["content"], "ごりら");
    assert_eq!(next["next_cursor"], Value::Null);
}
