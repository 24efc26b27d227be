//! Whole turns: subagents side by side and inside each other, their bill, titles, the session.

use super::*;

each_engine! {
    turns_with_parallel_subagents_are_billed_to_the_token;
    what_the_model_cannot_do_is_told_and_billed;
    a_session_goes_on_in_another_process;
}

async fn turns_with_parallel_subagents_are_billed_to_the_token(which: TestEngine) {
    let world = World::start(which).await;
    let mut second = world.which.spawn("奈良を見よ");
    second["model"] = json!("haiku");
    let ask = Reply::thinking("どこ?").and_text("調べます。");
    let ask = world.spawns(ask, "京都を見よ").and_call(world.which.task(), second);
    world.model.script("都を調べて", [ask, Reply::text("京都と奈良です。")]);
    world.model.script("京都を見よ", [world.spawn("嵐山を見よ"), Reply::text("京都")]);
    world.model.script("嵐山を見よ", [Reply::text("嵐山")]);
    world.model.script("奈良を見よ", [Reply::text("奈良")]);
    let told = world.talk.say("都を調べて").await;
    let end = terminal(&told);
    assert_eq!(
        (end.kind.as_str(), &end.data["result"]),
        ("result", &json!("京都と奈良です。")),
        "{}",
        end.data
    );
    assert_eq!(text_of(&told), "調べます。京都と奈良です。");
    assert_eq!(of(&told, "thinking")[0]["text"], "どこ?");
    for kind in ["subagent_start", "subagent_end", "tool_use", "tool_result"] {
        assert_eq!(of(&told, kind).len(), 3, "{kind} in {:?}", kinds(&told));
    }
    assert_eq!(of(&told, "title")[0]["title"], TITLE);

    // Every call is tracked to its end, and the inner one belongs to the subagent that made it.
    let id = id_of(&told);
    let tools = world.talk.execution(&id, "/tools").await["items"].as_array().unwrap().clone();
    let of_prompt = |prompt: &str| {
        let found = tools.iter().find(|tool| tool["tool_input"]["prompt"] == prompt);
        found.unwrap_or_else(|| panic!("{prompt} in {tools:#?}"))
    };
    assert_eq!(tools.len(), 3, "{tools:#?}");
    let (kyoto, arashiyama) = (of_prompt("京都を見よ"), of_prompt("嵐山を見よ"));
    assert_eq!(arashiyama["parent_tool_use_id"], kyoto["tool_use_id"]);
    for tool in &tools {
        assert_eq!(tool["is_error"], false, "{tool}");
        assert!(tool["duration_ms"].is_u64() && tool["tool_name"] == world.which.task(), "{tool}");
    }

    let rows = world.assert_billed(&id, 0).await;
    assert_eq!(rows.iter().filter(|row| row["kind"] == "subagent").count(), 3, "{rows:#?}");
    assert!(rows.iter().any(|row| row["kind"] == "subagent" && row["model"] == LIGHT), "{rows:#?}");
    assert!(end.data["total_cost_usd"].as_f64().unwrap() > 0.0);
    assert!(world.asked("都を調べて").contains("合言葉は山"), "the tenant's system prompt");

    // The second turn knows the first, and is billed for itself.
    let before = world.model.spent().len();
    world.model.script("そして", [Reply::text("以上。")]);
    let next = world.talk.say("そして").await;
    assert_eq!((&next[0].data["resumed"], &next[0].data["turn"]), (&json!(true), &json!(2)));
    assert_eq!(of(&next, "title").len(), 0, "it has its title");
    assert!(world.asked("そして").contains("都を調べて"));
    let rows = world.assert_billed(&id_of(&next), before).await;
    assert!(rows.iter().all(|row| row["kind"] == "main"), "only this turn's: {rows:#?}");
}

async fn what_the_model_cannot_do_is_told_and_billed(which: TestEngine) {
    let world = World::start(which).await;
    // Refused, overloaded for a while, and for good: one retry is allowed.
    world.model.script("駄目", [Reply::error(400, "invalid_request_error")]);
    let busy = Reply::text("済み。").after_failures(1, 529, "overloaded_error");
    world.model.script("混雑", [busy]);
    world.model.script("満員", [Reply::error(429, "rate_limit_error")]);
    for (words, says) in [("駄目", Some("400")), ("混雑", None), ("満員", Some("429"))] {
        let before = world.model.spent().len();
        let told = world.talk.say(words).await;
        let end = terminal(&told);
        match says {
            None => assert_eq!(end.data["result"], "済み。", "{}", end.data),
            Some(says) => {
                assert!(end.data.to_string().contains(says), "{words}: {}", end.data);
                assert!(end.kind == "error" || end.data["is_error"] == true, "{}", end.data);
            }
        }
        world.assert_billed(&id_of(&told), before).await;
    }
    let log = world.app.log();
    assert!(!log.contains("sk-test-canary") && !log.contains("aws-test-secret"), "{log}");
}

async fn a_session_goes_on_in_another_process(which: TestEngine) {
    let mut world = World::start(which).await;
    world.model.script("都を調べて", [world.spawn("京都を見よ"), Reply::text("京都です。")]);
    world.model.script("京都を見よ", [Reply::text("京都")]);
    let told = world.talk.say("都を調べて").await;
    let session = terminal(&told).data["session_id"].clone();
    world.restart().await;
    world.model.script("次は", [Reply::text("大阪です。")]);
    let told = world.talk.say("次は").await;
    assert_eq!((&told[0].data["resumed"], &told[0].data["turn"]), (&json!(true), &json!(2)));
    assert_eq!(terminal(&told).data["session_id"], session);
    let said = world.asked("次は");
    assert!(said.contains("都を調べて") && said.contains("京都です。"), "{said}");
    assert!(said.contains("\"tool_result\""), "{said}");
    // A new session knows nothing of it.
    let forget = json!({ "session_id": null });
    world.talk.tenant.client.patch(&world.talk.path(""), &forget).await.expect(200);
    let told = world.talk.say("次は").await;
    assert_eq!(told[0].data["resumed"], false);
    assert!(!world.model.messages().pop().unwrap().says("都を調べて"));
}
