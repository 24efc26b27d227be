//! What goes wrong inside is told to the log, and what others have is never told.

use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};
use shikiri_testkit::{McpClient, TestApp, until};

use crate::PROGRAM;

/// A connection of our own to the running server's store.
fn database(app: &TestApp) -> shikiri_sqlite::SqliteDatabase {
    let options = shikiri_sqlite::DatabaseOptions::default();
    shikiri_sqlite::SqliteDatabase::open(&app.data_folder().join("state.db"), &options).unwrap()
}

/// What is done to the store, how it is mended, a word of the cause, and the answer's status.
const FAULTS: [(&str, &str, &str, u16); 2] = [
    (
        "ALTER TABLE records RENAME TO hidden_away",
        "ALTER TABLE hidden_away RENAME TO records",
        "no such table",
        503,
    ),
    (
        "UPDATE records SET doc = json_set(doc, '$.status', 'canary-7') WHERE kind = 'tenant'",
        "UPDATE records SET doc = json_set(doc, '$.status', 'active') WHERE kind = 'tenant'",
        "canary-7",
        500,
    ),
];

#[tokio::test(flavor = "multi_thread")]
async fn the_text_of_an_internal_error_goes_out_by_no_door() {
    let app = TestApp::new(PROGRAM).start().await;
    let host = McpClient::connect(&app.client()).await;
    let database = database(&app);
    for (damage, mend, cause, status) in FAULTS {
        database.execute_batch(damage).unwrap();
        // Keys, tenants and connections are remembered for a moment.
        tokio::time::sleep(Duration::from_secs(3)).await;
        let initialize = json!({
            "jsonrpc": "2.0", "id": 1, "method": "initialize",
            "params": { "protocolVersion": "2025-11-25", "capabilities": {},
                        "clientInfo": { "name": "t", "version": "1" } },
        });
        let mcp = app.client().request(Method::POST, "/mcp").header("accept", "*/*");
        let mcp = app.client().send(mcp.json(&initialize)).await;
        let rest = app.client().get("/v1/tenants/local/runs").await;
        let called = host.http(Method::POST).json(&json!({
            "jsonrpc": "2.0", "id": 2, "method": "tools/call",
            "params": { "name": "run_list", "arguments": {} },
        }));
        let called = app.client().send(called).await;
        database.execute_batch(mend).unwrap();
        for answer in [&mcp, &rest, &called] {
            assert!(!answer.text().contains(cause), "{}", answer.text());
        }
        // Both doors say the same, with an id by which the cause is found.
        for answer in [&mcp, &rest] {
            let problem: Value = answer.problem(status);
            let id = problem["error_id"].as_str().unwrap_or_else(|| panic!("no id: {problem}"));
            let find = || app.log().lines().any(|line| line.contains(id) && line.contains(cause));
            until("the cause is in the log", async || find()).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_with_a_name_twice_is_refused() {
    let app = TestApp::new(PROGRAM).start().await;
    let host = McpClient::connect(&app.client()).await;
    for body in [
        r#"{"jsonrpc":"2.0","id":1,"method":"ping","method":"tools/list"}"#,
        r#"{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"run_list","name":"run_cancel","arguments":{}}}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"run_list","arguments":{"limit":1,"limit":2}}}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"run_list","arguments":{"limit":1,"l\u0069mit":2}}}"#,
    ] {
        let request = host.http(Method::POST).header("content-type", "application/json");
        let answer = app.client().send(request.body(body)).await;
        assert_eq!(answer.status, 400, "{body}: {}", answer.text());
        let error = &answer.json()["error"];
        assert_eq!(error["code"], -32600, "{error}");
        assert!(error["message"].as_str().unwrap().contains("twice"), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn whether_a_tenant_exists_cannot_be_told_from_the_work_that_is_done() {
    let app = TestApp::new(PROGRAM).start().await;
    let stranger = app.tenant("stranger").await;
    app.tenant("there").await;
    let database = database(&app);
    // One that exists would now be remembered, and one that does not be looked up: the one is
    // faster than the other, and without the table it is not even answered alike.
    stranger.client.get("/v1/tenants/there").await.problem(404);
    app.client().get("/v1/tenants/there").await.expect(200);
    database.execute_batch("ALTER TABLE records RENAME TO hidden_away").unwrap();
    let (there, gone) = (
        stranger.client.get("/v1/tenants/there").await,
        stranger.client.get("/v1/tenants/gone_").await,
    );
    database.execute_batch("ALTER TABLE hidden_away RENAME TO records").unwrap();
    let (there, gone) = (there.problem(404), gone.problem(404));
    assert_eq!(there["code"], gone["code"]);
}
