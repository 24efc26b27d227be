//! Models: what there is to run on, who may see what of it, and who may change it.

use std::time::{Duration, Instant};

use reqwest::Method;
use serde_json::{Value, json};
use shikiri_testkit::{Cli, TestApp};
use tokio::task::JoinSet;

use crate::PROGRAM;

const SECRET: &str = "sk-kanariya-41";

#[tokio::test(flavor = "multi_thread")]
async fn a_fresh_store_has_the_offline_model_and_local_uses_it() {
    let app = TestApp::new(PROGRAM).start().await;
    let client = app.client();
    assert_eq!(client.get("/v1/tenants/local").await.expect(200)["model_id"], "offline");
    let mut model = client.get("/v1/models/offline").await.expect(200);
    for time in ["created_at", "updated_at"] {
        model[time].take();
    }
    let free = json!({ "input": 0.0, "output": 0.0, "cache_write_5m": 0.0, "cache_write_1h": 0.0, "cache_read": 0.0 });
    assert_eq!(
        model,
        json!({
            "id": "offline", "engine": "offline", "model_name": "offline", "region": null,
            "status": "active", "aliases": [], "subagent_model": null, "env": {}, "prices": free,
            "secret_env": [], "created_at": null, "updated_at": null,
        })
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_is_made_changed_and_never_tells_its_secrets() {
    let app = TestApp::new(PROGRAM).start().await;
    let (client, tenant) = (app.client(), app.tenant("guest").await);
    let new = json!({
        "id": "haiku-1", "engine": "claude-code", "model_name": "claude-haiku-4-5", "aliases": ["haiku"],
        "env": { "ANTHROPIC_API_KEY": SECRET, "OTHER": "値" },
        "prices": { "input": 1, "output": 5, "cache_read": 0.1 },
    });
    let made = client.post("/v1/models", &new).await;
    assert_eq!(made.header("location"), Some("/v1/models/haiku-1"));
    assert_eq!(made.expect(201)["env"], json!({ "ANTHROPIC_API_KEY": "***", "OTHER": "***" }));
    client.post("/v1/models", &new).await.problem(409);

    let path = "/v1/models/haiku-1";
    let change = json!({
        "env": { "OTHER": null, "ANTHROPIC_API_KEY": "***", "MORE": "x" }, "prices": { "input": 2 },
        "region": "us-west-2", "status": "inactive",
    });
    let changed = client.patch(path, &change).await.expect(200);
    assert_eq!(changed["env"], json!({ "ANTHROPIC_API_KEY": "***", "MORE": "***" }));
    let prices = json!({ "input": 2.0, "output": 5.0, "cache_write_5m": 0.0, "cache_write_1h": 0.0, "cache_read": 0.1 });
    assert_eq!(changed["prices"], prices, "what was left out stays");
    let back = client.patch(path, &json!({ "region": null })).await.expect(200);
    assert_eq!((&back["region"], &back["status"]), (&Value::Null, &json!("inactive")));

    // Any key may look, and sees nothing of the environment.
    let mut seen = tenant.client.get(path).await.expect(200);
    for hidden in ["env", "secret_env"] {
        assert_eq!(seen.get(hidden), None);
        seen[hidden] = back[hidden].clone();
    }
    assert_eq!(seen, back);
    let list = tenant.client.get("/v1/models").await;
    assert_eq!(list.expect(200)["items"].as_array().unwrap().len(), 2);
    // To a tenant there is nothing to write to.
    tenant.client.post("/v1/models", &new).await.problem(404);
    tenant.client.patch(path, &json!({})).await.problem(404);
    for answer in [made, list, client.get(path).await, client.get("/v1/models").await] {
        assert!(!answer.text().contains(SECRET), "{}", answer.text());
    }
    assert!(!app.log().contains(SECRET));
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_models_are_refused_by_field() {
    let app = TestApp::new(PROGRAM).start().await;
    let client = app.client();
    let before = client.get("/v1/models").await.text();
    let env =
        |name: &str, value: &str| json!({ "id": "x", "engine": "offline", "env": { name: value } });
    let cases = [
        (json!({ "id": "x" }), "body"),
        (json!({ "engine": "offline" }), "model_name"),
        (json!({ "id": "x", "engine": "gpt" }), "engine"),
        (json!({ "id": "a b", "engine": "offline" }), "id"),
        (json!({ "id": "x", "engine": "offline", "price": {} }), "price"),
        (json!({ "id": "x", "engine": "offline", "prices": { "input": -1 } }), "prices.input"),
        (json!({ "id": "x", "engine": "offline", "prices": { "in": 1 } }), "prices.in"),
        (json!({ "id": "x", "engine": "offline", "model_name": "--version" }), "model_name"),
        (json!({ "id": "x", "engine": "offline", "region": "a b" }), "region"),
        (json!({ "id": "x", "engine": "offline", "aliases": ["a", "a"] }), "aliases"),
        (json!({ "id": "x", "engine": "offline", "aliases": [""] }), "aliases"),
        (env("lower", "x"), "env"),
        (env("1X", "x"), "env"),
        (env("X", "a\nb"), "env"),
        (env("X", &"x".repeat(9_000)), "env"),
        (env("X", "***"), "env"),
        (env("PATH", "/tmp"), "env"),
        (env("LD_PRELOAD", "x"), "env"),
        (env("NODE_OPTIONS", "x"), "env"),
        (env("CLAUDE_CONFIG_DIR", "x"), "env"),
        (env("SHIKIRI_STORE", "x"), "env"),
    ];
    for (body, field) in cases {
        let problem = client.post("/v1/models", &body).await.problem(400);
        assert_eq!(
            (&problem["code"], &problem["field"]),
            (&json!("INVALID_REQUEST"), &json!(field)),
            "{body} {problem}"
        );
    }
    assert_eq!(client.get("/v1/models").await.text(), before, "nothing was made");
    assert_eq!(client.get("/v1/models/none").await.problem(404)["code"], "MODEL_NOT_FOUND");

    for (method, path, body) in [
        ("POST", "/v1/tenants", json!({ "id": "t", "model_id": "none" })),
        ("PATCH", "/v1/tenants/local", json!({ "model_id": "no such" })),
        ("POST", "/v1/tenants/local/conversations", json!({ "model_id": "none" })),
    ] {
        let request = client.request(method.parse().unwrap(), path).json(&body);
        let problem = client.send(request).await.problem(400);
        assert_eq!(
            (&problem["field"], &problem["code"]),
            (&json!("model_id"), &json!("INVALID_REQUEST")),
            "{path}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_alias_belongs_to_one_active_model_of_an_engine() {
    let app = TestApp::new(PROGRAM).start().await;
    let client = app.client();
    let mut makers = JoinSet::new();
    for n in 0..8 {
        let client = client.clone();
        let body = json!({ "id": format!("m{n}"), "engine": "claude-code", "aliases": ["haiku"] });
        makers.spawn(async move { client.post("/v1/models", &body).await });
    }
    let answers = makers.join_all().await;
    let won: Vec<_> = answers.iter().filter(|answer| answer.status == 201).collect();
    assert_eq!(
        won.len(),
        1,
        "{:?}",
        answers.iter().map(|answer| answer.status).collect::<Vec<_>>()
    );
    for lost in answers.iter().filter(|answer| answer.status != 201) {
        assert!(lost.problem(409)["detail"].as_str().unwrap().contains("haiku"));
    }

    let holder = format!("/v1/models/{}", won[0].json()["id"].as_str().unwrap());
    let bedrock = json!({ "id": "b", "engine": "bedrock", "aliases": ["haiku"] });
    client.post("/v1/models", &bedrock).await.expect(201);
    let other =
        json!({ "id": "o", "engine": "claude-code", "aliases": ["haiku"], "status": "inactive" });
    client.post("/v1/models", &other).await.expect(201);
    client.patch("/v1/models/o", &json!({ "status": "active" })).await.problem(409);
    client.patch(&holder, &json!({ "aliases": [] })).await.expect(200);
    client.patch("/v1/models/o", &json!({ "status": "active" })).await.expect(200);
}

#[test]
fn models_live_on_the_command_line() {
    let folder = tempfile::tempdir().unwrap();
    let cli = Cli::new(PROGRAM, folder.path()).env("KEY_OF_MINE", SECRET);
    let create = [
        "models",
        "create",
        "haiku-1",
        "--engine",
        "claude-code",
        "--alias",
        "haiku",
        "--env",
        "KEY_OF_MINE",
        "--price-input",
        "0.25",
    ];
    cli.run(&create).done();
    cli.run(&create).refused(3, &["haiku-1", "exists"]);
    cli.run(&["models", "create", "x", "--engine", "offline", "--price-input", "much"])
        .refused(2, &["much", "dollars"]);
    cli.run(&["models", "create", "--engine", "offline"]).refused(2, &["model_name"]);
    cli.run(&["models", "create", "x", "--engine", "offline", "--env", "NOT_SET"])
        .refused(2, &["NOT_SET=VALUE"]);
    let set =
        ["models", "set", "haiku-1", "--price-output", "1", "--region", "us-west-2", "--json"];
    let set = cli.run(&set).done();
    let model = set.json();
    assert_eq!(
        (&model["prices"]["input"], &model["prices"]["output"]),
        (&json!(0.25), &json!(1.0))
    );
    assert_eq!(
        (&model["env"], &model["region"]),
        (&json!({ "KEY_OF_MINE": "***" }), &json!("us-west-2"))
    );
    let shown = cli.run(&["models", "show", "haiku-1"]).done().stdout;
    for line in [
        "model               haiku-1",
        "$/M input           0.25",
        "environment         KEY_OF_MINE",
    ] {
        assert!(shown.contains(line), "{line:?} is not in\n{shown}");
    }
    assert!(!format!("{shown}{}", set.stdout).contains(SECRET));
    let unset = ["models", "set", "haiku-1", "--unset-env", "KEY_OF_MINE", "--alias", "", "--json"];
    let model = cli.run(&unset).done().json();
    assert_eq!((&model["env"], &model["aliases"]), (&json!({}), &json!([])));
    let list = cli.run(&["models", "list"]).done().stdout;
    assert!(
        list.starts_with("ID ") && list.contains("offline") && list.contains("haiku-1"),
        "{list}"
    );
    cli.run(&["models", "show", "none"]).refused(4, &["none", "shikiri models list"]);
    cli.run(&["tenants", "set", "local", "--model", "none"]).refused(2, &["model_id", "none"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_caller_that_hangs_up_does_not_keep_the_models_from_others() {
    let app = TestApp::new(PROGRAM).start().await;
    let client = app.client();
    for n in 0..60 {
        let path = "/v1/models/offline";
        let change =
            client.request(Method::PATCH, path).json(&json!({ "region": format!("r{n}") }));
        let patience = Duration::from_micros(100 * n);
        let _ = tokio::time::timeout(patience, client.try_send(change)).await;
        let start = Instant::now();
        client.patch(path, &json!({ "region": "last" })).await.expect(200);
        // Less than the 5 s for which a change may hold them.
        assert!(start.elapsed() < Duration::from_millis(4_500), "{n}: {:?}", start.elapsed());
    }
}
