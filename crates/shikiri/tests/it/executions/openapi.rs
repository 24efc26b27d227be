//! APIs as tools: made from a document, tried, and called by the real Claude Code.

use std::time::Duration;

use serde_json::{Value, json};
use shikiri_testkit::{Cli, FakeModel, Reply, TestApp, claude_programs};

use super::kit::{Talk, kinds, terminal};
use super::tool_servers::{PETSTORE, Pets, record};
use crate::PROGRAM;

const PATIENCE: Duration = Duration::from_secs(60);
const PETSTORE_31: &str =
    include_str!("../../../../shikiri-openapi/tests/documents/petstore-3.1.json");

#[tokio::test(flavor = "multi_thread")]
async fn a_document_is_a_server_and_its_check_lists_the_tools() {
    let app = TestApp::new(PROGRAM).start().await;
    let tenant = app.tenant("user").await;
    let (client, admin, servers) = (&tenant.client, app.client(), tenant.path("/mcp-servers"));
    let pets = Pets::default();
    let url = pets.start().await;
    // Private addresses are the admin's to give.
    client.post(&servers, &record(&url)).await.problem(403);
    let made = admin.post(&servers, &record(&url)).await.expect(201);
    assert_eq!((&made["type"], &made["spec"]), (&json!("openapi"), &json!(PETSTORE)));
    let path = format!("{servers}/{}", made["id"].as_str().unwrap());
    assert_eq!(client.get(&path).await.expect(200), made);

    let tokens = json!({ "tokens": { "pets": "canary-1" } });
    let check = format!("{path}/check");
    assert_eq!(client.post(&check, &json!({})).await.problem(400)["code"], "MISSING_TOKEN");
    let report = client.post(&check, &tokens).await.expect(200);
    let about = json!({ "name": "Pet store", "version": "1.0.27" });
    assert_eq!((&report["reachable"], &report["server"]), (&json!(true), &about), "{report}");
    assert_eq!(report["tools"].as_array().unwrap().len(), 19, "{report}");
    assert!(report["detail"].as_str().unwrap().contains("OpenAPI 3.0.4"), "{report}");
    assert_eq!(pets.asked(), [], "nothing is called");

    // As an object, from an address, and with only some of its tools.
    let object: Value = serde_json::from_str(PETSTORE_31).unwrap();
    let change = json!({ "spec": object, "allowed_tools": ["getPetById"] });
    let changed = admin.patch(&path, &change).await.expect(200);
    assert_eq!(changed["spec"], object);
    let report = client.post(&check, &tokens).await.expect(200);
    assert_eq!(report["tools"], json!(["getPetById"]), "{report}");
    let change = json!({ "spec": format!("{url}/spec.yaml"), "url": "", "allowed_tools": null });
    let changed = admin.patch(&path, &change).await.expect(200);
    assert_eq!(changed.get("url"), None, "{changed}");
    let report = client.post(&check, &tokens).await.expect(200);
    assert_eq!(report["tools"].as_array().unwrap().len(), 19, "{report}");
    assert_eq!(pets.asked()[0].authorization, None, "the document's host gets no secret");

    // No server is there, or it may not be called.
    let away = json!({ "spec": PETSTORE, "url": "http://127.0.0.1:1/" });
    admin.patch(&path, &away).await.expect(200);
    let report = client.post(&check, &tokens).await.expect(200);
    assert_eq!(report["reachable"], false);
    assert_eq!(report["tools"].as_array().unwrap().len(), 19, "{report}");
    let guarded = json!({ "url": url, "allow_private": false });
    admin.patch(&path, &guarded).await.expect(200);
    let report = client.post(&check, &tokens).await.expect(200);
    assert!(report["detail"].as_str().unwrap().contains("allow_private"), "{report}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_document_that_cannot_be_used_is_refused_with_its_line_and_the_reason() {
    let app = TestApp::new(PROGRAM).start().await;
    let tenant = app.tenant("user").await;
    let remote =
        json!({ "openapi": "3.1.0", "paths": { "/a": { "$ref": "https://evil.example/" } } });
    let mut bomb = "openapi: 3.0.0\na0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..10 {
        let before = format!("*a{}, ", level - 1).repeat(10);
        bomb.push_str(&format!("a{level}: &a{level} [{before}]\n"));
    }
    let deep = format!("openapi: 3.0.0\npaths: {}", "[".repeat(400));
    let cases = [
        (json!("openapi: 3.0.0\npaths:\n  /a: b: c\n"), "line 3: "),
        (json!("{\"openapi\": \"3.0.0\",\n \"paths\": {]}"), "line 2: "),
        (json!(bomb), "more than 500,000 values"),
        (json!(deep), "nested deeper"),
        (json!({ "openapi": "2.0" }), "neither 3.0 nor 3.1"),
        (json!({ "openapi": "3.1.0", "paths": {} }), "no operation"),
        (remote, "leads out of the document"),
        (json!("x".repeat(3 * 1024 * 1024)), "at most 2 MiB"),
        (json!("ftp://a/b"), "openapi: is missing"),
        (json!("http://u:p@a.example/spec"), "no password"),
    ];
    for (spec, says) in cases {
        let body =
            json!({ "name": "s", "type": "openapi", "spec": spec, "url": "https://a.example" });
        let problem = tenant.client.post(&tenant.path("/mcp-servers"), &body).await.problem(400);
        assert_eq!(problem["field"], "spec", "{problem}");
        assert!(problem["detail"].as_str().unwrap().contains(says), "{says}: {problem}");
    }
    for (body, field) in [
        (json!({ "name": "s", "type": "openapi" }), "spec"),
        (json!({ "name": "s", "type": "openapi", "spec": PETSTORE }), "spec"),
        (json!({ "name": "s", "type": "openapi", "spec": PETSTORE, "command": "x" }), "command"),
        (json!({ "name": "s", "type": "http", "url": "http://a", "spec": "x" }), "spec"),
        (json!({ "name": "s", "type": "openapi", "spec": PETSTORE, "url": "file:///etc" }), "url"),
    ] {
        let problem = tenant.client.post(&tenant.path("/mcp-servers"), &body).await.problem(400);
        assert_eq!(problem["field"], field, "{problem}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_document_is_made_a_server_and_tried_from_the_terminal() {
    let folder = tempfile::TempDir::new().unwrap();
    let cli = Cli::new(PROGRAM, folder.path());
    let url = Pets::default().start().await;
    let file = folder.path().join("pets.yaml");
    std::fs::write(&file, PETSTORE).unwrap();
    let (file, base) = (file.to_str().unwrap(), format!("{url}/api/v3"));
    let create = ["servers", "create", "pets", "--type", "openapi", "--spec", file, "--url", &base];
    let made = cli.run(&[&create[..], &["--allow-private", "--json"]].concat()).done().json();
    let id = made["id"].as_str().unwrap();
    let shown = cli.run(&["servers", "show", id]).done().stdout;
    assert!(shown.contains(&base) && shown.contains("openapi"), "{shown}");
    let checked = cli.run(&["servers", "check", id]).done().stdout;
    for words in ["answers with 200 OK", "Pet store 1.0.27", "getPetById", "want Authorization"] {
        assert!(checked.contains(words), "{words:?} is not in {checked}");
    }
    // No server there: the tools are shown all the same, and the command fails.
    cli.run(&["servers", "set", id, "--url", "http://127.0.0.1:1/"]).done();
    let checked = cli.run(&["servers", "check", id]);
    assert_eq!(checked.code, 5, "{checked:?}");
    assert!(checked.stdout.contains("getPetById"), "{checked:?}");
    std::fs::write(file, "openapi: 3.0.0\npaths:\n  a: b: c\n").unwrap();
    let wrong = cli.run(&["servers", "set", id, "--spec", file]);
    assert!(wrong.stderr.contains("line 3: "), "{wrong:?}");
    let missing = cli.run(&["servers", "set", id, "--spec", "/no/such/file"]);
    assert!(missing.stderr.contains("cannot read /no/such/file"), "{missing:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn claude_code_calls_an_api_through_the_door_of_its_run() {
    for program in claude_programs() {
        let model = FakeModel::start().await;
        let app = TestApp::new(PROGRAM)
            .env("SHIKIRI_CLAUDE_BIN", program.display())
            .env("ANTHROPIC_BASE_URL", model.url())
            .env("ANTHROPIC_API_KEY", "sk-test")
            .env("CLAUDE_CODE_MAX_RETRIES", 1)
            .start()
            .await;
        let main =
            json!({ "id": "main", "engine": "claude-code", "model_name": "claude-sonnet-4-5" });
        app.client().post("/v1/models", &main).await.expect(201);
        app.client().patch("/v1/tenants/local", &json!({ "model_id": "main" })).await.expect(200);
        let tenant = app.local();
        let pets = Pets::default();
        let mut pets_record = record(&pets.start().await);
        pets_record["allowed_tools"] = json!(["addPet", "getPetById"]);
        let away = json!({ "name": "away", "type": "openapi", "spec": "http://127.0.0.1:1/spec" });
        for record in [pets_record, away] {
            app.client().post(&tenant.path("/mcp-servers"), &record).await.expect(201);
        }
        let talk = Talk::start(&tenant).await;
        let pet = json!({ "name": "ポチ", "photoUrls": [], "status": "sold" });
        model.script(
            "犬を足して",
            [
                Reply::call("mcp__pets__addPet", pet.clone()),
                Reply::call("mcp__pets__getPetById", json!({ "petId": "../x" })),
                Reply::call("mcp__pets__deletePet", json!({ "petId": 7 })),
                Reply::text("足しました。"),
            ],
        );
        let mut body = Talk::body("犬を足して");
        body["tokens"] = json!({ "pets": "canary-5711" });
        let answer = talk.post(&body, &[]).await;
        let told = super::kit::events(&answer.text());
        assert_eq!(terminal(&told).data["result"], "足しました。", "{}", answer.text());

        let asked = pets.asked();
        assert_eq!(asked.len(), 1, "{asked:?}");
        assert_eq!(asked[0].line, "POST /api/v3/pet");
        assert_eq!(asked[0].authorization.as_deref(), Some("Bearer canary-5711"));
        assert_eq!(asked[0].content_type.as_deref(), Some("application/json"));
        assert_eq!(serde_json::from_str::<Value>(&asked[0].body).unwrap(), pet);
        let results: Vec<_> = told.iter().filter(|event| event.kind == "tool_result").collect();
        assert_eq!(results.len(), 3, "{:?}", kinds(&told));
        assert!(results[0].data.to_string().contains("ポチ"), "{}", results[0].data);
        assert!(results[1].data.to_string().contains("petId"), "{}", results[1].data);
        assert_eq!(results[1].data["is_error"], true);
        assert_eq!(results[2].data["is_error"], true, "it is not allowed");
        let warning = told.iter().find(|event| event.kind == "warning").unwrap();
        assert_eq!(warning.data["code"], "MCP_SERVER_UNAVAILABLE");
        assert_eq!(warning.data["server"], "away");
        // The model was told of the tools that are allowed, and of no others. Newer versions name
        // them outside of `tools`.
        let first = model.asked(PATIENCE, |request| {
            request.is_message() && request.body.to_string().contains("mcp__pets__addPet")
        });
        let first = first.await.body.to_string();
        assert!(!first.contains("mcp__pets__deletePet"), "{first}");
        assert!(!answer.text().contains("canary-5711"), "the token is told");
    }
}
