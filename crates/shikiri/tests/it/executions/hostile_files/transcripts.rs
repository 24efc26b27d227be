//! The transcripts of subagents, which the server reads while the CLI works.

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn pipes_as_transcripts_are_not_waited_for() {
    let world = HostileWorld::start(false).await;
    world.run("mkfifo $subagents/agent-x.jsonl").await;
    world.assert_alive().await;
    let many = "for n in $(seq 600); do echo $subagents/agent-$n.jsonl; done | xargs mkfifo";
    world.run(many).await;
    world.assert_alive().await;
    // A pipe beside a transcript, and a link to a file without end.
    world.run("cd $subagents; rm -f *; mkfifo a; ln -s /dev/zero agent-z.jsonl").await;
    let folder = world.home().join("claude/projects/p/s1/subagents");
    std::fs::rename(folder.join("a"), folder.join("agent-y.meta.json")).unwrap();
    std::fs::write(folder.join("agent-y.jsonl"), "{\"type\":\"assistant\"}\n").unwrap();
    world.run("true").await;
    world.assert_alive().await;
    world.delete_conversation().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sparse_transcripts_do_not_fill_memory() {
    let mut world = HostileWorld::start(false).await;
    world.run("truncate -s 3G $subagents/agent-a.jsonl").await;
    world.run("echo > $subagents/agent-b.jsonl; truncate -s 3G $subagents/agent-b.meta.json").await;
    world.run("for n in $(seq 50); do truncate -s 3G $subagents/agent-$n.jsonl; done").await;
    world.assert_alive().await;
    assert!(world.peak_memory() < 512 * 1024 * 1024);
}
