//! Limits are kept before the call: what might go over one is not asked for.

use shikiri_model::execution::{ModelPrices, TokenPrice};

use super::*;

each_engine! {
    only native: "limits are refused for other engines";
    a_turn_ends_after_so_many_replies;
    a_request_that_could_go_over_the_tokens_is_not_sent;
    a_request_that_could_cost_too_much_is_not_sent;
    each_subagent_has_its_own_limit_and_the_turn_goes_on;
    a_reply_that_its_limit_cut_short_ends_the_turn_by_that_limit;
}

fn limits(value: Value) -> ExecutionLimits {
    serde_json::from_value(value).unwrap()
}

fn prices() -> PriceList {
    // 1 dollar for a million of input, 10 for a million of output.
    let (input, output) = (TokenPrice::from_micros(1_000_000), TokenPrice::from_micros(10_000_000));
    PriceList::new([(MODEL.to_owned(), ModelPrices { input, output, ..ModelPrices::default() })])
}

async fn a_turn_ends_after_so_many_replies(which: TestEngine) {
    let world = World::new(which).await;
    world.model.answer(|_| Some(echo("more")));
    let order = TurnRequest { limits: limits(json!({ "max_turns": 3 })), ..world.order("go") };
    let ended = world.run(order).await;
    assert_eq!(ended.error(), "stopped by the limit max_turns of 3");
    let finish = ended.finish();
    assert_eq!((finish.limit, finish.num_turns), (Some("max_turns"), 3));
    assert_eq!((world.model.messages().len(), world.tools.calls("echo")), (3, 3));
    ended.assert_exact(&world);
}

async fn a_request_that_could_go_over_the_tokens_is_not_sent(which: TestEngine) {
    let world = World::new(which).await;
    let each = shikiri_testkit::Usage { input_tokens: 900, output_tokens: 100, ..tokens(0) };
    world.model.answer(move |_| Some(echo("more").usage(each)));
    let order = TurnRequest { limits: limits(json!({ "max_tokens": 4_500 })), ..world.order("go") };
    let ended = world.run(order).await;
    assert_eq!(ended.finish().limit, Some("max_tokens"));
    let spent = total(&ended.rows()).0;
    assert!(spent.input_tokens + spent.output_tokens <= 4_500, "{spent:?}");
    // The last ones were sent with less room for the answer.
    let rooms: Vec<_> =
        world.model.messages().iter().map(|r| r.body["max_tokens"].as_u64().unwrap()).collect();
    assert!(rooms.len() >= 2 && rooms.is_sorted_by(|a, b| a > b), "{rooms:?}");
    ended.assert_exact(&world);
}

async fn a_request_that_could_cost_too_much_is_not_sent(which: TestEngine) {
    let world = World::new(which).await;
    let each = shikiri_testkit::Usage { input_tokens: 1_000, output_tokens: 500, ..tokens(0) };
    world.model.answer(move |_| Some(echo("more").usage(each)));
    let order = TurnRequest {
        limits: limits(json!({ "max_cost_usd": 0.02 })),
        prices: prices(),
        ..world.order("go")
    };
    let ended = world.run(order).await;
    assert_eq!(ended.finish().limit, Some("max_cost_usd"));
    let cost: f64 = total(&ended.rows()).0.output_tokens as f64 * 10e-6
        + total(&ended.rows()).0.input_tokens as f64 * 1e-6;
    assert!(cost > 0.005 && cost <= 0.02, "{cost}");
}

async fn each_subagent_has_its_own_limit_and_the_turn_goes_on(which: TestEngine) {
    let world = World::new(which).await;
    let spawn = |prompt: &str| json!({ "description": "d", "prompt": prompt });
    world.model.answer(|request| request.says("restless").then(|| echo("again")));
    world.model.script("quick", [Reply::text("quick one")]);
    let calls = Reply::call("Task", spawn("restless")).and_call("Task", spawn("quick"));
    world.model.script("go", [calls, Reply::text("done")]);
    let limits = limits(json!({ "subagent": { "max_turns": 2 } }));
    let ended = world.run(TurnRequest { limits, ..world.order("go") }).await;
    assert_eq!((ended.result(), ended.finish().limit), ("done", None));
    let heard = world.model.messages().pop().unwrap().tool_results();
    assert!(heard[0].is_error && heard[0].text.contains("max_turns of 2"), "{heard:?}");
    assert_eq!(heard[1].text, "quick one");
    ended.assert_exact(&world);
}

async fn a_reply_that_its_limit_cut_short_ends_the_turn_by_that_limit(which: TestEngine) {
    let world = World::new(which).await;
    let cut = Reply::text("only so").stop_reason("max_tokens");
    world.model.script("go", [cut]);
    let order = TurnRequest { limits: limits(json!({ "max_tokens": 3_000 })), ..world.order("go") };
    let ended = world.run(order).await;
    assert_eq!(
        (ended.finish().limit, ended.finish().result.as_str()),
        (Some("max_tokens"), "only so")
    );
    let room = world.model.messages()[0].body["max_tokens"].as_u64().unwrap();
    assert!(room < 3_000, "{room}");
}
