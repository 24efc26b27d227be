//! What goes wrong at the model's end.

use super::*;

each_engine! {
    a_stream_that_breaks_off_again_and_again_is_given_up,
        only native: "the CLI has its own patience";
    nothing_works_without_a_key_and_a_wrong_one_is_told,
        only native: "the CLI may be logged in without one";
    a_conversation_that_has_grown_too_long_is_told_what_to_do, only native: "the CLI compacts";
}

async fn a_stream_that_breaks_off_again_and_again_is_given_up(which: TestEngine) {
    let world = World::new(which).await;
    let broken = || Reply::text("half").and_text("never sent").broken_off();
    world.model.answer(move |_| Some(broken()));
    let ended = world.run(world.order("go")).await;
    assert!(ended.error().contains("again and again"), "{}", ended.error());
    assert_eq!(ended.bill(), world.bill());
}

async fn nothing_works_without_a_key_and_a_wrong_one_is_told(which: TestEngine) {
    let world = World::new(which).await;
    let mut order = world.order("go");
    order.env.retain(|name, _| !name.contains("KEY"));
    let missing = world.engine.check(&order.model, &order.env).await.unwrap_err();
    let name = match world.which {
        TestEngine::Bedrock => "AWS_ACCESS_KEY_ID",
        _ => "ANTHROPIC_API_KEY",
    };
    assert!(missing.0.contains(name), "{missing}");
    assert_eq!(world.run(order).await.outcome, Err(missing));
    assert_eq!(world.model.requests().len(), 0);
    // What the API says of a wrong one stands in `scenarios`; this is what Bedrock's signature says.
    if world.which == TestEngine::Bedrock {
        let mut order = world.order("go");
        order.env.insert("AWS_SECRET_ACCESS_KEY".into(), "another-secret".into());
        let ended = world.run(order).await;
        let error = ended.error();
        assert!(error.contains("403 InvalidSignatureException"), "{error}");
        assert!(!error.contains("another-secret"));
    }
}

async fn a_conversation_that_has_grown_too_long_is_told_what_to_do(which: TestEngine) {
    let world = World::new(which).await;
    let long = "invalid_request_error: prompt is too long: 210000 tokens";
    world.model.script("go", [Reply::error(400, long)]);
    let ended = world.run(world.order("go")).await;
    assert!(ended.error().contains("new session"), "{}", ended.error());
}
