//! Limits on turns, tokens and money that come with a request.

use super::*;

each_engine! {
    limits_come_with_the_request_and_the_end_names_the_one_that_was_reached,
        only native: "limits are refused for other engines";
    limits_are_given_on_the_command_line, only anthropic: "the command is the same for each";
}

async fn limits_come_with_the_request_and_the_end_names_the_one_that_was_reached(
    which: TestEngine,
) {
    let world = World::start(which).await;
    world.model.answer(|request| request.says("続けて").then(|| Reply::call("absent", json!({}))));
    let answer =
        world.talk.post(&body("続けて", json!({ "limits": { "max_turns": 2 } })), &[]).await;
    let told = events(&answer.text());
    let end = &terminal(&told).data;
    assert_eq!((&end["limit"], &end["is_error"]), (&json!("max_turns"), &json!(true)), "{end}");
    assert_eq!(end["errors"], json!(["stopped by the limit max_turns of 2"]));
    assert_eq!(end["num_turns"], 2);
    let dear = json!({ "limits": { "max_cost_usd": 0.0001 } });
    let told = events(&world.talk.post(&body("続けて", dear), &[]).await.text());
    assert_eq!(terminal(&told).data["limit"], "max_cost_usd");
    assert_eq!(terminal(&told).data["total_cost_usd"], 0.0, "it was not even asked");
    for (bad, field) in [
        (json!({ "max_turns": 0 }), "limits.max_turns"),
        (json!({ "max_cost_usd": -1 }), "limits.max_cost_usd"),
        (json!({ "subagent": { "max_tokens": 0 } }), "limits.max_tokens"),
    ] {
        let refused = world.talk.post(&body("x", json!({ "limits": bad })), &[]).await.expect(400);
        assert!(refused.to_string().contains(field), "{refused}");
    }
    let other = body("x", json!({ "model_id": "offline", "limits": { "max_turns": 1 } }));
    let refused = world.talk.post(&other, &[]).await.expect(400);
    assert!(refused.to_string().contains("anthropic or bedrock"), "{refused}");
}

async fn limits_are_given_on_the_command_line(which: TestEngine) {
    let world = World::start(which).await;
    world.model.answer(|request| request.says("続けて").then(|| Reply::call("absent", json!({}))));
    let cli = world.app.cli();
    let ended = tokio::task::spawn_blocking(move || {
        let engine = ["run", "続けて", "--engine", "anthropic"];
        let limits = ["--max-turns", "2", "--subagent-max-cost-usd", "0.5"];
        cli.run(&[&engine[..], &limits[..], &["--output", "stream-json"][..]].concat())
    });
    let ended = ended.await.unwrap();
    let lines = ended.stdout.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let result = lines.into_iter().find(|line| line["event"] == "result");
    let result = result.unwrap_or_else(|| panic!("{} {}", ended.stdout, ended.stderr));
    assert_eq!((&result["limit"], &result["num_turns"]), (&json!("max_turns"), &json!(2)));
}
