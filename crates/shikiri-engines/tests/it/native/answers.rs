//! Turns of the main thread alone: text, thinking, tools, being stopped.

use super::*;

#[tokio::test]
async fn text_comes_in_pieces_with_thinking_and_tools_between() {
    for world in worlds().await {
        let text = "木漏れ日 and a text that is longer than one piece";
        let call = Reply::thinking("Let me look.").and_text(text).and_call("fail", json!({}));
        let replies = [call.usage(tokens(1)), echo("二").usage(tokens(2)), Reply::text("done")];
        world.model.script("go", replies);
        let order = Order { system_prompt: "You are terse.".into(), ..world.order("go") };
        let ended = world.run(order).await;

        assert_eq!(ended.result(), "done");
        assert_eq!(ended.processor.text(), format!("{text}done"));
        assert_eq!(ended.events[0].0, "session_start");
        assert_eq!(ended.events[0].1["model"], MODEL);
        let pieces: Vec<_> =
            ended.of("text_delta").into_iter().map(|d| d["text"].clone()).collect();
        assert!(pieces.len() > 3 && pieces[0] == "木漏れ日 and a t", "{pieces:?}");
        let kinds: Vec<_> = ended.events.iter().map(|(kind, _)| *kind).collect();
        let first = |kind: &str| kinds.iter().position(|k| *k == kind).unwrap();
        assert!(first("thinking") < first("text_delta") && first("text_delta") < first("tool_use"));
        let of_tools: Vec<_> = kinds.iter().filter(|kind| kind.starts_with("tool")).collect();
        assert_eq!(of_tools, [&"tool_use", &"tool_result", &"tool_use", &"tool_result"]);
        assert_eq!(ended.of("tool_result")[0]["is_error"], true);
        assert_eq!(ended.of("tool_result")[1]["content"], "heard 二");
        ended.assert_exact(&world);

        let asked = world.model.messages();
        assert!(asked[0].body["system"].to_string().contains("You are terse."));
        assert_eq!(asked[0].tools(), ["echo", "look", "fail", "flood", "hang", "Task"]);
        // Thoughts go back as they came, signed.
        let thought = &asked[1].body["messages"][1]["content"][0];
        assert_eq!(
            (&thought["thinking"], &thought["signature"]),
            (&json!("Let me look."), &json!("ZmFrZQ=="))
        );
        // What stays the same is marked to be cached.
        let marks = |body: &Value| body.to_string().matches("\"ephemeral\"").count();
        assert_eq!(asked.iter().map(|request| marks(&request.body)).collect::<Vec<_>>(), [3, 3, 3]);
        let told = format!("{:?}", ended.account.messages);
        assert!(!told.contains("sk-ant-canary"), "{told}");
    }
}

#[tokio::test]
async fn calls_of_one_reply_are_made_at_the_same_time() {
    for world in worlds().await {
        let calls = echo("one").and_call("echo", json!({ "text": "two" }));
        let calls = calls.and_call("hang", json!({}));
        world.model.script("go", [calls]);
        let order = world.order("go");
        // The one that never answers does not keep the others from it.
        let two = std::sync::atomic::AtomicUsize::new(0);
        let ended = world
            .run_until(order, |m| {
                matches!(m, EngineMessage::ToolResult { .. })
                    && two.fetch_add(1, std::sync::atomic::Ordering::SeqCst) == 1
            })
            .await;
        assert_eq!(ended.finish().errors, ["aborted_tools"]);
        assert_eq!(ended.of("tool_result").len(), 2);
        assert_eq!((world.tools.calls("echo"), world.tools.calls("hang")), (2, 1));
    }
}

#[tokio::test]
async fn a_bad_call_is_told_to_the_model_and_a_long_answer_is_cut() {
    for world in worlds().await {
        let calls = Reply::call("echo", json!({ "text": 7 }))
            .and_call("nobody", json!({}))
            .and_call("flood", json!({}))
            .and_call("Task", json!({ "description": "no prompt" }));
        world.model.script("go", [calls, Reply::text("I see")]);
        let ended = world.run(world.order("go")).await;
        assert_eq!(ended.result(), "I see");
        assert_eq!(world.tools.calls("echo"), 0, "it was not called");
        let heard = world.model.messages()[1].tool_results();
        assert!(heard[0].is_error && heard[0].text.contains("/text"), "{heard:?}");
        assert!(heard[1].is_error && heard[1].text.contains("no tool \"nobody\""));
        assert!(!heard[2].is_error && heard[2].text.len() < 110 * 1024);
        assert!(heard[2].text.ends_with("of 3000000 bytes are shown]"));
        assert!(heard[3].is_error && heard[3].text.contains("prompt"));
        ended.assert_exact(&world);
    }
}

#[tokio::test]
async fn an_earlier_session_is_what_the_order_remembers() {
    for world in worlds().await {
        world.model.script("second", [Reply::text("two")]);
        let said = |role: &str, text: &str| json!({ "role": role, "content": [{ "type": "text", "text": text }] });
        let past = vec![said("user", "first"), said("assistant", "one")];
        let order = Order {
            resume: Some("the-session".to_owned()),
            memory: Memory { past, ..Memory::default() },
            ..world.order("second")
        };
        let ended = world.run(order).await;
        assert_eq!((ended.result(), ended.processor.session_id()), ("two", Some("the-session")));
        let asked = world.model.messages().pop().unwrap();
        assert!(asked.says("first") && asked.says("second"), "the context is back");
        ended.assert_exact(&world);
    }
}

#[tokio::test]
async fn a_turn_that_is_stopped_in_mid_answer_ends_soon_and_tells_what_it_can() {
    for world in worlds().await {
        let slow = Reply::text(&"on and on ".repeat(500)).paced(Duration::from_millis(20));
        world.model.script("go", [slow.usage(tokens(0))]);
        let begun = std::time::Instant::now();
        let enough = |m: &EngineMessage| matches!(m, EngineMessage::TextDelta { .. });
        let ended = world.run_until(world.order("go"), enough).await;
        assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
        assert_eq!(ended.error(), "aborted_streaming");
        assert!(ended.processor.text().starts_with("on and on"));
        assert_eq!(total(&ended.rows()).0.input_tokens, 1_000);
        assert_eq!(ended.warnings(), ["USAGE_INCOMPLETE"]);
    }
}

#[tokio::test]
async fn other_reasons_to_stop_are_ends_in_clear_words() {
    for world in worlds().await {
        let table = [
            ("max_tokens", "most tokens"),
            ("refusal", "refuses"),
            ("model_context_window_exceeded", "does not fit"),
        ];
        for (reason, words) in table {
            world.model.script(reason, [Reply::text("so far").stop_reason(reason)]);
            let ended = world.run(world.order(reason)).await;
            assert!(ended.error().contains(words), "{}", ended.error());
            assert_eq!(ended.finish().result, "so far");
        }
        let paused = [Reply::text("wait, ").stop_reason("pause_turn"), Reply::text("there")];
        world.model.script("pause", paused);
        let ended = world.run(world.order("pause")).await;
        assert_eq!((ended.result(), ended.processor.text()), ("there", "wait, there"));
    }
}
