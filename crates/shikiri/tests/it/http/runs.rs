//! Runs over REST: their open questions as one list, and keys that make a start repeatable.

use std::time::Duration;

use serde_json::{Value, json};
use shikiri_testkit::{TestApp, have_postgres, until};

use crate::PROGRAM;

async fn apps(what: &str) -> Vec<TestApp> {
    let mut apps = vec![TestApp::new(PROGRAM).start().await];
    if have_postgres(what) {
        apps.push(TestApp::new(PROGRAM).postgres().start().await);
    }
    apps
}

fn runs_of(page: &Value) -> Vec<String> {
    let items = page["items"].as_array().unwrap().iter();
    items.map(|item| item["run_id"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn open_questions_of_all_runs_are_one_list_and_a_person_answers_from_it() {
    for app in apps("open questions").await {
        let client = app.client();
        let mut runs = Vec::new();
        for town in ["京都", "Rome", "Oslo"] {
            let input = json!({ "destination": town, "step_ms": 1 });
            runs.push(app.start_run("travel_agent", input).await);
        }
        app.start_run("long_running_agent", json!({ "steps": 1, "step_ms": 1 })).await;
        let path = "/v1/tenants/local/questions";
        let all_ask = async || {
            client.get(path).await.expect(200)["items"].as_array().unwrap().len() == runs.len()
        };
        until("all ask", all_ask).await;
        let page = client.get(path).await.expect(200);
        assert_eq!(runs_of(&page), runs, "of the oldest run first");
        assert_eq!(page["next_cursor"], Value::Null);
        let first = &page["items"][0];
        assert_eq!((&first["agent"], &first["kind"]), (&json!("travel_agent"), &json!("human")));
        assert!(first["message"].as_str().unwrap().contains("京都"), "{first}");
        assert_eq!(first["schema"]["properties"]["confirm"]["type"], "boolean");
        assert!(first["deadline"].is_string() && first["deadline"] == first["expires_at"]);

        // Page by page, also when what the cursor names has been answered meanwhile.
        let head = client.get(&format!("{path}?limit=1")).await.expect(200);
        assert_eq!(runs_of(&head), runs[..1]);
        let answer = json!({ "question_id": first["question_id"], "answer": { "confirm": true } });
        let answers = format!("/v1/tenants/local/runs/{}/answers", runs[0]);
        client.post(&answers, &answer).await.expect(200);
        let cursor = head["next_cursor"].as_str().unwrap();
        let next = client.get(&format!("{path}?limit=1&cursor={cursor}")).await.expect(200);
        assert_eq!(runs_of(&next), runs[1..2]);
        let cursor = next["next_cursor"].as_str().unwrap();
        let last = client.get(&format!("{path}?limit=5&cursor={cursor}")).await.expect(200);
        assert_eq!((runs_of(&last), &last["next_cursor"]), (runs[2..].to_vec(), &Value::Null));
        let left = async || runs_of(&client.get(path).await.expect(200)) == runs[1..];
        until("the answered one is gone", left).await;

        let other = app.tenant("other").await;
        assert_eq!(
            other.client.get(&other.path("/questions")).await.expect(200)["items"],
            json!([])
        );
        other.client.get(path).await.expect(404);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_was_used_for_another_input_is_refused() {
    for app in apps("idempotency keys").await {
        let client = app.client();
        let start = async |agent: &str, steps: u32| {
            let input = json!({ "steps": steps, "step_ms": 1 });
            let body = json!({ "agent": agent, "input": input, "idempotency_key": "注文" });
            client.post("/v1/tenants/local/runs", &body).await
        };
        let first = start("long_running_agent", 1).await.expect(201);
        let again = start("long_running_agent", 1).await.expect(201);
        assert_eq!(again["id"], first["id"]);
        let refused = start("long_running_agent", 2).await.expect(422);
        assert_eq!(refused["code"], "IDEMPOTENCY_CONFLICT", "{refused}");
        let runs = client.get("/v1/tenants/local/runs").await.expect(200);
        assert_eq!(runs["items"].as_array().unwrap().len(), 1);
    }
}

/// Lane tools over REST go by the key, or by the name of one of several callers.
#[tokio::test(flavor = "multi_thread")]
async fn a_caller_over_rest_may_name_its_lane() {
    let app = TestApp::new(PROGRAM).env("SHIKIRI_PAGES", "offline").start().await;
    let client = app.client();
    let ask = async |lane: Option<&str>| {
        let body = json!({ "agent": "ask_chatgpt_web", "input": { "question": "?" } });
        let mut request = client.request(reqwest::Method::POST, "/v1/tenants/local/runs");
        if let Some(lane) = lane {
            request = request.header("shikiri-lane", lane);
        }
        let answer = request.json(&body).timeout(Duration::from_secs(60)).send().await.unwrap();
        let status = answer.status().as_u16();
        let started: Value = answer.json().await.unwrap();
        let Some(run) = started["id"].as_str() else { return (status, started) };
        let run = run.to_owned();
        until("the answer", async || app.local().run(&run).await["result"].is_object()).await;
        (status, app.local().run(&run).await["result"]["url"].clone())
    };
    let (left, right, own) = (ask(Some("left")).await, ask(Some("right")).await, ask(None).await);
    assert!(left != right && left != own && right != own, "{left:?} {right:?} {own:?}");
    assert_eq!((ask(Some("left")).await, ask(None).await), (left, own));
    let (status, refused) = ask(Some(&"x".repeat(65))).await;
    assert_eq!((status, &refused["field"]), (400, &json!("Shikiri-Lane")), "{refused}");
}
