//! Who changed who may do what: told to admins alone, over every door.

use std::time::Duration;

use serde_json::{Value, json};
use shikiri_testkit::{Builder, TestApp, have_postgres};

use crate::PROGRAM;

async fn audited(builder: Builder) {
    let app = builder.start().await;
    let admin = app.client();
    let tenant = app.tenant("acme").await;
    let limits = json!({ "limits": { "max_streams": 7 } });
    admin.patch("/v1/tenants/acme", &limits).await.expect(200);
    let secret = "kanariya-7f3a";
    let model = json!({ "id": "m", "engine": "offline", "env": { "A_TOKEN": secret } });
    admin.post("/v1/models", &model).await.expect(201);
    let own = tenant.client.post(&tenant.path("/keys"), &json!({ "name": "second" })).await;
    let own = own.expect(201);

    let page = admin.get("/v1/audit?limit=200").await;
    assert!(!page.text().contains(secret) && !page.text().contains(&tenant.key));
    let items = page.expect(200)["items"].as_array().unwrap().clone();
    let seqs: Vec<u64> = items.iter().map(|item| item["seq"].as_u64().unwrap()).collect();
    assert_eq!(seqs, (1..=items.len() as u64).collect::<Vec<_>>());
    let find = |kind: &str, action: &str, id: &str| -> Value {
        let found = items
            .iter()
            .find(|item| item["kind"] == kind && item["action"] == action && item["id"] == id);
        found.unwrap_or_else(|| panic!("no {action} of {kind} {id} in {items:#?}")).clone()
    };
    let made = find("tenant", "create", "acme");
    assert_eq!((&made["who"]["type"], &made["who"]["name"]), (&json!("key"), &json!("admin")));
    assert_eq!((&made["from"], &made["tenant"]), (&json!("127.0.0.1"), &json!("acme")));
    let changed = find("tenant", "change", "acme");
    assert_eq!(changed["fields"], json!(["limits.max_streams"]));
    let model = find("model", "create", "m");
    let fields = model["fields"].as_array().unwrap();
    assert!(fields.contains(&json!("env.A_TOKEN")) && model["tenant"] == Value::Null, "{model}");
    // A key holder is told of as well as an admin.
    let second = find("key", "create", own["id"].as_str().unwrap());
    assert_eq!((&second["who"]["name"], &second["tenant"]), (&json!("test"), &json!("acme")));

    // Pages go on where the last one ended, and no other tenant learns that there is a log.
    let first = admin.get("/v1/audit?limit=2").await.expect(200);
    let next = first["next_cursor"].as_str().unwrap();
    let rest = admin.get(&format!("/v1/audit?limit=200&after={next}")).await.expect(200);
    assert_eq!(rest["items"][0]["seq"], 3);
    assert_eq!(rest["next_cursor"], Value::Null);
    tenant.client.get("/v1/audit").await.problem(404);
    app.client().without_key().get("/v1/audit").await.problem(401);

    // The command line writes to the same log, and follows it.
    let mut follower = app.cli().start(&["audit", "--follow", "--json"]);
    app.cli().run(&["tenants", "set", "acme", "--max-streams", "9"]).done();
    let told = tokio::task::spawn_blocking(move || {
        let is_told = |line: &str| line.contains(r#""type":"cli""#).then_some(());
        follower.find(Duration::from_secs(30), is_told).is_some()
    });
    assert!(told.await.unwrap(), "the change was not told");
    let table = app.cli().run(&["audit", "--limit", "1"]).done().stdout;
    assert!(table.contains("cli:") && table.contains("limits.max_streams"), "{table}");
    // A tenant that is removed leaves its log behind.
    admin.delete("/v1/tenants/acme").await.expect(204);
    let all = admin.get("/v1/audit?limit=200").await.expect(200);
    let removed = all["items"].as_array().unwrap().iter();
    assert_eq!(removed.filter(|i| i["action"] == "remove" && i["kind"] == "tenant").count(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_of_who_may_do_what_are_audited() {
    audited(TestApp::new(PROGRAM)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_of_who_may_do_what_are_audited_on_postgres() {
    if have_postgres("the audit log") {
        audited(TestApp::new(PROGRAM).postgres()).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agents_passkey_is_audited_without_its_value() {
    let app = TestApp::new(PROGRAM).start().await;
    let tenant = app.tenant("acme").await;
    let (client, passkey) = (&tenant.client, "kanariya-passkey");
    client.post(&tenant.path("/projects"), &json!({ "id": "p", "name": "P" })).await.expect(201);
    let agent =
        json!({ "id": "a", "name": "A", "kind": "ai", "rank": "worker", "passkey": passkey });
    client.post(&tenant.path("/projects/p/agents"), &agent).await.expect(201);
    let page = app.client().get("/v1/audit?limit=200").await;
    assert!(!page.text().contains(passkey) && !page.text().contains("argon2"), "{}", page.text());
    let items = page.expect(200)["items"].as_array().unwrap().clone();
    let made = items.iter().find(|item| item["kind"] == "agent" && item["id"] == "a").unwrap();
    assert!(made["fields"].as_array().unwrap().contains(&json!("passkey")), "{made}");
    assert_eq!((&made["action"], &made["who"]["type"]), (&json!("create"), &json!("key")));
    // A passkey stays what it is: another one is refused, and leaves no entry.
    let mut other = agent.clone();
    other["passkey"] = json!("another");
    let refused = client.post(&tenant.path("/projects/p/agents"), &other).await;
    assert!(refused.status >= 400, "{}", refused.text());
    let after = app.client().get("/v1/audit?limit=200").await.expect(200);
    assert_eq!(after["items"].as_array().unwrap().len(), items.len());
}
