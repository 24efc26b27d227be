//! Turns of the main thread alone: text, thinking, tools, resuming, being stopped.

use std::cell::OnceCell;
use std::time::{Duration, Instant};

use shikiri_model::execution::{ConversationMessage, MessageKind, MessageLog};
use shikiri_model::ids::TenantId;
use shikiri_model::native::session_history;
use shikiri_model::time::Timestamp;

use super::*;

each_engine! {
    text_comes_in_pieces_with_thinking_and_tools_between;
    a_session_is_resumed_with_a_new_system_prompt_and_a_bill_of_its_own;
    a_turn_that_is_stopped_in_mid_answer_ends_soon_and_tells_what_it_can;
    every_call_of_a_tool_is_tracked_to_its_end;
}

/// A call that cannot go well.
fn failing(world: &World, reply: Reply) -> Reply {
    match world.is_native() {
        true => reply.and_call("fail", json!({})),
        false => reply.and_call("Read", json!({ "file_path": "/no/such/file" })),
    }
}

async fn text_comes_in_pieces_with_thinking_and_tools_between(which: TestEngine) {
    let world = World::new(which).await;
    let text = "木漏れ日 and a text that is longer than one piece";
    let call = failing(&world, Reply::thinking("Let me look.").and_text(text));
    let replies = [call.usage(tokens(1)), world.echo("二").usage(tokens(2)), Reply::text("done")];
    world.model.script("go", replies);
    let order = TurnRequest { system_prompt: "You are terse.".into(), ..world.order("go") };
    let ended = world.run(order).await;

    assert_eq!(ended.result(), "done");
    assert_eq!(ended.processor.text(), format!("{text}done"));
    assert_eq!(ended.events[0].0, "session_start");
    assert_eq!(ended.events[0].1["model"], MODEL);
    assert_eq!(ended.of("thinking")[0]["text"], "Let me look.");
    let pieces: Vec<_> = ended.of("text_delta").into_iter().map(|d| d["text"].clone()).collect();
    assert!(pieces.len() > 3 && pieces[0] == "木漏れ日 and a t", "{pieces:?}");
    let kinds: Vec<_> = ended.events.iter().map(|(kind, _)| *kind).collect();
    let first = |kind: &str| kinds.iter().position(|k| *k == kind).unwrap();
    assert!(first("thinking") < first("text_delta") && first("text_delta") < first("tool_use"));
    let of_tools: Vec<_> = kinds.iter().filter(|kind| kind.starts_with("tool")).collect();
    assert_eq!(of_tools, [&"tool_use", &"tool_result", &"tool_use", &"tool_result"]);
    assert_eq!(ended.of("tool_result")[0]["is_error"], true);
    assert_eq!(ended.of("tool_result")[1]["content"], world.echoed("二"));
    ended.assert_exact(&world);

    let asked = world.model.messages();
    assert!(asked[0].body["system"].to_string().contains("You are terse."));
    // Thoughts go back as they came, signed.
    let said = asked[1].body["messages"].as_array().unwrap();
    let said = said.iter().find(|message| message["role"] == "assistant").unwrap();
    let thought = &said["content"][0];
    assert_eq!(
        (&thought["thinking"], &thought["signature"]),
        (&json!("Let me look."), &json!("ZmFrZQ=="))
    );
    let told = format!("{:?}", ended.account.messages);
    assert!(!told.contains("sk-ant-canary"), "{told}");
    if world.is_native() {
        assert_eq!(asked[0].tools(), ["echo", "look", "fail", "flood", "hang", "Task"]);
        // What stays the same is marked to be cached.
        let marks = |body: &serde_json::Value| body.to_string().matches("\"ephemeral\"").count();
        assert_eq!(asked.iter().map(|request| marks(&request.body)).collect::<Vec<_>>(), [3, 3, 3]);
    }
}

/// The order that goes on with the session of a turn. The CLI has it in its files; for the native
/// engines it is the log of the conversation's messages.
fn resuming(world: &World, first: &Outcome, said: &str, prompt: &str) -> TurnRequest {
    let session = first.session_id().to_owned();
    let user = ConversationMessage {
        kind: MessageKind::User,
        subtype: None,
        content: json!({ "type": "text", "text": said }),
        parent_tool_use_id: None,
        at: Timestamp::from_millis(0),
    };
    let messages = [&user].into_iter().chain(first.processor.messages());
    let log = messages.map(|message| MessageLog {
        id: String::new(),
        tenant: TenantId::local(),
        conversation: "cnv_1".parse().unwrap(),
        execution: "exe_1".parse().unwrap(),
        turn: 1,
        seq: 1,
        kind: message.kind,
        subtype: message.subtype.clone(),
        content: message.content.clone(),
        parent_tool_use_id: message.parent_tool_use_id.clone(),
        at: message.at,
    });
    let past = match world.is_native() {
        true => session_history(&log.collect::<Vec<_>>(), &session),
        false => Vec::new(),
    };
    let memory = ResumeState { past, ..ResumeState::default() };
    TurnRequest { resume: Some(session), memory, ..world.order(prompt) }
}

