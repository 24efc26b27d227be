//! What belongs to one session, key or tenant is hidden from all others.

use serde_json::{Value, json};
use shikiri_testkit::{Client, McpClient, ModernClient, Rng, TestApp};

use super::{count_runs, linked_run, yes};
use crate::PROGRAM;

async fn another_key(app: &TestApp) -> Client {
    let made =
        app.client().post("/v1/tenants/local/keys", &json!({ "name": "b" })).await.expect(201);
    app.client().with_key(made["key"].as_str().unwrap())
}

/// The refusal of an event id: its status, and the words, which must give nothing away.
async fn refusal(host: &McpClient, id: &str) -> (u16, Value) {
    let mut answer = host.resume(id).await;
    let status = answer.status;
    let messages = answer.rest().await;
    let [message] = &messages[..] else { panic!("0 events are wanted, not {messages:?}") };
    assert_eq!((answer.is_stream(), message.event_id.as_ref()), (false, None));
    (status, message.json["error"].clone())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_id_that_was_not_given_out_on_the_session_is_400_and_no_event() {
    let app = TestApp::new(PROGRAM).start().await;
    let client = app.client();
    let input = json!({ "steps": 3, "step_ms": 1 });
    let mut foreign_ids = Vec::new();
    // Another session of the same key, one of another key, and one of another tenant.
    let others = [client.clone(), another_key(&app).await, app.tenant("other").await.client];
    for other in &others {
        let other = McpClient::connect(other).await;
        let mut call = other.call("long_running_agent", input.clone()).await;
        call.rest().await;
        let mut stream = other.listen().await;
        stream.next().await;
        let seen = call.seen.into_iter().chain(stream.seen);
        foreign_ids.extend(seen.filter_map(|message| message.event_id));
    }
    assert!(foreign_ids.len() > 3 * 8);

    let host = McpClient::connect(&client).await;
    let mut call = host.call("long_running_agent", input).await;
    call.rest().await;
    let own = call.last_event_id().unwrap().to_owned();
    let number: u128 = own.parse().unwrap();
    let mut made_up: Vec<_> =
        ["", "0", "1", "-1", "abc", "00", "1e3", "0x1"].map(str::to_owned).into();
    made_up.extend([u64::MAX.to_string(), u128::MAX.to_string(), format!("{}0", u128::MAX)]);
    // Near one that is right, and the right one written otherwise.
    made_up.extend(
        [number - 1, number + 1, number ^ (1 << 56), number ^ (1 << 88)].map(|n| n.to_string()),
    );
    made_up.extend([format!("0{own}"), format!("+{own}"), format!("{own}.0")]);
    let mut rng = Rng::seeded("made-up event ids");
    made_up.extend((0..50).map(|_| {
        let seal = u128::from(rng.next()) & ((1 << 56) - 1);
        (number >> 56 << 56 | seal).to_string()
    }));
    let (status, words) = refusal(&host, &foreign_ids[0]).await;
    assert_eq!((status, &words["code"]), (400, &json!(-32602)));
    assert_eq!(words["data"]["reason"], "unknown_event_id");
    for id in foreign_ids.iter().chain(&made_up) {
        assert_eq!(refusal(&host, id).await, (400, words.clone()), "{id:?}");
    }
    assert_eq!(host.resume(&own).await.status, 200, "its own is still good");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_of_another_key_is_not_there() {
    let app = TestApp::new(PROGRAM).start().await;
    let host = McpClient::connect(&app.client()).await;
    let mut call = host.call("travel_agent", json!({ "step_ms": 1 })).await;
    let question = call.question().await;
    let last = call.last_event_id().unwrap().to_owned();
    for stranger in [another_key(&app).await, app.tenant("other").await.client] {
        let thief = host.through(&stranger);
        assert_eq!(thief.request("tools/list", json!({})).await.status, 404);
        assert_eq!(
            thief.notify("notifications/cancelled", json!({ "requestId": 1 })).await.status,
            404
        );
        assert_eq!(thief.answer(&question, yes("stolen")).await.status, 404);
        assert_eq!(thief.listen().await.status, 404);
        assert_eq!(thief.resume(&last).await.status, 404);
        assert_eq!(thief.delete().await.status, 404);
    }
    // It was not touched by any of that.
    assert_eq!(host.answer(&question, yes("mine")).await.status, 202);
    assert_eq!(call.result().await["structuredContent"]["notes"], "mine");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_question_is_answered_only_on_the_session_that_was_asked() {
    let app = TestApp::new(PROGRAM).start().await;
    let host = McpClient::connect(&app.client()).await;
    let mut call = host.call("travel_agent", json!({ "step_ms": 1 })).await;
    let question = call.question().await;
    let others = [app.client(), another_key(&app).await, app.tenant("other").await.client];
    for other in &others {
        let other = McpClient::connect(other).await;
        assert_eq!(other.answer(&question, yes("not asked")).await.status, 400);
        assert_eq!(other.fail(&question, 1, "not asked").await.status, 400);
    }
    host.answer(&question, yes("asked")).await;
    assert_eq!(call.result().await["structuredContent"]["notes"], "asked");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tenants_runs_are_not_there_for_another() {
    let app = TestApp::new(PROGRAM).start().await;
    let ours = McpClient::connect(&app.client()).await;
    let mut call = ours.call("travel_agent", json!({ "step_ms": 1 })).await;
    let question = call.question().await;
    let (question_id, run) = question["id"].as_str().unwrap().split_once('.').unwrap();

    let client = app.tenant("other").await.client;
    let older = McpClient::connect(&client).await;
    let newer = ModernClient::new(&client).with_tasks();
    for (tool, arguments) in [
        ("run_status", json!({ "run_id": run })),
        ("run_wait", json!({ "run_id": run })),
        ("run_cancel", json!({ "run_id": run })),
        ("run_update", json!({ "run_id": run, "input": { "destination": "Rome" } })),
        ("run_answer", json!({ "run_id": run, "question_id": question_id, "answer": yes("") })),
    ] {
        for result in
            [older.called(tool, arguments.clone()).await, newer.called(tool, arguments).await]
        {
            let error = &result["structuredContent"]["error"];
            assert_eq!(error["code"], "run_not_found", "{tool}: {result}");
        }
    }
    for uri in [format!("shikiri://runs/{run}"), format!("shikiri://runs/{run}/events")] {
        older.request("resources/read", json!({ "uri": uri })).await.error(-32002).await;
        newer.request("resources/read", json!({ "uri": uri })).await.error(-32602).await;
    }
    assert_eq!(older.result("resources/list", json!({})).await["resources"], json!([]));
    let complete = json!({
        "ref": { "type": "ref/resource", "uri": "shikiri://runs/{id}" },
        "argument": { "name": "id", "value": "run_" },
    });
    let completed = older.result("completion/complete", complete.clone()).await;
    assert_eq!(completed["completion"]["values"], json!([]));
    assert_eq!(
        ours.result("completion/complete", complete).await["completion"]["values"],
        json!([run])
    );

    // The same idempotency key is another tenant's own.
    let start = json!({
        "agent": "long_running_agent", "input": { "steps": 1, "step_ms": 0 },
        "idempotency_key": "one",
    });
    let theirs = linked_run(&older.called("run_agent", start.clone()).await);
    assert_ne!(linked_run(&ours.called("run_agent", start).await), theirs);
    assert_eq!(count_runs(&app.client(), "other").await, 1);
    let status = ours.called("run_status", json!({ "run_id": run })).await;
    assert_eq!(status["structuredContent"]["status"], "waiting", "nothing changed");
}
