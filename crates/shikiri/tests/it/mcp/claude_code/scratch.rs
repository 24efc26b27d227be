use serde_json::json;
use shikiri_testkit::Reply;
use super::{World, call, versions};

#[tokio::test(flavor = "multi_thread")]
async fn explore_read() {
    for (program, protocol) in versions() {
        let world = World::start().await;
        let work = call("long_running_agent", json!({ "steps": 2, "step_ms": 5 }));
        let read = Reply::with(|r| {
            let uri = r.tool_results()[0].text.split_whitespace().find(|w| w.starts_with("shikiri://")).unwrap().to_owned();
            Reply::call("ReadMcpResourceTool", json!({ "server": "shikiri", "uri": uri })) });
        let search = Reply::with(|r| { eprintln!("=== read {:?}", r.tool_results()); Reply::call("ToolSearch", json!({"query":"select:mcp__shikiri__run_wait", "max_results": 5})) });
        let done = Reply::with(|r| { eprintln!("=== search {:?}", r.tool_results()); Reply::text("x") });
        world.model.script("work", [work, read, search, done]);
        let claude = world.claude(&program);
        claude.print("work").await;
        eprintln!("=== {protocol}");
        let first = &world.model.messages()[0];
        eprintln!("=== tools {:?}", first.tools());
        let text = first.body.to_string();
        for word in ["Agents are tools here", "mcp__shikiri__run_wait", "long_running_agent"] {
            eprintln!("=== {word} {:?}", text.find(word).map(|at| { let s: String = text.chars().skip(at.saturating_sub(400)).take(700).collect(); s }));
        }
    }
}
