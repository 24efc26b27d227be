//! A project with its agents, and agents that call through MCP clients of their own.

use serde_json::{Value, json};
use shikiri_testkit::{Client, McpClient, Tenant};

pub(crate) const PASSKEY: &str = "開けゴマ";

/// A project of a tenant. All its agents have the same passkey, and none is started, unless they
/// are added so.
#[derive(Clone)]
pub(crate) struct Project {
    pub(crate) tenant: Tenant,
    pub(crate) id: String,
}

/// One session of an agent, on a connection of its own.
#[derive(Clone)]
pub(crate) struct Player {
    pub(crate) mcp: McpClient,
    pub(crate) token: String,
}

impl Project {
    /// With AI workers of these names, a manager `mia` and a person `hana`, each named after the
    /// project too: agents are the tenant's.
    pub(crate) async fn start(tenant: &Tenant, id: &str, workers: &[&str]) -> Self {
        let project = Self { tenant: tenant.clone(), id: id.to_owned() };
        let body = json!({ "id": id, "name": id });
        tenant.client.post(&tenant.path("/projects"), &body).await.expect(201);
        for worker in workers {
            project.add(&project.agent(worker), "ai", "worker").await;
        }
        project.add(&project.agent("mia"), "ai", "manager").await;
        project.add(&project.agent("hana"), "human", "worker").await;
        project
    }

    /// An agent's id.
    pub(crate) fn agent(&self, name: &str) -> String {
        format!("{}-{name}", self.id)
    }

    pub(crate) async fn add(&self, agent: &str, kind: &str, rank: &str) {
        let body = json!({
            "id": agent, "name": agent, "kind": kind, "rank": rank,
            "passkey": PASSKEY, "spawn": "never",
        });
        self.post("agents", &body).await;
    }

    /// An AI worker that the server starts.
    pub(crate) async fn add_started(&self, name: &str) {
        let (id, passkey) = (self.agent(name), PASSKEY);
        self.post("agents", &json!({ "id": id, "passkey": passkey, "spawn": "auto" })).await;
    }

    /// A task for an agent; gives its id.
    pub(crate) async fn task(&self, agent: &str, title: &str) -> String {
        let body = json!({ "title": title, "description": title, "assignee": self.agent(agent) });
        id_of(&self.post("tasks", &body).await, "id")
    }

    /// What a person writes to an agent.
    pub(crate) async fn write(&self, from: &str, to: &str, content: &str) -> Value {
        let (from, to) = (self.agent(from), self.agent(to));
        let body = json!({ "from_agent_id": from, "to_agent_id": to, "content": content });
        self.post("messages", &body).await
    }

    async fn post(&self, what: &str, body: &Value) -> Value {
        self.tenant.client.post(&self.path(what), body).await.expect(201)
    }

    fn path(&self, what: &str) -> String {
        self.tenant.path(&format!("/projects/{}/{what}", self.id))
    }

    pub(crate) async fn list(&self, what: &str) -> Vec<Value> {
        let page = self.tenant.client.get(&self.path(&format!("{what}?limit=200"))).await;
        page.expect(200)["items"].as_array().expect("items").clone()
    }

    /// Everything about the project that REST shows.
    pub(crate) async fn state(&self) -> Value {
        let mut state = json!({});
        for what in ["agents", "tasks", "messages", "delegations", "dialogues"] {
            state[what] = json!(self.list(what).await);
        }
        for dialogue in self.list("dialogues").await {
            let id = id_of(&dialogue, "id");
            state[&id] = json!(self.list(&format!("dialogues/{id}/messages")).await);
        }
        state
    }

    pub(crate) async fn task_status(&self, id: &str) -> Value {
        let tasks = self.list("tasks").await;
        tasks.iter().find(|task| task["id"] == id).expect("the task")["status"].clone()
    }

    /// A session of an agent, with a client of its own.
    pub(crate) async fn login(&self, agent: &str, purpose: &str) -> Player {
        self.login_through(&self.tenant.client, agent, Some(purpose)).await
    }

    pub(crate) async fn login_through(
        &self,
        client: &Client,
        agent: &str,
        purpose: Option<&str>,
    ) -> Player {
        let mcp = McpClient::connect(client).await;
        let mut login = self.credentials(agent);
        if let Some(purpose) = purpose {
            login["purpose"] = json!(purpose);
        }
        let opened = answer(&mcp.called("authenticate", login).await);
        if let Some(purpose) = purpose {
            assert_eq!(opened["purpose"], purpose);
        }
        Player { token: id_of(&opened, "session_token"), mcp }
    }

    pub(crate) fn credentials(&self, agent: &str) -> Value {
        json!({ "agent_id": self.agent(agent), "passkey": PASSKEY, "project_id": self.id })
    }
}

impl Player {
    /// The answer of a call that is not refused.
    pub(crate) async fn call(&self, tool: &str, arguments: Value) -> Value {
        answer(&self.called(tool, arguments).await)
    }

    /// The code of a call that is refused.
    pub(crate) async fn refused(&self, tool: &str, arguments: Value) -> String {
        refusal(&self.called(tool, arguments).await)
    }

    pub(crate) async fn called(&self, tool: &str, mut arguments: Value) -> Value {
        arguments["session_token"] = json!(self.token);
        self.mcp.called(tool, arguments).await
    }

    /// What has come, or comes soon.
    pub(crate) async fn pending(&self) -> Value {
        self.call("get_pending_messages", json!({ "wait_seconds": 20 })).await
    }

    /// The same, which must be this one thing.
    pub(crate) async fn next(&self, list: &str) -> Value {
        let mut pending = self.pending().await;
        let found = pending[list].take();
        let found = found.as_array().unwrap_or_else(|| panic!("no {list} in {pending}")).clone();
        let [one] = &found[..] else { panic!("not one of {list}: {found:?} {pending}") };
        let fields = pending.as_object().expect("an object");
        let others = fields.iter().filter(|(name, _)| *name != list);
        for (name, value) in others {
            assert_eq!(*value, json!([]), "{name}");
        }
        one.clone()
    }

    pub(crate) async fn next_action(&self) -> Value {
        self.call("get_next_action", json!({ "wait_seconds": 20 })).await
    }
}

/// The data of a tool's answer, which its text repeats.
#[track_caller]
pub(crate) fn answer(result: &Value) -> Value {
    assert_eq!(result["isError"], false, "{result}");
    let data = &result["structuredContent"];
    let text = result["content"][0]["text"].as_str().expect("a text");
    assert_eq!(serde_json::from_str::<Value>(text).expect("JSON"), *data);
    data.clone()
}

/// The code of a tool's refusal, which is whole and in order.
#[track_caller]
pub(crate) fn refusal(result: &Value) -> String {
    assert_eq!(result["isError"], true, "{result}");
    let error = &result["structuredContent"]["error"];
    assert_eq!(result["content"][0]["text"], error["message"], "{result}");
    assert!(error["message"].as_str().is_some_and(|message| !message.is_empty()), "{result}");
    id_of(error, "code")
}

#[track_caller]
pub(crate) fn id_of(value: &Value, field: &str) -> String {
    value[field].as_str().unwrap_or_else(|| panic!("no {field} in {value}")).to_owned()
}
