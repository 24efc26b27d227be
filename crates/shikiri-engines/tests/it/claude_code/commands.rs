//! Commands and subagents that outlast what started them.

use shikiri_testkit::{ModelRequest, until};

use super::*;

/// The input of a call that spawns one without waiting for it.
fn background(prompt: &str) -> serde_json::Value {
    json!({
        "description": "d", "prompt": prompt, "subagent_type": "general-purpose",
        "run_in_background": true,
    })
}

#[tokio::test]
async fn a_turn_lasts_until_the_model_has_heard_of_all_that_ran_in_the_background() {
    for cli in claude_programs() {
        let world = world_of(&cli).await;
        let spawns = Reply::call("Agent", background("slow one"))
            .and_call("Agent", background("quick one"))
            .and_call(
                "Bash",
                json!({ "command": "sleep 1; sleep 600", "run_in_background": true }),
            );
        world.model.script("quick one", [Reply::text("quick").usage(tokens(1))]);
        let slow = Reply::call("Bash", json!({ "command": "sleep 1; sleep 1; echo slow" }));
        world
            .model
            .script("slow one", [slow.usage(tokens(2)), Reply::text("slow").usage(tokens(3))]);
        // What the model says when it hears of an end: it hears of one or of both at a time.
        let heard = |request: &ModelRequest| {
            let text = request.body["messages"].to_string();
            let ends = text.matches("<task-notification>").count();
            Reply::text(&format!("heard of {ends}")).usage(tokens(5))
        };
        let later = (0..4).map(|_| Reply::with(heard));
        let first = [spawns.usage(tokens(4)), Reply::text("they work")];
        world.model.script("go", first.into_iter().chain(later));
        let ended = world.run(world.order("go")).await;

        assert_eq!(ended.result(), "heard of 2");
        assert!(ended.processor.text().starts_with("they work"), "{}", ended.processor.text());
        assert_eq!((ended.count("subagent_start"), ended.count("subagent_end")), (2, 2));
        assert!(ended.of("subagent_end").iter().all(|end| end["is_error"] == false));
        ended.assert_exact(&world);
        assert_eq!(world.processes(), Vec::<String>::new(), "not even the command");
    }
}

#[tokio::test]
async fn a_turn_that_is_stopped_or_dropped_in_a_command_leaves_no_process() {
    for cli in claude_programs() {
        let world = world_of(&cli).await;
        // A plain `sleep` is refused by newer versions.
        let command = "touch begun; while :; do sleep 1; done";
        let slow = || Reply::call("Bash", json!({ "command": command }));
        world.model.script("go", [slow()]);
        let begun = world.work().join("begun");
        let (told, mut heard) = EngineSender::channel();
        let stop = CancellationToken::new();
        let running = world.engine.run(world.order("go"), told, stop.clone());
        tokio::select! {
            ended = running => panic!("it ended: {ended:?}"),
            () = async { while heard.recv().await.is_some() {} } => panic!("it told no more"),
            () = until("the command runs", async || begun.exists()) => {}
        }
        // The future is dropped here. It is killed at once, but that is not waited for.
        until_gone(&world.home()).await;

        std::fs::remove_file(&begun).unwrap();
        let asked = |m: &EngineMessage| matches!(m, EngineMessage::ToolUse(_));
        let ended = world.stopped(async || world.run_until(world.order("go"), asked).await).await;
        let finish = ended.finish();
        assert_eq!(finish.errors, ["aborted_tools"], "{finish:?}");
        assert_eq!(world.processes(), Vec::<String>::new());
    }
}
