//! Every operation of the OpenAPI document, by callers who may not: without a key, and with
//! another tenant's. The list of operations is the server's own, so a new route cannot be missed.

use serde_json::{Value, json};
use shikiri_testkit::{Answer, Client, Cut, Tenant, TestApp};

use crate::PROGRAM;

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
            _ => Some(json!({})),
        }
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
    assert!(operations.len() >= 15, "too few operations to be all: {operations:?}");
    operations
}

/// Another tenant, with a run and a key, and its canary wherever a text can be.
struct Other {
    tenant: Tenant,
    run: String,
    key: String,
}

impl Other {
    async fn make(app: &TestApp) -> Self {
        let tenant = app.tenant("other").await;
        let texts = json!({ "name": CANARY, "system_prompt": CANARY });
        app.client().patch("/v1/tenants/other", &texts).await.expect(200);
        let key = app.client().post("/v1/tenants/other/keys", &json!({ "name": CANARY })).await;
        let key = key.expect(201)["id"].as_str().unwrap().to_owned();
        let start = json!({
            "agent": "long_running_agent",
            "input": { "steps": 1_000, "step_ms": 200 },
            "idempotency_key": CANARY,
        });
        let run = tenant.client.post("/v1/tenants/other/runs", &start).await;
        let run = run.json()["id"].as_str().unwrap().to_owned();
        Self { tenant, run, key }
    }

    fn ids(&self) -> [(&'static str, &str); 3] {
        [("t", &self.tenant.id), ("r", &self.run), ("key", &self.key)]
    }

    /// What must not change while strangers walk about.
    async fn state(&self, admin: &Client) -> Value {
        let mut state = Vec::new();
        for path in ["", "/keys", "/runs"] {
            let mut answer = admin.get(&self.tenant.path(path)).await.expect(200);
            for run in answer["items"].as_array_mut().into_iter().flatten() {
                // It goes on meanwhile.
                for moving in ["updated_at", "progress", "status"] {
                    run.as_object_mut().unwrap().remove(moving);
                }
            }
            state.push(answer);
        }
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
    for operation in operations(&client).await {
        let path = operation.at(&other.ids());
        for caller in [client.without_key(), client.with_key("shk_0000"), client.with_key("")] {
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
    for path in ["/v1", "/v1/nothing", "/", "/v1/tenants/other/", "/mcp", "/admin", "/V1/tenants"] {
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
    let missing = [("t", "nobody"), ("r", "run_0"), ("key", "key_0")];
    let mut walked = 0;
    for operation in operations(&admin).await {
        if PUBLIC.contains(&operation.path.as_str()) {
            continue;
        }
        let mut places = vec![(operation.at(&other.ids()), operation.at(&missing))];
        if operation.path.contains("{r}") || operation.path.contains("{key}") {
            // The other's run and key under the stranger's own roof.
            let own =
                |ids: [(&'static str, &str); 3]| operation.at(&[("t", "stranger"), ids[1], ids[2]]);
            places.push((own(other.ids()), own(missing)));
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
    let rest = tokio::time::timeout(std::time::Duration::from_secs(6), reader.rest()).await;
    assert!(rest.is_ok() && !reader.is_done(), "the stream of a revoked key goes on");
}
