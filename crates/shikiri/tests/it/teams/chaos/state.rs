//! What the server says happened, once everything is over.

use serde_json::{Value, json};
use shikiri_testkit::Tenant;

use super::player::{items, text_of};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Line {
    pub(crate) message_id: String,
    pub(crate) from: String,
    pub(crate) content: String,
}

#[derive(Clone, Debug)]
pub(crate) struct Dialogue {
    pub(crate) id: String,
    pub(crate) initiator: String,
    pub(crate) participant: String,
    pub(crate) state: String,
    pub(crate) end_reason: Option<String>,
    pub(crate) messages: u64,
    pub(crate) max_turns: u64,
    pub(crate) delegation: Option<String>,
    pub(crate) began_ms: i64,
    pub(crate) ended_ms: Option<i64>,
    pub(crate) lines: Vec<Line>,
}

#[derive(Clone, Debug)]
pub(crate) struct Delegation {
    pub(crate) id: String,
    pub(crate) agent: String,
    pub(crate) status: String,
    pub(crate) attempts: u64,
    pub(crate) task: Option<String>,
    pub(crate) dialogue: Option<String>,
    pub(crate) result: Value,
}

#[derive(Clone, Debug)]
pub(crate) struct Task {
    pub(crate) id: String,
    pub(crate) assignee: String,
    pub(crate) status: String,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct State {
    pub(crate) dialogues: Vec<Dialogue>,
    pub(crate) delegations: Vec<Delegation>,
    pub(crate) tasks: Vec<Task>,
}

impl State {
    pub(crate) async fn read(tenant: &Tenant, project: &str) -> Self {
        let list = |what: &'static str| list(tenant, project, what);
        let mut dialogues: Vec<_> = list("dialogues").await.iter().map(dialogue).collect();
        for dialogue in &mut dialogues {
            let path = format!("/projects/{project}/dialogues/{}/messages", dialogue.id);
            let answer = tenant.client.get(&tenant.path(&path)).await.expect(200);
            dialogue.lines = items(&answer, "items").iter().map(line).collect();
        }
        let delegations = list("delegations").await.iter().map(delegation).collect();
        Self { dialogues, delegations, tasks: Self::tasks(tenant, project).await }
    }

    pub(crate) async fn tasks(tenant: &Tenant, project: &str) -> Vec<Task> {
        list(tenant, project, "tasks").await.iter().map(task).collect()
    }

    /// Whether nothing is open any more.
    pub(crate) async fn is_settled(tenant: &Tenant, project: &str) -> bool {
        let dialogues = list(tenant, project, "dialogues").await;
        let delegations = list(tenant, project, "delegations").await;
        let is_over = |one: &Value| one["status"] == "completed" || one["status"] == "failed";
        dialogues.iter().all(|one| one["state"] == "ended") && delegations.iter().all(is_over)
    }
}

/// A project with two agents, and a task for each of these.
pub(crate) async fn set_up(tenant: &Tenant, project: &str, tasks: &[&str], passkey: Option<&str>) {
    let post = async |path: String, body: Value| {
        tenant.client.post(&tenant.path(&path), &body).await.expect(201)
    };
    post("/projects".to_owned(), json!({ "id": project, "name": project })).await;
    for agent in ["ann", "ben"] {
        let mut body = json!({ "id": agent, "name": agent });
        if let Some(passkey) = passkey {
            body["passkey"] = json!(passkey);
        }
        post(format!("/projects/{project}/agents"), body).await;
    }
    for agent in tasks {
        let body = json!({ "title": "しりとり", "description": "6往復", "assignee": agent });
        post(format!("/projects/{project}/tasks"), body).await;
    }
}

async fn list(tenant: &Tenant, project: &str, what: &str) -> Vec<Value> {
    let path = format!("/projects/{project}/{what}?limit=100");
    let page = tenant.client.get(&tenant.path(&path)).await.expect(200);
    assert!(page["next_cursor"].is_null(), "more {what} than a run makes");
    items(&page, "items").to_vec()
}

fn dialogue(value: &Value) -> Dialogue {
    let optional = |field: &str| value[field].as_str().map(str::to_owned);
    Dialogue {
        id: text_of(value, "conversation_id"),
        initiator: text_of(value, "initiator_agent_id"),
        participant: text_of(value, "participant_agent_id"),
        state: text_of(value, "state"),
        end_reason: optional("end_reason"),
        messages: value["messages"].as_u64().unwrap(),
        max_turns: value["max_turns"].as_u64().unwrap(),
        delegation: optional("delegation_id"),
        began_ms: millis(&value["created_at"]),
        ended_ms: value["ended_at"].is_string().then(|| millis(&value["ended_at"])),
        lines: Vec::new(),
    }
}

fn line(value: &Value) -> Line {
    Line {
        message_id: text_of(value, "message_id"),
        from: text_of(value, "from_agent_id"),
        content: text_of(value, "content"),
    }
}

fn delegation(value: &Value) -> Delegation {
    let optional = |field: &str| value[field].as_str().map(str::to_owned);
    Delegation {
        id: text_of(value, "delegation_id"),
        agent: text_of(value, "agent_id"),
        status: text_of(value, "status"),
        attempts: value["attempts"].as_u64().unwrap(),
        task: optional("task_id"),
        dialogue: optional("conversation_id"),
        result: value["result"].clone(),
    }
}

fn task(value: &Value) -> Task {
    Task {
        id: text_of(value, "task_id"),
        assignee: text_of(value, "assignee"),
        status: text_of(value, "status"),
    }
}

fn millis(time: &Value) -> i64 {
    let time: shikiri_model::time::Timestamp = serde_json::from_value(time.clone()).unwrap();
    time.as_millis()
}
