//! What goes wrong at the model's end.

use super::*;

#[tokio::test]
async fn a_request_that_the_model_refuses_is_an_error_in_its_own_words() {
    for world in worlds().await {
        world.model.script("go", [Reply::error(400, "invalid_request_error")]);
        let ended = world.run(world.order("go")).await;
        assert!(ended.error().contains("400 invalid_request_error"), "{}", ended.error());
        assert_eq!((ended.processor.text(), ended.rows().len()), ("", 0));
        assert_eq!(world.model.messages().len(), 1, "not asked again");
        ended.assert_exact(&world);
    }
}

#[tokio::test]
async fn an_overloaded_model_is_asked_again_and_in_the_end_given_up() {
    for world in worlds().await {
        for (status, kind) in
            [(529, "overloaded_error"), (429, "rate_limit_error"), (500, "api_error")]
        {
            let words = format!("busy {status}");
            let at_last = Reply::text("at last").after_failures(1, status, kind);
            world.model.script(&words, [at_last]);
            let ended = world.run(world.order(&words)).await;
            assert_eq!((ended.result(), ended.notes("api_retry")), ("at last", 1));
        }
        world.model.script("down", [Reply::error(529, "overloaded_error")]);
        let before = world.model.messages().len();
        let ended = world.run(world.order("down")).await;
        assert!(ended.error().contains("529"), "{}", ended.error());
        assert_eq!((ended.notes("api_retry"), world.model.messages().len() - before), (2, 3));
    }
}

#[tokio::test]
async fn a_stream_that_breaks_off_is_gone_on_with_and_billed() {
    for world in worlds().await {
        let broken = Reply::text("the first half").and_text("never sent").broken_off();
        world.model.script("go", [broken, Reply::text(" and the rest")]);
        let ended = world.run(world.order("go")).await;
        assert_eq!(ended.result(), " and the rest");
        assert_eq!(ended.processor.text(), "the first half and the rest");
        let asked = world.model.messages();
        assert_eq!(asked.len(), 2);
        assert_eq!(asked[1].body["messages"][1]["content"][0]["text"], "the first half");
        assert_eq!(ended.bill(), world.bill(), "{:#?}", ended.account.messages);
        assert_eq!(ended.warnings(), ["USAGE_INCOMPLETE"], "the output of the first is unknown");
    }
}

#[tokio::test]
async fn a_stream_that_breaks_off_again_and_again_is_given_up() {
    for world in worlds().await {
        let broken = || Reply::text("half").and_text("never sent").broken_off();
        world.model.answer(move |_| Some(broken()));
        let ended = world.run(world.order("go")).await;
        assert!(ended.error().contains("again and again"), "{}", ended.error());
        assert_eq!(ended.bill(), world.bill());
    }
}

#[tokio::test]
async fn nothing_works_without_a_key_and_a_wrong_one_is_told() {
    for world in worlds().await {
        let mut order = world.order("go");
        order.env.retain(|name, _| !name.contains("KEY"));
        let missing = world.engine.check(&order.model, &order.env).await.unwrap_err();
        let name = match world.kind {
            EngineKind::Bedrock => "AWS_ACCESS_KEY_ID",
            _ => "ANTHROPIC_API_KEY",
        };
        assert!(missing.0.contains(name), "{missing}");
        assert_eq!(world.run(order).await.outcome, Err(missing));
        assert_eq!(world.model.requests().len(), 0);
    }
    let world = World::new(EngineKind::Bedrock).await;
    let mut order = world.order("go");
    order.env.insert("AWS_SECRET_ACCESS_KEY".into(), "another-secret".into());
    let ended = world.run(order).await;
    let error = ended.error();
    assert!(error.contains("403 InvalidSignatureException"), "{error}");
    assert!(!error.contains("another-secret"));

    let world = World::new(EngineKind::Anthropic).await;
    // Some servers say in their complaints what they were sent.
    world.model.answer(|request| {
        let key = request.header("x-api-key").unwrap_or_default();
        Some(Reply::error(401, &format!("authentication_error {key}")))
    });
    let ended = world.run(world.order("go")).await;
    assert!(ended.error().contains("401 authentication_error"), "{}", ended.error());
    assert!(!format!("{:?}", ended.account.messages).contains("canary"));
}

#[tokio::test]
async fn a_conversation_that_has_grown_too_long_is_told_what_to_do() {
    for world in worlds().await {
        let long = "invalid_request_error: prompt is too long: 210000 tokens";
        world.model.script("go", [Reply::error(400, long)]);
        let ended = world.run(world.order("go")).await;
        assert!(ended.error().contains("new session"), "{}", ended.error());
    }
}

#[tokio::test]
async fn an_api_that_is_not_there_is_an_error_in_time() {
    for world in worlds().await {
        let mut order = world.order("go");
        for name in ["ANTHROPIC_BASE_URL", "ANTHROPIC_BEDROCK_BASE_URL"] {
            order.env.insert(name.into(), "http://127.0.0.1:1".into());
        }
        order.env.insert("CLAUDE_CODE_MAX_RETRIES".into(), "1".into());
        let ended = world.run(order).await;
        assert!(ended.error().contains("cannot be reached"), "{}", ended.error());
        assert_eq!(ended.notes("api_retry"), 1);
    }
}
