//! The list of a tenant's executions over all conversations.

use serde_json::{Value, json};
use shikiri_testkit::TestApp;

use super::kit::Talk;
use crate::PROGRAM;

fn inputs(page: &Value) -> Vec<&str> {
    let items = page["items"].as_array().unwrap();
    items
        .iter()
        .map(|item| item["user_input"].as_str().unwrap().split_whitespace().next().unwrap())
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn executions_of_a_tenant_are_listed_and_filtered() {
    let app = TestApp::new(PROGRAM).start().await;
    let tenant = app.tenant("owner").await;
    app.client().patch("/v1/tenants/owner", &json!({ "model_id": "offline" })).await.expect(200);
    app.client()
        .post("/v1/models", &json!({ "id": "other", "engine": "offline" }))
        .await
        .expect(201);
    let (one, two) = (Talk::start(&tenant).await, Talk::start(&tenant).await);
    one.say("a\n#offline events=1").await;
    two.say("b\n#offline events=1 error=x").await;
    // Runs of agents are no executions.
    tenant.start_run("long_running_agent", json!({ "steps": 1, "step_ms": 1 })).await;
    let mut third = Talk::body("c\n#offline events=1");
    third["model_id"] = json!("other");
    third["executor"]["user_id"] = json!("太郎");
    let third = one.post(&third, &[("Accept", "application/json")]).await.expect(200);
    let list = async |query: &str| {
        tenant.client.get(&tenant.path(&format!("/executions{query}"))).await.expect(200)
    };
    let all = list("").await;
    assert_eq!((inputs(&all), &all["next_cursor"]), (vec!["c", "b", "a"], &Value::Null));
    assert_eq!(all["items"][0], third);
    let at = third["created_at"].as_str().unwrap();
    for (query, expected) in [
        ("?status=completed".to_owned(), vec!["c", "a"]),
        ("?status=failed".to_owned(), vec!["b"]),
        (format!("?conversation={}", one.id), vec!["c", "a"]),
        (format!("?conversation={}&status=failed", one.id), vec![]),
        ("?model=other".to_owned(), vec!["c"]),
        ("?user_id=%E5%A4%AA%E9%83%8E".to_owned(), vec!["c"]),
        (format!("?from={at}"), vec!["c"]),
        (format!("?to={at}"), vec!["b", "a"]),
        ("?from=2999-01-01".to_owned(), vec![]),
        ("?to=2001-01-01".to_owned(), vec![]),
    ] {
        assert_eq!(inputs(&list(&query).await), expected, "{query}");
    }
    // Page by page, also where a filter leaves out what lies between.
    for (filter, expected) in [("", vec!["c", "b", "a"]), ("&status=completed", vec!["c", "a"])] {
        let (mut seen, mut cursor) = (Vec::new(), String::new());
        loop {
            let page = list(&format!("?limit=1{filter}{cursor}")).await;
            seen.extend(inputs(&page).into_iter().map(str::to_owned));
            let Some(next) = page["next_cursor"].as_str() else { break };
            cursor = format!("&cursor={next}");
        }
        assert_eq!(seen, expected, "{filter}");
    }
    for wrong in ["?status=odd", "?from=x", "?from=2026-02-01&to=2026-01-01", "?limit=0", "?odd=1"]
    {
        tenant.client.get(&tenant.path(&format!("/executions{wrong}"))).await.problem(400);
    }
    let stranger = app.tenant("stranger").await;
    assert_eq!(
        stranger.client.get(&tenant.path("/executions")).await.problem(404)["code"],
        "TENANT_NOT_FOUND"
    );
    let foreign = stranger.path(&format!("/executions?conversation={}", one.id));
    assert_eq!(stranger.client.get(&foreign).await.expect(200)["items"], json!([]));
}
