//! Tenants, keys and runs as the contract describes them.

use axum::http::StatusCode;
use serde_json::{Value, json};

use crate::world::World;

fn fields(value: &Value) -> Vec<&str> {
    let mut names: Vec<_> = value.as_object().unwrap().keys().map(String::as_str).collect();
    names.sort_unstable();
    names
}

#[tokio::test]
async fn a_tenant_is_made_changed_listed_and_removed() {
    let world = World::new().await;
    let made =
        world.post("/v1/tenants", json!({ "id": "a", "limits": { "max_streams": 3 } })).await;
    assert_eq!(
        (made.status, &made.headers["location"]),
        (StatusCode::CREATED, &"/v1/tenants/a".parse().unwrap())
    );
    let mut tenant = made.json();
    for time in ["created_at", "updated_at"] {
        let at = tenant[time].take();
        assert!(at.as_str().unwrap().ends_with('Z') && at.as_str().unwrap().len() == 24, "{at}");
    }
    assert_eq!(
        tenant,
        json!({
            "id": "a", "name": "a", "system_prompt": "", "model_id": null, "status": "active",
            "workspace_enabled": false, "egress": "public", "created_at": null,
            "updated_at": null,
            "limits": {
                "max_concurrent_executions": 128, "max_streams": 3, "requests_per_minute": 6000,
                "stored_bytes": 10_737_418_240_u64,
            },
        })
    );
    assert_eq!(world.post("/v1/tenants", json!({ "id": "a" })).await.problem().0, 409);

    let change = json!({
        "name": "Ann", "model_id": "offline", "status": "inactive",
        "limits": { "requests_per_minute": 1_000 },
    });
    let changed = world.call(&world.admin, "PATCH", "/v1/tenants/a", Some(change)).await.json();
    assert_eq!(changed["name"], "Ann");
    assert_eq!(changed["status"], "inactive");
    assert_eq!(changed["limits"]["max_streams"], 3, "what was left out stays");
    assert_eq!(changed["limits"]["requests_per_minute"], 1_000);
    let change = json!({ "model_id": null, "limits": { "max_streams": null } });
    let changed = world.call(&world.admin, "PATCH", "/v1/tenants/a", Some(change)).await.json();
    assert_eq!(
        (&changed["model_id"], &changed["limits"]["max_streams"]),
        (&json!(null), &json!(null))
    );
    let mut shown = world.get("/v1/tenants/a").await.json();
    let used = shown.as_object_mut().unwrap().remove("use").unwrap();
    assert_eq!(used, json!({ "stored_bytes": 0, "executions": 0, "streams": 0 }));
    assert_eq!(shown, changed);

    let removed = world.call(&world.admin, "DELETE", "/v1/tenants/a", None).await;
    assert_eq!((removed.status, removed.text.as_str()), (StatusCode::NO_CONTENT, ""));
    assert_eq!(world.get("/v1/tenants/a").await.problem().1, "TENANT_NOT_FOUND");
    let local = world.call(&world.admin, "DELETE", "/v1/tenants/local", None).await;
    assert_eq!(local.problem(), (409, "CONFLICT".to_owned()));
}

#[tokio::test]
async fn lists_are_walked_by_cursor() {
    let world = World::new().await;
    for n in 0..5 {
        world.post("/v1/tenants", json!({ "id": format!("t{n}") })).await;
    }
    let (mut seen, mut path) = (Vec::new(), "/v1/tenants?limit=2".to_owned());
    loop {
        let page = world.get(&path).await.json();
        let items = page["items"].as_array().unwrap();
        assert!(items.len() <= 2);
        seen.extend(items.iter().map(|item| item["id"].as_str().unwrap().to_owned()));
        let Some(cursor) = page["next_cursor"].as_str() else { break };
        path = format!("/v1/tenants?limit=2&cursor={cursor}");
    }
    seen.sort();
    assert_eq!(seen, ["local", "t0", "t1", "t2", "t3", "t4"]);
}

#[tokio::test]
async fn a_key_is_shown_once() {
    let world = World::new().await;
    let made = world.post("/v1/tenants/local/keys", json!({ "name": "ci" })).await;
    assert_eq!(made.status, StatusCode::CREATED);
    assert_eq!(
        fields(&made.json()),
        ["created_at", "expires_at", "id", "key", "last_used_at", "name", "scope"]
    );
    let secret = made.json()["key"].as_str().unwrap().to_owned();
    assert_eq!(world.call(&secret, "GET", "/v1/tenants/local", None).await.status, StatusCode::OK);
    let listed = world.get("/v1/tenants/local/keys").await;
    assert_eq!(
        fields(&listed.json()["items"][0]),
        ["created_at", "expires_at", "id", "last_used_at", "name", "scope"]
    );
    assert!(!listed.text.contains(&secret));
    let unnamed = world.call(&world.admin, "POST", "/v1/tenants/local/keys", None).await;
    assert_eq!(unnamed.json()["name"], "unnamed");
}

