//! Every route that changes something either writes to the audit log or says why not. The list of
//! routes is the server's own, so that a new one cannot be forgotten.

use axum::http::StatusCode;
use serde_json::{Value, json};
use shikiri_web::operations;

use crate::world::World;

/// Routes that change who may do what: what is sent, and the entry that it leaves.
const AUDITED: [(&str, &str, &str, &str); 13] = [
    ("POST", "/v1/tenants", "tenant", "create"),
    ("PATCH", "/v1/tenants/{t}", "tenant", "change"),
    ("POST", "/v1/tenants/{t}/keys", "key", "create"),
    ("DELETE", "/v1/tenants/{t}/keys/{key}", "key", "remove"),
    ("POST", "/v1/models", "model", "create"),
    ("PATCH", "/v1/models/{m}", "model", "change"),
    ("POST", "/v1/tenants/{t}/mcp-servers", "mcp_server", "create"),
    ("PATCH", "/v1/tenants/{t}/mcp-servers/{s}", "mcp_server", "change"),
    ("DELETE", "/v1/tenants/{t}/mcp-servers/{s}", "mcp_server", "remove"),
    ("POST", "/v1/tenants/{t}/projects/{p}/agents", "agent", "create"),
    ("PATCH", "/v1/tenants/{t}/projects/{p}/agents/{agent}", "agent", "change"),
    ("DELETE", "/v1/tenants/{t}/projects/{p}/agents/{agent}", "agent", "remove"),
    ("DELETE", "/v1/tenants/{t}", "tenant", "remove"),
];

const WORK: &str = "a tenant's own work: it opens nothing to anybody";
const TEXT: &str = "instructions for an agent: what it may reach stays as it is";
const PARTS: &str = "each agent that it removes is audited; the rest is the tenant's own work";
const LOOK: &str = "a look; with `accept_changes` it is audited, which needs a server that changed";

/// The other routes that change something, and why they are not audited.
const NOT_AUDITED: [(&str, &str, &str); 22] = [
    ("POST", "/v1/tenants/{t}/mcp-servers/{s}/check", LOOK),
    ("POST", "/v1/tenants/{t}/skills", TEXT),
    ("PUT", "/v1/tenants/{t}/skills/{name}", TEXT),
    ("DELETE", "/v1/tenants/{t}/skills/{name}", TEXT),
    ("POST", "/v1/tenants/{t}/conversations", WORK),
    ("PATCH", "/v1/tenants/{t}/conversations/{c}", WORK),
    ("DELETE", "/v1/tenants/{t}/conversations/{c}", WORK),
    ("POST", "/v1/tenants/{t}/conversations/{c}/archive", WORK),
    ("POST", "/v1/tenants/{t}/conversations/{c}/executions", WORK),
    ("PUT", "/v1/tenants/{t}/conversations/{c}/files/{path}", WORK),
    ("DELETE", "/v1/tenants/{t}/conversations/{c}/files/{path}", WORK),
    ("POST", "/v1/tenants/{t}/executions/{e}/cancel", WORK),
    ("POST", "/v1/tenants/{t}/runs", WORK),
    ("POST", "/v1/tenants/{t}/runs/{r}/cancel", WORK),
    ("POST", "/v1/tenants/{t}/runs/{r}/answers", WORK),
    ("POST", "/v1/tenants/{t}/runs/{r}/input", WORK),
    ("POST", "/v1/tenants/{t}/projects", WORK),
    ("DELETE", "/v1/tenants/{t}/projects/{p}", PARTS),
    ("POST", "/v1/tenants/{t}/projects/{p}/tasks", WORK),
    ("PATCH", "/v1/tenants/{t}/projects/{p}/tasks/{task}", WORK),
    ("POST", "/v1/tenants/{t}/projects/{p}/messages", WORK),
    ("POST", "/v1/tenants/{t}/projects/{p}/dialogues/{dialogue}/cancel", WORK),
];
const HOOKS: &str = "/hooks/claude";

