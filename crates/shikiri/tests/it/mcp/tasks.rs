//! The Tasks extension: a task is a durable run, seen by its caller.

use std::time::Duration;

use serde_json::{Value, json};
use shikiri_runtime::run::AgentError;
use shikiri_testkit::{Message, ModernClient, TestApp, have_postgres, until};

use super::served::{Barrier, Served, agent, waiter};
use super::{count_runs, yes};
use crate::PROGRAM;

fn task_id(created: &Value) -> String {
    assert_eq!(created["resultType"], "task", "{created}");
    created["taskId"].as_str().unwrap().to_owned()
}

async fn get(host: &ModernClient, task: &str) -> Value {
    host.task("get", task).await.result().await
}

/// Polls, as clients of tasks do.
async fn until_status(host: &ModernClient, task: &str, status: &str) -> Value {
    let mut last = Value::Null;
    until(status, async || {
        last = get(host, task).await;
        last["status"] == status
    })
    .await;
    last
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_becomes_a_task_that_is_polled_to_its_result() {
    let barrier = Barrier::new();
    let served = Served::start(vec![waiter(&barrier)]).await;
    let host = ModernClient::new(served.client()).with_tasks();
    let mut answer = host.call("waiter", json!({})).await;
    assert!(!answer.is_stream(), "the handle comes at once");
    let created = answer.result().await;
    let task = task_id(&created);
    assert_eq!(created["status"], "working");
    assert!(created["ttlMs"].as_u64().unwrap() > 0 && created["pollIntervalMs"].is_u64());
    until("it has begun", async || get(&host, &task).await["statusMessage"] == "began").await;
    let working = get(&host, &task).await;
    assert_eq!((&working["status"], working.get("result")), (&json!("working"), None));
    assert_eq!(working["resultType"], "complete");
    barrier.lift(1);
    let completed = until_status(&host, &task, "completed").await;
    assert_eq!(completed["taskId"], task.as_str());
    assert_eq!(completed["createdAt"], created["createdAt"]);
    assert_eq!(completed["result"]["structuredContent"], json!({ "done": true }));
    assert_eq!(completed["result"]["isError"], false);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_is_durable_before_its_handle_is_given_out() {
    let quick = |app: shikiri_testkit::Builder| app.env("SHIKIRI_NODE_LEASE_SECONDS", "0.6");
    let mut worlds = vec![quick(TestApp::new(PROGRAM)).start().await];
    if have_postgres("tasks after a kill") {
        worlds.push(quick(TestApp::new(PROGRAM).postgres()).start().await);
    }
    for mut app in worlds {
        let host = ModernClient::new(&app.client()).with_tasks();
        for _ in 0..3 {
            let input = json!({ "steps": 5, "step_ms": 20 });
            let task = task_id(&host.called("long_running_agent", input).await);
            app.restart().await;
            let found = get(&host, &task).await;
            assert_eq!(found["taskId"], task.as_str());
            let completed = until_status(&host, &task, "completed").await;
            assert_eq!(completed["result"]["structuredContent"], json!({ "steps": 5 }));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_asks_for_input_and_goes_on_with_it() {
    let app = TestApp::new(PROGRAM).start().await;
    let host = ModernClient::new(&app.client()).with_tasks();
    let task = task_id(&host.called("travel_agent", json!({ "step_ms": 1 })).await);
    let asking = until_status(&host, &task, "input_required").await;
    let (key, question) = asking["inputRequests"].as_object().unwrap().iter().next().unwrap();
    assert_eq!(question["method"], "elicitation/create");
    // What answers nothing is taken without harm.
    for responses in
        [json!({}), json!({ "q_unknown": yes("") }), json!({ key: { "action": "accept" } })]
    {
        let taken = host.update_task(&task, responses).await.result().await;
        assert_eq!(taken["resultType"], "complete");
        assert_eq!(get(&host, &task).await["inputRequests"], asking["inputRequests"]);
    }
    host.request("tasks/update", json!({ "taskId": task })).await.error(-32602).await;
    host.update_task(&task, json!({ key: yes("by boat") })).await.result().await;
    let completed = until_status(&host, &task, "completed").await;
    assert_eq!(completed["result"]["structuredContent"]["notes"], "by boat");
    assert_eq!(completed.get("inputRequests"), None);

    // Its key is used up: a late answer changes nothing.
    let no = json!({ key: { "action": "decline" } });
    host.update_task(&task, no).await.result().await;
    assert_eq!(get(&host, &task).await["result"], completed["result"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_is_cancelled_and_stays_so() {
    let app = TestApp::new(PROGRAM).start().await;
    let host = ModernClient::new(&app.client()).with_tasks();
    let input = json!({ "steps": 10_000, "step_ms": 5 });
    let task = task_id(&host.called("long_running_agent", input).await);
    for _ in 0..2 {
        host.task("cancel", &task).await.result().await;
        let cancelled = until_status(&host, &task, "cancelled").await;
        assert_eq!((cancelled.get("result"), cancelled.get("error")), (None, None));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_is_only_its_callers() {
    let app = TestApp::new(PROGRAM).start().await;
    let host = ModernClient::new(&app.client()).with_tasks();
    let task = task_id(&host.called("travel_agent", json!({ "step_ms": 1 })).await);
    let asking = until_status(&host, &task, "input_required").await;
    let key = asking["inputRequests"].as_object().unwrap().keys().next().unwrap();

    let path = "/v1/tenants/local/keys";
    let made = app.client().post(path, &json!({ "name": "colleague" })).await.expect(201);
    let colleague = app.client().with_key(made["key"].as_str().unwrap());
    for stranger in [colleague, app.tenant("other").await.client] {
        let stranger = host.through(&stranger);
        let mut words = Vec::new();
        for mut answer in [
            stranger.task("get", &task).await,
            stranger.task("cancel", &task).await,
            stranger.update_task(&task, json!({ key: yes("") })).await,
        ] {
            words.push(answer.error(-32602).await["message"].as_str().unwrap().to_owned());
        }
        let unknown = stranger.task("get", "run_0").await.error(-32602).await;
        let unknown = unknown["message"].as_str().unwrap().replace("run_0", &task);
        assert!(words.iter().all(|word| *word == unknown), "{words:?}, {unknown}");
    }
    // It may have gone to rest since it asked, and nothing else.
    let mut after = get(&host, &task).await;
    after["lastUpdatedAt"] = asking["lastUpdatedAt"].clone();
    assert_eq!(after, asking, "nothing changed");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_does_not_take_tasks_gets_none() {
    let app = TestApp::new(PROGRAM).start().await;
    let takes = ModernClient::new(&app.client()).with_tasks();
    let task = task_id(&takes.called("long_running_agent", json!({ "steps": 1 })).await);
    let plain = ModernClient::new(&app.client());
    for method in ["get", "update", "cancel"] {
        let mut answer = plain.task(method, &task).await;
        assert_eq!(answer.status, 400, "{method}");
        let error = answer.error(-32021).await;
        let missing = &error["data"]["requiredCapabilities"]["extensions"];
        assert!(missing["io.modelcontextprotocol/tasks"].is_object(), "{error}");
    }
    let listening = json!({ "notifications": { "taskIds": [task] } });
    plain.request("subscriptions/listen", listening).await.error(-32021).await;

    let input = json!({ "steps": 1, "step_ms": 1 });
    let result = plain.called("long_running_agent", input.clone()).await;
    assert_eq!(result["resultType"], "complete");
    // A client that stays to the end needs no handle.
    let waits = json!({ "steps": 1, "step_ms": 1, "wait": true });
    assert_eq!(takes.called("long_running_agent", waits).await["resultType"], "complete");
    // Bad arguments make no task.
    let refused = takes.called("long_running_agent", json!({ "steps": 0 })).await;
    assert_eq!((&refused["resultType"], &refused["isError"]), (&json!("complete"), &json!(true)));
    assert_eq!(count_runs(&app.client(), "local").await, 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_gave_up_has_completed_and_a_fault_of_ours_has_failed() {
    let gives_up =
        agent("gives_up", |_, _| async { Err(AgentError::new("NO_SEATS", "the train is full")) });
    let breaks =
        agent("breaks", |_, _| async { Err(AgentError::new("INTERNAL_ERROR", "not your fault")) });
    let served = Served::start(vec![gives_up, breaks]).await;
    let host = ModernClient::new(served.client()).with_tasks();
    let task = task_id(&host.called("gives_up", json!({})).await);
    let completed = until_status(&host, &task, "completed").await;
    let result = &completed["result"];
    assert_eq!(result["isError"], true);
    assert_eq!(
        result["structuredContent"],
        json!({ "error": { "code": "NO_SEATS", "message": "the train is full" } })
    );
    let task = task_id(&host.called("breaks", json!({})).await);
    let failed = until_status(&host, &task, "failed").await;
    assert_eq!((&failed["error"]["code"], failed.get("result")), (&json!(-32603), None));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_whose_caller_cannot_be_asked_is_not_booked() {
    let app = TestApp::new(PROGRAM).start().await;
    let host = ModernClient::new(&app.client()).with_capabilities(json!({})).with_tasks();
    let task = task_id(&host.called("travel_agent", json!({ "step_ms": 1 })).await);
    let completed = until_status(&host, &task, "completed").await;
    let result = &completed["result"]["structuredContent"];
    assert_eq!(
        (&result["booked"], &result["notes"]),
        (&json!(false), &json!(super::samples::UNASKED))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn only_listeners_of_a_task_are_told_and_of_every_change() {
    let app = TestApp::new(PROGRAM).start().await;
    let host = ModernClient::new(&app.client()).with_tasks();
    let task = task_id(&host.called("travel_agent", json!({ "step_ms": 1_500 })).await);
    let made =
        app.client().post("/v1/tenants/local/keys", &json!({ "name": "c" })).await.expect(201);
    let colleague = app.client().with_key(made["key"].as_str().unwrap());
    let mut deaf = host.through(&colleague).listen(json!({ "taskIds": [task] })).await;
    let mut stream = host.listen(json!({ "taskIds": [task] })).await;
    let accepted = &stream.seen[0].json["params"];
    assert_eq!(accepted["notifications"], json!({ "taskIds": [task] }));
    let subscription = accepted["_meta"]["io.modelcontextprotocol/subscriptionId"].clone();

    let status = |m: &Message| m.json["params"]["status"].clone();
    let asking = stream.until("a question", |m| status(m) == "input_required").await;
    let params = &asking.json["params"];
    assert_eq!(params["taskId"], task.as_str());
    assert_eq!(params["_meta"]["io.modelcontextprotocol/subscriptionId"], subscription);
    let key = params["inputRequests"].as_object().unwrap().keys().next().unwrap();
    host.update_task(&task, json!({ key: yes("") })).await.result().await;
    let completed = stream.until("its end", |m| status(m) == "completed").await;
    assert_eq!(completed.json["params"]["result"]["structuredContent"]["booked"], true);
    assert!(stream.seen[1..].iter().all(|m| m.method() == Some("notifications/tasks")));
    let heard = deaf.next_within(Duration::from_millis(300)).await;
    assert!(heard.is_err(), "not its task: {heard:?}");
}
