//! Turns that do not come to their end: cancelled, out of time, without a key.

use std::time::Instant;

use shikiri_testkit::until;

use super::*;

each_engine! {
    a_turn_is_cancelled_in_mid_answer_and_is_billed;
    time_runs_out_for_a_native_turn_as_for_any;
    a_cancel_interrupts_the_program_and_bills_what_ended, only claude_code: "there is a program";
    a_turn_that_waits_for_another_process_is_cancelled_there,
        only native: "one of the CLI ends with its process";
    without_a_key_a_turn_is_refused_before_it_starts,
        only native: "the CLI may be logged in without one";
}

fn slow() -> Reply {
    Reply::text(&"長い ".repeat(3_000)).paced(Duration::from_millis(50))
}

async fn has_begun(world: &World, id: &str) {
    until("it has begun", async || !world.usage(id).await.is_empty()).await;
}

async fn a_turn_is_cancelled_in_mid_answer_and_is_billed(which: TestEngine) {
    let world = World::start(which).await;
    world.model.script("長い話", [slow()]);
    let id = world.talk.begin("長い話").await;
    has_begun(&world, &id).await;
    world.talk.cancel(&id).await.expect(200);
    let told = events(&world.talk.follow(&id, 0).await);
    assert_eq!(terminal(&told).data["code"], "CANCELLED");
    let execution = world.talk.execution(&id, "").await;
    assert_eq!(execution["usage"]["input_tokens"], 100);
    let record = world.talk.record().await;
    assert_eq!((&record["turns"], &record["session_id"]), (&json!(0), &Value::Null));
    let next = world.talk.post(&Talk::body("#x"), &[("Prefer", "respond-async")]).await;
    assert_eq!(next.status, 202, "the conversation is free");
}

async fn time_runs_out_for_a_native_turn_as_for_any(which: TestEngine) {
    const TIMEOUT: &str = "SHIKIRI_EXECUTION_TIMEOUT_SECONDS";
    // The CLI takes a while to say anything at all, and all take longer on a busy machine.
    let [first, others @ ..] = if which.is_native() { ["1", "5", "20"] } else { ["8", "30", "60"] };
    let mut world = World::start_with(which, &[(TIMEOUT, first)]).await;
    let gate = Gate::new();
    world.model.script("黙れ", [Reply::text("x").held(&gate)]);
    let begun = Instant::now();
    let told = world.talk.say("黙れ").await;
    assert_eq!(terminal(&told).data["code"], "TIMEOUT");
    assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", begun.elapsed());
    world.model.script("話せ", [slow()]);
    let mut told = world.talk.say("話せ").await;
    for seconds in others {
        if terminal(&told).kind == "result" {
            break;
        }
        world.app.set_env(TIMEOUT, seconds);
        world.restart().await;
        world.model.script("話せ", [slow()]);
        told = world.talk.say("話せ").await;
    }
    let end = terminal(&told);
    assert_eq!((end.kind.as_str(), &end.data["partial"]), ("result", &json!(true)));
    assert_eq!(end.data["result"], text_of(&told));
    assert!(!world.usage(&id_of(&told)).await.is_empty(), "what it has spent is billed");
    let record = world.talk.record().await;
    assert_eq!((&record["turns"], &record["title"]), (&json!(0), &Value::Null));
}

async fn a_cancel_interrupts_the_program_and_bills_what_ended(which: TestEngine) {
    let world = World::start(which).await;
    let id = at_a_command(&world, "長い仕事", Reply::text("終")).await;
    world.talk.cancel(&id).await.expect(200);
    let told = events(&world.talk.follow(&id, 0).await);
    assert_eq!(terminal(&told).data["code"], "CANCELLED");
    let folder = world.app.data_folder();
    until("no program is left", async || processes_in(&folder).is_empty()).await;
    assert!(!world.usage(&id).await.is_empty());
    assert_eq!(world.talk.record().await["session_id"], Value::Null);
}

async fn a_turn_that_waits_for_another_process_is_cancelled_there(which: TestEngine) {
    let mut world = World::start_with(which, &[("SHIKIRI_NODE_LEASE_SECONDS", "1")]).await;
    world.model.script("長い話", [slow()]);
    let id = world.talk.begin("長い話").await;
    has_begun(&world, &id).await;
    world.app.kill9();
    world.restart().await;
    world.talk.cancel(&id).await;
    let told = events(&world.talk.follow(&id, 0).await);
    assert_eq!(terminal(&told).data["code"], "CANCELLED");
    assert_eq!(world.talk.record().await["turns"], 0);
    let next = world.talk.post(&Talk::body("#x"), &[("Prefer", "respond-async")]).await;
    assert_eq!(next.status, 202, "the conversation is free");
}

async fn without_a_key_a_turn_is_refused_before_it_starts(which: TestEngine) {
    let app = TestApp::new(PROGRAM).env("ANTHROPIC_API_KEY", "").start().await;
    let record = json!({ "id": "m", "engine": which.name(), "model_name": "m",
        "env": { "AWS_SHARED_CREDENTIALS_FILE": "/nowhere", "AWS_CONFIG_FILE": "/nowhere" } });
    app.client().post("/v1/models", &record).await.expect(201);
    let talk = Talk::start(&app.local()).await;
    let refused = talk.post(&body("x", json!({ "model_id": "m" })), &[]).await;
    assert!(refused.status >= 400, "{}", refused.text());
    assert!(refused.text().contains("_KEY"), "{}", refused.text());
    let listed = talk.tenant.client.get(&talk.path("/executions")).await.expect(200);
    assert_eq!(listed["items"], json!([]), "nothing has begun");
}
