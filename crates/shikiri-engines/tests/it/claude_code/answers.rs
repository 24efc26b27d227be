//! Turns of the main thread alone: text, thinking, tools, resuming, being stopped.

use serde_json::json;
use shikiri_model::execution::EngineMessage;
use shikiri_testkit::{Reply, Usage, claude_programs, wait_until};

use super::*;

const TOKENS: Usage = Usage {
    input_tokens: 123,
    output_tokens: 45,
    cache_read_input_tokens: 6,
    cache_creation_input_tokens: 17,
    cache_creation_1h_input_tokens: 7,
};

#[tokio::test]
async fn text_comes_in_pieces_with_thinking_and_tools_between() {
    for cli in claude_programs() {
        let world = World::new(&cli).await;
        let text = "木漏れ日 and a text that is longer than one piece";
        let missing = json!({ "file_path": "/no/such/file" });
        let call = Reply::thinking("Let me look.").and_text(text).and_call("Read", missing);
        let bash = Reply::call("Bash", json!({ "command": "echo in the $(basename $PWD)" }));
        world.model.script("go", [call.usage(TOKENS), bash.usage(TOKENS), Reply::text("done")]);
        let order = Order { system_prompt: "You are terse.".into(), ..world.order("go") };
        let ended = world.run(order).await;

        assert_eq!(ended.result(), "done");
        assert_eq!(ended.processor.text(), format!("{text}done"));
        assert_eq!(ended.events[0].0, "session_start");
        assert_eq!(ended.events[0].1["model"], MODEL);
        assert_eq!(ended.of("thinking")[0]["text"], "Let me look.");
        let pieces: Vec<_> =
            ended.of("text_delta").into_iter().map(|d| d["text"].clone()).collect();
        assert!(pieces.len() > 3 && pieces[0] == "木漏れ日 and a t", "{pieces:?}");
        let kinds: Vec<_> = ended.events.iter().map(|(kind, _)| *kind).collect();
        let of_tools: Vec<_> = kinds.iter().filter(|kind| kind.starts_with("tool")).collect();
        assert_eq!(of_tools, [&"tool_use", &"tool_result", &"tool_use", &"tool_result"]);
        assert_eq!(ended.of("tool_result")[0]["is_error"], true);
        assert_eq!(ended.of("tool_result")[1]["content"], "in the work");
        let asked = world.model.messages();
        assert!(asked[0].body["system"].to_string().contains("You are terse."));
        ended.assert_exact(&world);
        assert_eq!(world.processes(), Vec::<String>::new());
    }
}

#[tokio::test]
async fn a_session_is_resumed_with_a_new_system_prompt_and_a_bill_of_its_own() {
    for cli in claude_programs() {
        let world = World::new(&cli).await;
        let spawn = json!({
            "description": "d", "prompt": "helper, work", "subagent_type": "general-purpose",
            "run_in_background": false,
        });
        world.model.script("helper, work", [Reply::text("helped").usage(TOKENS)]);
        world.model.script("first", [Reply::call("Agent", spawn), Reply::text("one")]);
        world.model.script("second", [Reply::text("two").usage(TOKENS)]);
        let order = |prompt: &str, system: &str, resume: Option<String>| Order {
            system_prompt: system.to_owned(),
            resume,
            ..world.order(prompt)
        };
        let first = world.run(order("first", "EARLIER-WORDS", None)).await;
        assert_eq!(first.result(), "one");
        first.assert_exact(&world);
        let before = world.model.spent().len();
        let again = Some(first.session_id().to_owned());
        let second = world.run(order("second", "LATER-WORDS", again)).await;

        assert_eq!(second.result(), "two");
        assert_eq!(second.session_id(), first.session_id());
        let asked = world.model.messages().pop().unwrap();
        assert!(asked.says("first") && asked.says("second"), "the context is back");
        let system = asked.body["system"].to_string();
        assert!(system.contains("LATER-WORDS") && !system.contains("EARLIER-WORDS"));
        let spent = world.model.spent().split_off(before);
        let spent: shikiri_model::execution::Usage = spent.iter().map(|s| usage(&s.usage)).sum();
        assert_eq!(total(&second.rows()).0, spent);
        assert_eq!(second.warnings(), Vec::<&str>::new());
    }
}

#[tokio::test]
async fn a_turn_that_is_stopped_in_mid_answer_ends_soon_and_tells_what_it_can() {
    for cli in claude_programs() {
        let world = World::new(&cli).await;
        let slow = Reply::text(&"on and on ".repeat(500)).paced(Duration::from_millis(50));
        world.model.script("go", [slow.usage(TOKENS)]);
        let enough = |m: &EngineMessage| matches!(m, EngineMessage::TextDelta { .. });
        let begun = std::time::Instant::now();
        let ended = world.run_until(world.order("go"), enough).await;

        assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
        assert_eq!(ended.outcome, Ok(()));
        let finish = ended.processor.finish().unwrap();
        assert!(finish.is_error && finish.errors == ["aborted_streaming"], "{finish:?}");
        assert!(ended.processor.text().starts_with("on and on"));
        assert_eq!(total(&ended.rows()).0.input_tokens, 123);
        assert_eq!(ended.warnings(), ["USAGE_INCOMPLETE"]);
        assert_eq!(world.processes(), Vec::<String>::new());
    }
}

#[tokio::test]
async fn a_turn_that_is_stopped_or_dropped_in_a_command_leaves_no_process() {
    for cli in claude_programs() {
        let world = World::new(&cli).await;
        // A plain `sleep` is refused by newer versions.
        let command = "touch begun; while :; do sleep 1; done";
        let slow = || Reply::call("Bash", json!({ "command": command }));
        world.model.script("go", [slow()]);
        let begun = world.work().join("begun");
        let (told, mut heard) = Told::channel();
        let stop = CancellationToken::new();
        let running = world.engine.run(world.order("go"), told, stop.clone());
        tokio::select! {
            ended = running => panic!("it ended: {ended:?}"),
            () = async { while heard.recv().await.is_some() {} } => panic!("it told no more"),
            () = wait_until("the command runs", PATIENCE, async || begun.exists()) => {}
        }
        // The future is dropped here.
        wait_until_gone(&world).await;

        std::fs::remove_file(&begun).unwrap();
        let asked = |m: &EngineMessage| matches!(m, EngineMessage::ToolUse(_));
        let ended = world.run_until(world.order("go"), asked).await;
        let finish = ended.processor.finish().unwrap();
        assert_eq!(finish.errors, ["aborted_tools"], "{finish:?}");
        assert_eq!(world.processes(), Vec::<String>::new());
    }
}

/// A dropped run is killed at once, but nobody waits for that.
async fn wait_until_gone(world: &World) {
    let is_gone = async || world.processes().is_empty();
    wait_until("no process is left", Duration::from_secs(2), is_gone).await;
}
