//! Usage reports over REST and on the terminal.

use serde_json::{Value, json};
use shikiri_testkit::{Client, TestApp};

use super::kit::{Talk, terminal};
use crate::PROGRAM;

/// Key, input tokens, executions of each item.
fn items(report: &Value) -> Vec<(String, u64, u64)> {
    let of = |item: &Value| {
        let key = item["key"].as_str().unwrap().to_owned();
        let tokens = item["usage"]["input_tokens"].as_u64().unwrap();
        (key, tokens, item["executions"].as_u64().unwrap())
    };
    report["items"].as_array().unwrap().iter().map(of).collect()
}

fn item(key: &str, tokens: u64, executions: u64) -> (String, u64, u64) {
    (key.to_owned(), tokens, executions)
}

async fn make_model(admin: &Client, id: &str, price: Value) {
    let model = json!({
        "id": id, "engine": "offline", "model_name": id, "prices": { "input": price },
    });
    admin.post("/v1/models", &model).await.expect(201);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_spent_is_reported_by_whatever_is_asked() {
    let app = TestApp::new(PROGRAM).start().await;
    make_model(&app.client(), "dear", json!(2.5)).await;
    make_model(&app.client(), "cheap", json!(0.000_001)).await;
    let (one, two) = (Talk::start(&app.local()).await, Talk::start(&app.local()).await);
    let say = async |talk: &Talk, user: &str, model: &str, line: &str| {
        let body = json!({
            "user_input": format!("#offline {line}"), "executor": { "user_id": user, "name": "名" },
            "model_id": model,
        });
        let answer = talk.post(&body, &[]).await;
        terminal(&super::kit::events(&answer.text())).data.clone()
    };
    let ends = [
        say(&one, "花子", "dear", "tokens_in=1000000 subagents=1").await,
        say(&two, "太郎", "cheap", "tokens_in=3").await,
        say(&one, "花子", "cheap", "tokens_in=4 error=駄目").await,
    ];
    assert_eq!(ends[2]["code"], "SDK_ERROR", "a failure is billed too: {}", ends[2]);

    let local = app.local();
    let usage = async |query: &str| {
        let path = local.path(&format!("/usage?{query}"));
        local.client.get(&path).await.expect(200)
    };
    let by_model = usage("").await;
    assert_eq!(by_model["group_by"], "model");
    assert_eq!(items(&by_model), [item("dear", 1_000_101, 1), item("cheap", 7, 2)]);
    assert_eq!(by_model["items"][0]["cost_usd"], 2.500_252_5);
    assert_eq!(by_model["items"][1]["cost_usd"], 0.000_000_000_007);
    let total = &by_model["total"];
    assert_eq!((&total["cost_usd"], &total["executions"]), (&json!(2.500_252_500_007), &json!(3)));
    let by_subagent = usage("group_by=subagent").await;
    assert_eq!(items(&by_subagent), [item("main", 1_000_007, 3), item("offline-helper", 101, 1)]);
    assert_eq!(by_subagent["items"][1]["kind"], "subagent");
    let by_executor = usage("group_by=executor").await;
    assert_eq!(items(&by_executor), [item("花子", 1_000_105, 2), item("太郎", 3, 1)]);
    assert_eq!(by_executor["items"][0]["name"], "名");
    let by_conversation = usage("group_by=conversation").await;
    assert_eq!(items(&by_conversation), [item(&one.id, 1_000_105, 2), item(&two.id, 3, 1)]);

    let record = one.execution(ends[0]["execution_id"].as_str().unwrap(), "").await;
    let day = &record["ended_at"].as_str().unwrap()[..10];
    let by_day = usage(&format!("group_by=day&from={day}")).await;
    assert_eq!(items(&by_day)[0].0, day);
    assert_eq!(items(&usage("group_by=month").await)[0].0, day[..7]);
    assert_eq!(items(&usage("to=2020-01-01").await), []);

    // Another tenant spent nothing, and does not see this one.
    let other = app.tenant("other").await;
    let own = other.client.get(&other.path("/usage")).await.expect(200);
    assert_eq!((items(&own).len(), &own["total"]["executions"]), (0, &json!(0)));
    other.client.get(&local.path("/usage")).await.problem(404);
    terminal_agrees(&app, &by_model);
}

/// The command prints what the server answers.
fn terminal_agrees(app: &TestApp, by_model: &Value) {
    let cli = app.cli();
    let report = cli.run(&["usage", "--tenant", "local", "--json"]).done().json();
    assert_eq!(&report, by_model);
    let by_tenant = cli.run(&["usage", "--by", "tenant", "--json"]).done().json();
    assert_eq!(items(&by_tenant), [item("local", 1_000_108, 3)]);
    let table = cli.run(&["usage"]).done().stdout;
    insta::assert_snapshot!(table, @r"
    MODEL  EXECUTIONS    INPUT  OUTPUT  CACHE WRITE  CACHE READ        COST USD
    dear            1  1000101      31            0           0  2.500252500000
    cheap           2        7      40            0           0  0.000000000007
    total           3  1000108      71            0           0  2.500252500007
    ");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_asked_is_refused_by_its_field() {
    let app = TestApp::new(PROGRAM).start().await;
    let local = app.local();
    for (query, field) in [
        ("group_by=week", "group_by"),
        ("group_by=tenant", "group_by"),
        ("from=yesterday", "from"),
        ("to=2026-02-30", "to"),
        ("from=2026-01-02&to=2026-01-01T00:00:00Z", "to"),
    ] {
        let answer = local.client.get(&local.path(&format!("/usage?{query}"))).await;
        let problem = answer.problem(400);
        assert_eq!(
            (&problem["code"], &problem["field"]),
            (&json!("INVALID_REQUEST"), &json!(field))
        );
    }
    local.client.get(&local.path("/usage?by=day")).await.problem(400);
}
