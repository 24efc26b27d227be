//! Servers that die or leave in the middle of a turn.

use shikiri_testkit::until;

use super::*;

each_engine! {
    a_killed_server_leaves_no_program_and_the_committed_session,
        only claude_code: "a native turn goes on";
    a_turn_goes_on_after_its_server_was_killed_and_one_with_secrets_does_not,
        only native: "what the CLI did is in its process";
    a_turn_is_handed_on_by_a_server_that_is_asked_to_end,
        only native: "what the CLI did is in its process";
}

async fn a_killed_server_leaves_no_program_and_the_committed_session(which: TestEngine) {
    let mut world = World::start(which).await;
    world.model.script("一", [Reply::text("壱")]);
    let first = world.talk.say("一").await;
    assert_eq!(terminal(&first).kind, "result", "{}", terminal(&first).data);
    let gate = Gate::new();
    let id = at_a_command(&world, "二の問い", Reply::text("弐").held(&gate)).await;
    let folder = world.app.data_folder();
    assert!(!processes_in(&folder).is_empty(), "the engine runs");
    world.app.kill9();
    until("no program is left", async || processes_in(&folder).is_empty()).await;

    world.restart().await;
    world.model.script("三の問い", [Reply::text("参")]);
    let next = world.talk.say("三の問い").await;
    assert_eq!(terminal(&next).data["result"], "参");
    assert_eq!(next[0].data["session_id"], first[0].data["session_id"]);
    let asked = world.asked("三の問い");
    assert!(asked.contains('壱'), "the first turn is known: {asked}");
    assert!(!asked.contains("二の問い"), "the lost turn is not: {asked}");
    let lost = events(&world.talk.follow(&id, 0).await);
    assert_eq!(terminal(&lost).data["code"], "INTERRUPTED");
    assert!(!world.usage(&id).await.is_empty(), "what it had spent is billed");
}

/// Requests of a turn in which the user said this.
fn count(world: &World, words: &str) -> usize {
    let all = world.model.messages();
    all.iter().filter(|request| request.says(words) && request.body.get("tools").is_some()).count()
}

async fn a_turn_goes_on_after_its_server_was_killed_and_one_with_secrets_does_not(
    which: TestEngine,
) {
    let mut world = World::start(which).await;
    let gate = Gate::new();
    let first = world.spawns(Reply::text("前半、"), "見よ");
    world.model.script("長い話", [first, Reply::text("後半。")]);
    world.model.script("見よ", [Reply::text("見た").held(&gate)]);
    let id = world.talk.begin("長い話").await;
    world.model.asked(PATIENCE, |request| request.says("見よ")).await;
    world.app.kill9();
    gate.open();
    world.restart().await;
    let told = events(&world.talk.follow(&id, 0).await);
    assert_eq!(terminal(&told).data["result"], "後半。", "{:?}", terminal(&told));
    assert_eq!(text_of(&told), "前半、後半。");
    let numbers: Vec<_> = told.iter().map(|event| event.id).collect();
    assert_eq!(numbers, (1..=numbers.len() as u64).collect::<Vec<_>>());
    assert_eq!(count(&world, "長い話"), 2, "the first reply was kept");
    assert_eq!(world.talk.record().await["turns"], 1);

    let gate = Gate::new();
    world.model.script("内緒", [Reply::text("秘").held(&gate)]);
    let secret = body("内緒", json!({ "tokens": { "t": "token-canary-77" } }));
    let begun = world.talk.post(&secret, &[("Prefer", "respond-async")]).await.expect(202);
    let id = begun["id"].as_str().unwrap().to_owned();
    world.model.asked(PATIENCE, |request| request.says("内緒")).await;
    world.app.kill9();
    gate.open();
    world.restart().await;
    let told = events(&world.talk.follow(&id, 0).await);
    assert_eq!(terminal(&told).data["code"], "INTERRUPTED");
}

async fn a_turn_is_handed_on_by_a_server_that_is_asked_to_end(which: TestEngine) {
    let mut world = World::start(which).await;
    let gate = Gate::new();
    world.model.script("長い話", [world.spawn("見よ"), Reply::text("済み。")]);
    world.model.script("見よ", [Reply::text("見た").held(&gate)]);
    let id = world.talk.begin("長い話").await;
    world.model.asked(PATIENCE, |request| request.says("見よ")).await;
    // It waits a while for the end of the turn, in vain.
    let (code, _) = world.app.terminate().await;
    assert_eq!(code, 0);
    gate.open();
    world.restart().await;
    let told = events(&world.talk.follow(&id, 0).await);
    assert_eq!(terminal(&told).data["result"], "済み。", "{:?}", terminal(&told));
    assert_eq!(count(&world, "長い話"), 2, "no kept reply was asked for again");
}
