//! What subagents write and do, also where the CLI tells of it only if asked.

use super::*;

#[tokio::test]
async fn the_text_of_subagents_and_the_tools_of_nested_ones_are_told() {
    for cli in claude_programs() {
        let world = world_of(&cli).await;
        if !world.which.tells_of_nested() {
            continue;
        }
        let inner = [world.echo("deep").usage(tokens(1)), Reply::text("inner said so")];
        world.model.script("inner one", inner);
        world.model.script("outer one", [world.spawn("inner one"), Reply::text("outer said so")]);
        world.model.script("go", [world.spawn("outer one"), Reply::text("all done")]);
        let ended = world.run(world.order("go")).await;

        assert_eq!(ended.result(), "all done");
        let starts = ended.of("subagent_start");
        let [outer, inner] = &starts[..] else { panic!("{starts:?}") };
        for (start, text) in [(outer, "outer said so"), (inner, "inner said so")] {
            let told = ended.of("text_delta").into_iter().find(|told| told["text"] == text);
            let told = told.unwrap_or_else(|| panic!("{text} is not in {:#?}", ended.events));
            assert_eq!(told["parent_tool_use_id"], start["tool_use_id"], "{told}");
        }
        let calls = ended.of("tool_use");
        let deep = calls.iter().find(|call| call["tool_input"] == world.echo_input("deep"));
        let deep = deep.unwrap_or_else(|| panic!("{calls:#?}"));
        assert_eq!(deep["parent_tool_use_id"], inner["tool_use_id"]);
        let tools = ended.processor.tools();
        let call = tools.iter().find(|call| call.tool_input == world.echo_input("deep")).unwrap();
        assert_eq!(call.is_error, Some(false), "{call:?}");
        assert_eq!(ended.processor.text(), "all done", "it is not the main thread's text");
    }
}
