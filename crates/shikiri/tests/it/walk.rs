//! Every operation of the OpenAPI document, by callers who may not: without a key, and with
//! another tenant's. The list of operations is the server's own, so a new route cannot be missed.

use serde_json::{Value, json};
use shikiri_testkit::{Answer, Client, Cut, Tenant, TestApp};

use crate::PROGRAM;
use crate::teams::world::Project;

const PUBLIC: [&str; 5] = ["/healthz", "/readyz", "/metrics", "/openapi.json", "/docs"];
/// In everything of the other tenant that can hold a text.
const CANARY: &str = "kanariya-7f3a";

#[derive(Clone, Debug)]
struct Operation {
    method: reqwest::Method,
    /// With `{t}` and the like in it.
    path: String,
}

impl Operation {
    fn at(&self, ids: &[(&str, &str)]) -> String {
        let mut path = self.path.clone();
        for (name, value) in ids {
            path = path.replace(&format!("{{{name}}}"), value);
        }
        assert!(!path.contains('{'), "no id is known for {path}");
        path
    }

    /// Something that the operation would take from a caller who may.
    fn body(&self) -> Option<Value> {
        let last = self.path.rsplit('/').next().unwrap_or_default();
        match (self.method.as_str(), last) {
            ("GET" | "DELETE", _) => None,
            (_, "runs") => Some(json!({ "agent": "long_running_agent", "input": { "steps": 1 } })),
            (_, "answers") => {
                Some(json!({ "question_id": "q_1", "action": "accept", "content": {} }))
            }
            (_, "input") => Some(json!({ "input": { "steps": 2 } })),
            (_, "keys" | "tenants" | "{t}") => Some(json!({ "name": "walked" })),
            (_, "models") => Some(json!({ "id": "walked", "engine": "offline" })),
            (_, "mcp-servers") => {
                Some(json!({ "name": "walked", "type": "http", "url": "http://a.example" }))
            }
            ("POST", "skills") => Some(json!({ "name": "walked", "content": "x" })),
            ("PUT", "{name}") => Some(json!({ "content": "walked" })),
            (_, "claude") => {
                Some(json!({ "session_id": "walked", "hook_event_name": "Notification" }))
            }
            ("POST", "agents") => Some(json!({ "id": "walked" })),
            ("POST", "tasks") => Some(json!({ "title": "walked" })),
            ("POST", "messages") => {
                Some(json!({ "from_agent_id": "a", "to_agent_id": "b", "content": "walked" }))
            }
            (_, "executions") => {
                Some(json!({ "user_input": "walked", "executor": { "user_id": "stranger" } }))
            }
            _ => Some(json!({})),
        }
    }

    /// Of the server, for everybody with a key to see.
    fn is_shared(&self) -> bool {
        self.method == "GET" && self.path.starts_with("/v1/models")
    }

    /// For the tenant of the key alone, which the path does not name.
    fn is_at_home(&self) -> bool {
        self.path == "/hooks/claude"
    }

    /// About something that has an id of its own below a tenant. A skill has only a name, which
    /// anybody may use at home.
    fn names_a_thing(&self) -> bool {
        let named =
            ["{r}", "{key}", "{c}", "{s}", "{e}", "{p}"].iter().any(|id| self.path.contains(id));
        named || (self.path.contains("{name}") && self.method != "PUT")
    }

    async fn by(&self, client: &Client, path: &str) -> Answer {
        let request = client.request(self.method.clone(), path);
        client
            .send(match self.body() {
                Some(body) => request.json(&body),
                None => request,
            })
            .await
    }
}

async fn operations(client: &Client) -> Vec<Operation> {
    let document = client.without_key().get("/openapi.json").await.expect(200);
    let mut operations = Vec::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for method in methods.as_object().unwrap().keys() {
            let method = method.to_uppercase().parse().unwrap();
            operations.push(Operation { method, path: path.clone() });
        }
    }
    assert!(operations.len() >= 45, "too few operations to be all: {operations:?}");
    operations
}

