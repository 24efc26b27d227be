//! The real Claude Code: what its main agent is told, what its agents spent, and the roles of a
//! workflow's agents.

use serde_json::json;
use shikiri_testkit::{Reply, claude_programs};

use super::real_cli::{ROLES, Way, World, call, task, text_of};

/// Quick subagents end before their transcripts are written, and a fork begins with an answer of its
/// parent.
#[tokio::test(flavor = "multi_thread")]
async fn quick_subagents_forks_and_the_main_agent_are_billed_to_the_token() {
    for (is_newest, program) in newest_first() {
        let world = World::start(&program, Way::Install).await;
        let roles = &ROLES[..4];
        let mut calls: Vec<_> = roles.iter().map(|role| call(role, true)).collect();
        if is_newest {
            calls[3]["subagent_type"] = json!("fork");
        }
        world.spawns("皆を働かせよ", &calls);
        for role in &roles[..3] {
            world.model.script(&task(role), [Reply::text("済み")]);
        }
        world.works(&task(roles[3]));
        let ended = world.cli.print("皆を働かせよ").await;
        assert_eq!(ended.result()["is_error"], false, "{ended:?}");
        world.bills_are_exact();
    }
}

/// No call that a hook sees names these agents: their roles are in their prompts.
#[tokio::test(flavor = "multi_thread")]
async fn agents_of_a_workflow_have_their_roles_while_they_work() {
    let Some((_, program)) = newest_first().into_iter().next() else { return };
    let world = World::start(&program, Way::Install).await;
    let roles = &ROLES[..3];
    let agents = roles.iter().map(|role| format!("() => agent({:?})", prompt_of(role)));
    let script = format!(
        "export const meta = {{ name: 'trial', description: 'd', phases: [{{ title: 'a' }}] }}\n\
         return await parallel([{}])\n",
        agents.collect::<Vec<_>>().join(", ")
    );
    let flow = Reply::call("Workflow", json!({ "script": script }));
    world.model.script("皆を働かせよ", [flow, Reply::text("終わり")]);
    roles.iter().for_each(|role| world.works(&task(role)));
    let ended = world.cli.print("皆を働かせよ").await;
    assert_eq!(ended.result()["is_error"], false, "{ended:?}");
    world.each_has_its_own(roles);
    let mut known = world.rows("SELECT role || ' ' || confidence FROM subagents ORDER BY role");
    known.sort();
    assert_eq!(known, ["coder exact", "scribe exact", "tester exact"]);
    world.bills_are_exact();
}

fn prompt_of(role: &str) -> String {
    format!("[ROLE:{role}] {}", task(role))
}

#[tokio::test(flavor = "multi_thread")]
async fn the_main_agent_is_told_before_any_tool_call_when_resumed_and_in_a_fork() {
    for (is_newest, program) in newest_first() {
        let mut world = World::start(&program, Way::Install).await;
        let file = world.cli.project().join(".shikiri/conventions.toml");
        let text = text_of("main");
        let rest = std::fs::read_to_string(&file).unwrap();
        std::fs::write(&file, format!("{rest}[main]\ntext = \"{text}\"\n")).unwrap();
        let heard = |world: &World| {
            let last = world.model.messages().pop().unwrap();
            last.body["messages"].to_string().matches(&text).count()
                + last.body["system"].to_string().matches(&text).count()
        };
        world.works("始めよ");
        let ended = world.cli.print("始めよ").await;
        let session = ended.result()["session_id"].as_str().unwrap().to_owned();
        for request in world.model.messages() {
            assert!(request.body.to_string().contains(&text), "with the first request");
        }
        assert_eq!(heard(&world), 1);
        world.cli = world.cli.arg("--resume").arg(&session);
        world.model.script("続けよ", [Reply::text("済み")]);
        world.cli.print("続けよ").await;
        assert_eq!(heard(&world), 1, "resumed");
        world.cli = world.cli.arg("--fork-session");
        world.model.script("分かれよ", [Reply::text("済み")]);
        world.cli.print("分かれよ").await;
        // An older version does not say that it forks.
        assert!(heard(&world) == 1 || !is_newest, "{} times in a fork", heard(&world));
    }
}

/// The programs that are installed, and whether each is the newest version.
fn newest_first() -> Vec<(bool, std::path::PathBuf)> {
    let newest = std::env::var_os("SHIKIRI_PEER_CLAUDE").map(std::path::PathBuf::from);
    let programs = claude_programs().into_iter();
    programs.map(|program| (Some(&program) == newest.as_ref(), program)).collect()
}
