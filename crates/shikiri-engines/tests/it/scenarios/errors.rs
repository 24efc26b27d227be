//! What goes wrong at the model's end.

use super::*;

each_engine! {
    a_request_that_the_model_refuses_is_an_error_in_its_own_words;
    a_model_that_is_not_known_is_an_error_that_says_so;
    a_wrong_key_is_told_and_never_shown;
    an_overloaded_model_is_asked_again_and_in_the_end_given_up;
    a_stream_that_breaks_off_is_repaired_or_given_up_and_billed;
    an_api_that_is_not_there_is_an_error_in_time;
}

async fn a_request_that_the_model_refuses_is_an_error_in_its_own_words(which: TestEngine) {
    let world = World::new(which).await;
    world.model.script("go", [Reply::error(400, "invalid_request_error")]);
    let ended = world.run(world.order("go")).await;
    let told = ended.error();
    assert!(told.contains("400"), "{told}");
    assert!(!world.is_native() || told.contains("400 invalid_request_error"), "{told}");
    assert_eq!(ended.processor.text(), "", "the engine's words are not the model's");
    assert_eq!(ended.rows(), []);
    // Newer versions of the CLI ask once more all the same.
    assert!(!world.is_native() || world.model.messages().len() == 1, "asked again");
    ended.assert_exact(&world);
}

async fn a_model_that_is_not_known_is_an_error_that_says_so(which: TestEngine) {
    let world = World::new(which).await;
    world.model.script("go", [Reply::error(404, "not_found_error")]);
    let ended = world.run(world.order("go")).await;
    // The CLI puts it into words of its own, with the model's name.
    let told = ended.error();
    assert!(told.contains("404") || told.contains(MODEL), "{told}");
    assert_eq!(ended.rows(), []);
    ended.assert_exact(&world);
}

async fn a_wrong_key_is_told_and_never_shown(which: TestEngine) {
    let world = World::new(which).await;
    // Some servers say in their complaints what they were sent.
    world.model.answer(|request| {
        let key = request.header("x-api-key").or(request.header("authorization"));
        Some(Reply::error(401, &format!("authentication_error {}", key.unwrap_or_default())))
    });
    let ended = world.run(world.order("go")).await;
    assert!(ended.error().contains("401"), "{}", ended.error());
    let told = format!("{:?}", ended.account.messages);
    assert!(!told.contains("sk-ant-canary") && !told.contains("fake-secret"), "{told}");
    assert_eq!(ended.rows(), []);
}

async fn an_overloaded_model_is_asked_again_and_in_the_end_given_up(which: TestEngine) {
    let world = World::new(which).await;
    for (status, kind) in [(529, "overloaded_error"), (429, "rate_limit_error"), (500, "api_error")]
    {
        let words = format!("busy {status}");
        let at_last = Reply::text("at last").after_failures(1, status, kind);
        world.model.script(&words, [at_last]);
        let before = world.bill();
        let ended = world.run(world.order(&words)).await;
        assert_eq!((ended.result(), ended.notes("api_retry")), ("at last", 1), "{status}");
        assert_eq!(ended.retries(), 1, "{status}");
        let spent = world.bill()[&None].input_tokens;
        let spent = spent - before.get(&None).map_or(0, |usage| usage.input_tokens);
        assert_eq!(total(&ended.rows()).0.input_tokens, spent, "{status}");
        assert_eq!(ended.warnings(), Vec::<&str>::new());
    }
    world.model.script("down", [Reply::error(529, "overloaded_error")]);
    let before = world.model.messages().len();
    let ended = world.run(world.order("down")).await;
    assert!(ended.error().contains("529"), "{}", ended.error());
    assert_eq!((ended.notes("api_retry"), world.model.messages().len() - before), (2, 3));
    assert_eq!(ended.retries(), 2);
}

async fn a_stream_that_breaks_off_is_repaired_or_given_up_and_billed(which: TestEngine) {
    let world = World::new(which).await;
    let broken = Reply::text("the first half").and_text("never sent").broken_off();
    world.model.script("go", [broken, Reply::text(" and the rest")]);
    let ended = world.run(world.order("go")).await;
    let asked = world.model.messages();
    match world.model.spent().len() {
        // Older versions of the CLI give up.
        1 if !world.is_native() => {
            assert!(ended.error().contains("overloaded"), "{:#?}", ended.account.messages);
            assert_eq!(ended.processor.text(), "the first half");
        }
        requests => {
            assert_eq!((requests, ended.result().trim()), (2, "and the rest"));
            assert_eq!(ended.processor.text(), "the first half and the rest");
        }
    }
    if world.is_native() {
        assert_eq!((asked.len(), ended.result()), (2, " and the rest"));
        assert_eq!(asked[1].body["messages"][1]["content"][0]["text"], "the first half");
    }
    assert_eq!(ended.bill(), world.bill(), "{:#?}", ended.account.messages);
    assert_eq!(ended.warnings(), ["USAGE_INCOMPLETE"], "the output of the first is unknown");
}

async fn an_api_that_is_not_there_is_an_error_in_time(which: TestEngine) {
    let world = World::new(which).await;
    let mut order = world.order("go");
    for name in ["ANTHROPIC_BASE_URL", "ANTHROPIC_BEDROCK_BASE_URL"] {
        order.env.insert(name.into(), "http://127.0.0.1:1".into());
    }
    order.env.insert("CLAUDE_CODE_MAX_RETRIES".into(), "1".into());
    let ended = world.run(order).await;
    if world.is_native() {
        assert!(ended.error().contains("cannot be reached"), "{}", ended.error());
    }
    assert!(!ended.error().is_empty());
    assert_eq!((ended.notes("api_retry"), ended.rows().len()), (1, 0));
}