async fn a_session_is_resumed_with_a_new_system_prompt_and_a_bill_of_its_own(which: TestEngine) {
    let world = World::new(which).await;
    world.model.script("helper, work", [Reply::text("helped").usage(tokens(1))]);
    world.model.script("first", [world.spawn("helper, work"), Reply::text("one")]);
    world.model.script("second", [Reply::text("two").usage(tokens(2))]);
    let first = TurnRequest { system_prompt: "EARLIER-WORDS".into(), ..world.order("first") };
    let first = world.run(first).await;
    assert_eq!(first.result(), "one");
    first.assert_exact(&world);
    let before = world.model.spent().len();
    let again = resuming(&world, &first, "first", "second");
    let second = world.run(TurnRequest { system_prompt: "LATER-WORDS".into(), ..again }).await;

    assert_eq!(second.result(), "two");
    assert_eq!(second.session_id(), first.session_id());
    let asked = world.model.messages().pop().unwrap();
    assert!(asked.says("first") && asked.says("second"), "the context is back");
    let system = asked.body["system"].to_string();
    assert!(system.contains("LATER-WORDS") && !system.contains("EARLIER-WORDS"));
    let spent = world.model.spent().split_off(before);
    let spent: shikiri_model::execution::TokenUsage = spent.iter().map(|s| usage(&s.usage)).sum();
    assert_eq!(total(&second.rows()).0, spent);
    assert_eq!(second.warnings(), Vec::<&str>::new());
}

async fn a_turn_that_is_stopped_in_mid_answer_ends_soon_and_tells_what_it_can(which: TestEngine) {
    // A program is asked to end first.
    let limit = Duration::from_secs(if which.is_native() { 5 } else { 15 });
    let world = World::new(which).await;
    let slow = Reply::text(&"on and on ".repeat(2_000)).paced(Duration::from_millis(20));
    world.model.script("go", [slow.usage(tokens(0))]);
    let turn = async || {
        let begun = OnceCell::new();
        let enough = |m: &EngineMessage| {
            let is_text = matches!(m, EngineMessage::TextDelta { .. });
            if is_text {
                begun.get_or_init(Instant::now);
            }
            is_text
        };
        let ended = world.run_until(world.order("go"), enough).await;
        // All of the answer takes longer.
        let took = begun.get().unwrap().elapsed();
        assert!(took < limit, "{took:?}");
        ended
    };
    let ended = world.stopped(turn).await;
    assert_eq!(ended.error(), "aborted_streaming");
    assert!(ended.processor.text().starts_with("on and on"));
    assert_eq!(total(&ended.rows()).0.input_tokens, 1_000);
    assert_eq!(ended.warnings(), ["USAGE_INCOMPLETE"]);
}

async fn every_call_of_a_tool_is_tracked_to_its_end(which: TestEngine) {
    let world = World::new(which).await;
    let calls = failing(&world, world.echo("一"));
    world.model.script("helper, work", [world.echo("二"), Reply::text("helped")]);
    let calls = world.spawns(calls, "helper, work");
    world.model.script("go", [calls, Reply::text("done")]);
    let ended = world.run(world.order("go")).await;
    assert_eq!(ended.result(), "done");
    let tools = ended.processor.tools();
    assert_eq!(tools.len(), 4, "{tools:#?}");
    let of = |input: serde_json::Value| tools.iter().find(|tool| tool.tool_input == input).unwrap();
    let (outer, inner) = (of(world.echo_input("一")), of(world.echo_input("二")));
    assert_eq!((outer.is_error, inner.is_error), (Some(false), Some(false)));
    let spawn = tools.iter().find(|tool| tool.tool_name == world.which.task()).unwrap();
    assert_eq!(outer.parent_tool_use_id, None);
    assert_eq!(inner.parent_tool_use_id.as_ref(), Some(&spawn.tool_use_id));
    assert_eq!(tools.iter().filter(|tool| tool.is_error == Some(true)).count(), 1, "{tools:#?}");
    assert!(tools.iter().all(|tool| tool.ended_at.is_some()), "{tools:#?}");
    ended.assert_exact(&world);
}