/// Another tenant, with one of everything, and its canary wherever a text can be.
struct Other {
    tenant: Tenant,
    ids: Vec<(&'static str, String)>,
}

/// Ids of things that do not exist.
const MISSING: [(&str, &str); 14] = [
    ("t", "absent"),
    ("r", "run_0"),
    ("key", "key_0"),
    ("m", "none"),
    ("s", "mcp_0"),
    ("name", "none"),
    ("c", "cnv_0"),
    ("e", "exe_0"),
    ("path", "none.txt"),
    ("p", "none"),
    ("agent", "nobody"),
    ("task", "tsk_0"),
    ("delegation", "dlg_0"),
    ("dialogue", "dia_0"),
];

impl Other {
    async fn make(app: &TestApp) -> Self {
        let tenant = app.tenant("other").await;
        let admin = app.client();
        let texts = json!({ "name": CANARY, "system_prompt": CANARY, "model_id": "offline" });
        admin.patch("/v1/tenants/other", &texts).await.expect(200);
        let model = json!({ "id": "secretive", "engine": "offline", "env": { "X": CANARY } });
        admin.post("/v1/models", &model).await.expect(201);
        let make = async |path: &str, body: Value| {
            let answer = tenant.client.post(&tenant.path(path), &body).await;
            assert!(matches!(answer.status, 201 | 202), "{path}: {}", answer.text());
            answer.json()["id"].as_str().unwrap_or_default().to_owned()
        };
        let key = make("/keys", json!({ "name": CANARY })).await;
        let start = json!({
            "agent": "long_running_agent",
            "input": { "steps": 1_000, "step_ms": 200 },
            "idempotency_key": CANARY,
        });
        let run = make("/runs", start).await;
        let headers = json!({ "Authorization": CANARY });
        let server = json!({
            "name": CANARY, "type": "http", "url": "http://a.example", "headers_template": headers,
        });
        let server = make("/mcp-servers", server).await;
        make("/skills", json!({ "name": "theirs", "content": CANARY })).await;
        let conversation = make("/conversations", json!({ "title": CANARY })).await;
        let execution = Self::execute(&tenant, &conversation).await;
        let mut ids = vec![
            ("t", tenant.id.clone()),
            ("r", run),
            ("key", key),
            ("m", "secretive".to_owned()),
            ("s", server),
            ("name", "theirs".to_owned()),
            ("c", conversation),
            ("e", execution),
            ("path", "theirs.txt".to_owned()),
        ];
        ids.extend(Self::team(&tenant).await);
        Self { tenant, ids }
    }