#[tokio::test]
async fn a_run_is_started_once_per_key_and_shows_how_it_goes() {
    let world = World::new().await;
    let runs = "/v1/tenants/local/runs";
    let body = json!({ "agent": "echo", "input": { "n": 7 }, "idempotency_key": "once" });
    let first = world.post(runs, body.clone()).await.json();
    assert_eq!(
        fields(&first),
        [
            "agent",
            "created_at",
            "ended_at",
            "error",
            "id",
            "input",
            "message",
            "parent_run_id",
            "progress",
            "questions",
            "result",
            "run_id",
            "status",
            "total",
            "updated_at",
        ]
    );
    assert_eq!((&first["status"], &first["input"]), (&json!("queued"), &json!({ "n": 7 })));
    assert_eq!(world.post(runs, body).await.json()["id"], first["id"]);

    let node = world.node();
    let path = format!("{runs}/{}", first["id"].as_str().unwrap());
    let events = world.get(&format!("{path}/events")).await;
    assert!(events.text.contains("event: result"), "{}", events.text);
    let ended = world.get(&path).await.json();
    assert_eq!((&ended["status"], &ended["result"]), (&json!("completed"), &json!({ "n": 7 })));
    assert_eq!(ended["progress"], 1.0);
    assert_eq!((&ended["total"], &ended["message"]), (&json!(2.0), &json!("half way")));
    assert!(ended["ended_at"].is_string() && ended["error"].is_null());
    let cancelled = world.post(&format!("{path}/cancel"), json!({})).await;
    assert_eq!(cancelled.problem(), (409, "CONFLICT".to_owned()));
    let listed = world.get(&format!("{runs}?status=completed")).await.json();
    assert_eq!(listed["items"][0]["id"], first["id"]);
    assert_eq!(world.get(&format!("{runs}?status=failed")).await.json()["items"], json!([]));
    node.leave().await;
}

#[tokio::test]
async fn a_question_is_answered_once() {
    let world = World::new().await;
    let node = world.node();
    let run = world.run("local", "asks", json!({})).await;
    let path = format!("/v1/tenants/local/runs/{run}");
    let question = world.question_of(&path).await;
    assert_eq!(fields(&question), ["expires_at", "kind", "message", "question_id", "schema"]);
    assert_eq!(
        (&question["kind"], &question["message"]),
        (&json!("human"), &json!("Which colour?"))
    );

    let answers = format!("{path}/answers");
    let id = &question["question_id"];
    for (body, status) in [
        (json!({ "question_id": id }), 400),
        (json!({ "answer": { "colour": "red" } }), 400),
        (json!({ "question_id": "no id", "answer": 1 }), 400),
        (json!({ "question_id": id, "action": "timeout", "answer": 1 }), 400),
        (json!({ "question_id": "q_other", "answer": 1 }), 404),
    ] {
        assert_eq!(world.post(&answers, body).await.problem().0, status);
    }
    let answer = json!({ "question_id": id, "answer": { "colour": "red" } });
    assert_eq!(world.post(&answers, answer.clone()).await.status, StatusCode::OK);
    world.get(&format!("{path}/events")).await;
    let result = world.get(&path).await.json()["result"].clone();
    assert_eq!(result, json!({ "accepted": { "colour": "red" }, "updates": [] }));
    let late = world.post(&answers, answer).await.problem();
    assert!(late.0 == 409 || late.0 == 404, "{late:?}");
    node.leave().await;
}

#[tokio::test]
async fn a_run_is_redirected_until_it_has_ended() {
    let world = World::new().await;
    let run = world.run("local", "asks", json!({})).await;
    let path = format!("/v1/tenants/local/runs/{run}");
    let input = format!("{path}/input");
    let update = json!({ "input": { "hint": "warm" } });
    for (body, says) in [
        (json!({}), "input"),
        (json!({ "input": { "hint": "warm" }, "wake": true }), "wake"),
        (json!({ "input": { "hint": 1 } }), "input: needs a hint"),
        (json!({ "input": { "hint": "x".repeat(64 * 1024) } }), "input: has 65547 bytes"),
    ] {
        let refused = world.post(&input, body).await;
        assert_eq!(refused.problem(), (400, "INVALID_REQUEST".to_owned()));
        let detail = refused.json()["detail"].as_str().unwrap().to_owned();
        assert!(detail.contains(says), "{detail}");
    }
    let deaf = world.run("local", "echo", json!({})).await;
    let refused = world.post(&format!("/v1/tenants/local/runs/{deaf}/input"), update.clone()).await;
    assert_eq!(refused.problem(), (400, "INVALID_REQUEST".to_owned()));
    let refused = world.post("/v1/tenants/local/runs/run_0/input", update.clone()).await;
    assert_eq!(refused.problem().0, 404);

    let given = world.post(&input, update.clone()).await;
    assert_eq!((given.status, &given.json()["id"]), (StatusCode::OK, &json!(run)));
    let node = world.node();
    let question = world.question_of(&path).await;
    let answer = json!({ "question_id": question["question_id"], "answer": 1 });
    assert_eq!(world.post(&format!("{path}/answers"), answer).await.status, StatusCode::OK);
    let events = world.get(&format!("{path}/events")).await;
    assert!(events.text.contains("event: input\n"), "{}", events.text);
    let result = world.get(&path).await.json()["result"].clone();
    assert_eq!(result, json!({ "accepted": 1, "updates": [{ "hint": "warm" }] }));
    // As cancelling an ended run is answered.
    assert_eq!(world.post(&input, update).await.problem(), (409, "CONFLICT".to_owned()));
    node.leave().await;
}

#[tokio::test]
async fn an_inactive_tenant_starts_nothing() {
    let world = World::new().await;
    let key = world.tenant("a").await;
    world.run("a", "echo", json!({})).await;
    let stop = json!({ "status": "inactive" });
    world.call(&world.admin, "PATCH", "/v1/tenants/a", Some(stop)).await;
    for key in [&key, &world.admin] {
        let body = Some(json!({ "agent": "echo" }));
        let answer = world.call(key, "POST", "/v1/tenants/a/runs", body).await;
        assert_eq!(answer.problem(), (403, "TENANT_INACTIVE".to_owned()));
        let listed = world.call(key, "GET", "/v1/tenants/a/runs", None).await;
        assert_eq!(listed.json()["items"].as_array().unwrap().len(), 1);
    }
}