#[test]
fn every_route_that_changes_something_is_audited_or_says_why_not() {
    for (method, path) in operations() {
        if method == "GET" || path == HOOKS {
            continue;
        }
        let path = path.replace("{*", "{");
        let is = |known: (&str, &str)| known == (method.as_str(), path.as_str());
        let is_audited = AUDITED.iter().any(|(m, p, ..)| is((m, p)));
        let is_known =
            is_audited || NOT_AUDITED.iter().any(|(m, p, why)| is((m, p)) && !why.is_empty());
        assert!(is_known, "{method} {path}: add it to AUDITED, or to NOT_AUDITED with the reason");
    }
}

fn body_of(method: &str, path: &str) -> Option<Value> {
    let body = match (method, path.rsplit('/').next().unwrap_or_default()) {
        ("DELETE", _) => return None,
        ("POST", "tenants") => json!({ "id": "b" }),
        ("PATCH", "{t}") => json!({ "name": "other" }),
        ("POST", "keys") => json!({ "name": "second" }),
        ("POST", "models") => json!({ "id": "m", "engine": "offline" }),
        ("PATCH", "{m}") => json!({ "model_name": "other" }),
        ("POST", "mcp-servers") => {
            json!({ "name": "hub", "type": "http", "url": "http://a.example" })
        }
        ("PATCH", "{s}") => json!({ "allowed_tools": ["one"] }),
        ("PATCH", "{agent}") => json!({ "passkey": "another sesame" }),
        ("POST", "agents") => json!({ "id": "worker", "passkey": "open sesame" }),
        other => panic!("no body for {other:?}"),
    };
    Some(body)
}

#[tokio::test]
async fn every_audited_route_writes_who_did_what() {
    let world = World::new().await;
    world.tenant("a").await;
    world.post("/v1/tenants/a/projects", json!({ "id": "p" })).await;
    let (mut key, mut server) = (String::new(), String::new());
    for (method, path, kind, action) in AUDITED {
        let before = newest(&world).await;
        let filled = path.replace("{t}", "a").replace("{p}", "p").replace("{m}", "m");
        let filled = filled.replace("{key}", &key).replace("{s}", &server);
        let filled = filled.replace("{agent}", "worker");
        let answer = world.call(&world.admin, method, &filled, body_of(method, path)).await;
        assert!(answer.status.is_success(), "{method} {path}: {}", answer.text);
        if answer.status == StatusCode::CREATED {
            let id = answer.json()["id"].as_str().unwrap().to_owned();
            match kind {
                "key" => key = id,
                "mcp_server" => server = id,
                _ => {}
            }
        }
        let page = world.get(&format!("/v1/audit?limit=200&after={before}")).await;
        assert!(!page.text.contains("sesame"), "{}", page.text);
        let page = page.json();
        let entries = page["items"].as_array().unwrap();
        let entry = entries.iter().find(|e| e["kind"] == kind && e["action"] == action);
        let entry = entry.unwrap_or_else(|| panic!("{method} {path} left {entries:?}"));
        assert_eq!(entry["who"]["name"], "admin", "{method} {path}: {entry}");
    }
}

async fn newest(world: &World) -> u64 {
    let page = world.get("/v1/audit?limit=200").await.json();
    page["items"].as_array().unwrap().last().map_or(0, |entry| entry["seq"].as_u64().unwrap())
}

/// A change that is refused leaves no entry, and one that changes nothing neither.
#[tokio::test]
async fn what_is_not_done_is_not_audited() {
    let world = World::new().await;
    world.tenant("a").await;
    let before = newest(&world).await;
    assert_eq!(world.post("/v1/tenants", json!({ "id": "a" })).await.status, StatusCode::CONFLICT);
    let same = json!({ "name": "a" });
    let answer = world.call(&world.admin, "PATCH", "/v1/tenants/a", Some(same)).await;
    assert_eq!(answer.status, StatusCode::OK);
    assert_eq!(newest(&world).await, before);
}