    /// A project in which a task has been delegated and two agents talk.
    async fn team(tenant: &Tenant) -> [(&'static str, String); 5] {
        let project = Project::start(tenant, "theirs", &["a", "b"]).await;
        let task = project.task("a", CANARY).await;
        project.write("hana", "b", CANARY).await;
        let target = project.agent("b");
        let worker = project.login("a", "task").await;
        let asked = json!({ "target_agent_id": target, "purpose": CANARY });
        let delegation = worker.call("delegate_to_chat_session", asked).await;
        let talker = project.login("a", "chat").await;
        let begun = json!({ "target_agent_id": target, "initial_message": CANARY });
        let dialogue = talker.call("start_conversation", begun).await;
        let id = |answer: &Value, name| answer[name].as_str().unwrap().to_owned();
        [
            ("p", project.id.clone()),
            ("agent", project.agent("b").to_owned()),
            ("task", task),
            ("delegation", id(&delegation, "delegation_id")),
            ("dialogue", id(&dialogue, "conversation_id")),
        ]
    }

    /// A file in the conversation, and an execution that goes on and on.
    async fn execute(tenant: &Tenant, conversation: &str) -> String {
        let (client, path) =
            (&tenant.client, tenant.path(&format!("/conversations/{conversation}")));
        let file = client.request(reqwest::Method::PUT, &format!("{path}/files/theirs.txt"));
        client.send(file.body(CANARY)).await.expect(201);
        let body = json!({
            "user_input": format!("{CANARY}\n#offline hang=1"), "executor": { "user_id": CANARY },
        });
        let request = client.request(reqwest::Method::POST, &format!("{path}/executions"));
        let answer = client.send(request.header("prefer", "respond-async").json(&body)).await;
        answer.expect(202)["id"].as_str().unwrap().to_owned()
    }

    fn ids(&self) -> Vec<(&str, &str)> {
        self.ids.iter().map(|(name, id)| (*name, id.as_str())).collect()
    }

    /// What must not change while strangers walk about.
    async fn state(&self, admin: &Client) -> Value {
        let mut state = Vec::new();
        let conversation = format!("/conversations/{}", self.ids[6].1);
        let files = format!("{conversation}/files");
        let lists = ["", "/keys", "/runs", "/mcp-servers", "/skills", "/conversations"];
        let hooks = ["/subagents", "/hooks/log"];
        let team = [
            "/projects",
            "/projects/theirs/agents",
            "/projects/theirs/tasks",
            "/projects/theirs/messages",
            "/projects/theirs/delegations",
            "/projects/theirs/dialogues",
        ];
        for path in
            lists.into_iter().chain(hooks).chain(team).chain([conversation.as_str(), &files])
        {
            let mut answer = admin.get(&self.tenant.path(path)).await.expect(200);
            for run in answer["items"].as_array_mut().into_iter().flatten() {
                // It goes on meanwhile.
                for moving in ["updated_at", "progress", "status", "last_used_at"] {
                    run.as_object_mut().unwrap().remove(moving);
                }
            }
            // What the tenant uses changes with the run.
            answer.as_object_mut().unwrap().remove("use");
            state.push(answer);
        }
        let execution = self.tenant.path(&format!("/executions/{}", self.ids[7].1));
        state.push(admin.get(&execution).await.expect(200)["status"].take());
        state.push(admin.get("/v1/models").await.expect(200));
        state.into()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_key_every_operation_is_401_or_declared_open() {
    let app = TestApp::new(PROGRAM).start().await;
    let other = Other::make(&app).await;
    let client = app.client();
    let before = other.state(&client).await;
    let mut walked = 0;
    for (number, operation) in operations(&client).await.into_iter().enumerate() {
        let path = operation.at(&other.ids());
        let mut callers = vec![client.without_key(), client.with_key("")];
        // Many wrong keys are slowed down; shikiri-web's tests try one at every operation.
        if number % 10 == 0 {
            callers.push(client.with_key("shk_0000"));
        }
        for caller in callers {
            let answer = operation.by(&caller, &path).await;
            if PUBLIC.contains(&operation.path.as_str()) {
                assert_eq!(answer.status, 200, "{operation:?}");
                continue;
            }
            answer.problem(401);
            assert_eq!(answer.header("www-authenticate"), Some("Bearer"));
            assert!(!answer.text().contains(CANARY), "{operation:?}: {}", answer.text());
            walked += 1;
        }
    }
    // What does not exist cannot be told from what does.
    for path in
        ["/v1", "/v1/nothing", "/docs/", "/v1/tenants/other/", "/mcp", "/admin", "/V1/tenants"]
    {
        client.without_key().get(path).await.problem(401);
    }
    assert_eq!(other.state(&client).await, before);
    eprintln!("walk: {walked} calls without a valid key, all 401");
}

#[tokio::test(flavor = "multi_thread")]
async fn another_tenants_things_are_404_as_if_they_were_not_there() {
    let app = TestApp::new(PROGRAM).start().await;
    let other = Other::make(&app).await;
    let admin = app.client();
    let stranger = app.tenant("stranger").await;
    let before = other.state(&admin).await;
    let mut walked = 0;
    for operation in operations(&admin).await {
        if PUBLIC.contains(&operation.path.as_str()) {
            continue;
        }
        if operation.is_shared() {
            let seen = operation.by(&stranger.client, &operation.at(&other.ids())).await;
            seen.expect(200);
            assert!(!seen.text().contains(CANARY), "{operation:?}: {}", seen.text());
            continue;
        }
        if operation.is_at_home() {
            // It must not show at the other's, which is looked at in the end.
            operation.by(&stranger.client, &operation.path).await.expect(200);
            continue;
        }
        let mut places = vec![(operation.at(&other.ids()), operation.at(&MISSING))];
        if operation.names_a_thing() {
            // The other's things under the stranger's own roof.
            let own = |ids: &[(&str, &str)]| operation.at(&[&[("t", "stranger")], ids].concat());
            places.push((own(&other.ids()), own(&MISSING)));
        }
        for (theirs, nowhere) in places {
            let found = operation.by(&stranger.client, &theirs).await;
            found.problem(404);
            assert!(!found.text().contains(CANARY), "{operation:?}: {}", found.text());
            let not_there = operation.by(&stranger.client, &nowhere).await;
            assert_eq!(
                without_ids(&found, &theirs, &operation),
                without_ids(&not_there, &nowhere, &operation),
                "{operation:?} tells the two apart"
            );
            walked += 1;
        }
    }
    assert_eq!(other.state(&admin).await, before);
    eprintln!("walk: {walked} calls with another tenant's key, all 404");
}

/// The answer with the caller's own words taken out of it.
fn without_ids(answer: &Answer, path: &str, operation: &Operation) -> (u16, Vec<String>, String) {
    let mut text = answer.text();
    for (given, name) in path.split('/').zip(operation.path.split('/')) {
        if name.starts_with('{') {
            text = text.replace(given, name);
        }
    }
    let names = answer.headers.iter().map(|(name, _)| name.clone());
    (answer.status, names.collect(), text)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_revoked_key_opens_nothing_and_ends_its_streams() {
    let app = TestApp::new(PROGRAM).start().await;
    let tenant = app.tenant("leaving").await;
    let input = json!({ "steps": 1_000, "step_ms": 200 });
    let run = tenant.start_run("long_running_agent", input).await;
    let mut reader = tenant.reader(&run, Cut::End);
    assert!(reader.next().await.is_some());

    let keys = app.client().get(&tenant.path("/keys")).await.expect(200);
    let id = keys["items"][0]["id"].as_str().unwrap();
    assert!(!keys.to_string().contains(&tenant.key), "a key is shown once");
    let revoked = app.client().delete(&tenant.path(&format!("/keys/{id}"))).await;
    assert!(matches!(revoked.status, 200 | 204), "{}", revoked.status);
    tenant.client.get(&tenant.path("/runs")).await.problem(401);
    let rest = tokio::time::timeout(std::time::Duration::from_secs(30), reader.rest()).await;
    assert!(rest.is_ok() && !reader.is_done(), "the stream of a revoked key goes on");
}
