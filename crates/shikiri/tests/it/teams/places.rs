//! However few places there are for agents that the server starts: the one that is waited for gets one.

use serde_json::json;
use shikiri_testkit::{TestApp, until};

use super::coordinator::{GAME, Office, server};
use super::world::Project;

/// As many talks at once as there are places: each needs its partner besides.
#[tokio::test(flavor = "multi_thread")]
async fn talks_that_begin_at_once_do_not_keep_each_others_partners_out() {
    let app: TestApp = server().env("SHIKIRI_DIALOGUE_PENDING_SECONDS", 30).start().await;
    let project = Project::start(&app.local(), "p", &[]).await;
    for name in ["a1", "a2", "a3", "b1", "b2", "b3"] {
        project.add_started(name).await;
    }
    let mut delegated = Vec::new();
    for pair in ["1", "2", "3"] {
        let worker = project.login(&format!("a{pair}"), "task").await;
        let partner = project.agent(&format!("b{pair}"));
        let purpose = format!("{partner}と6往復しりとりをしてほしい");
        let wanted = json!({ "target_agent_id": partner, "purpose": purpose });
        worker.call("delegate_to_chat_session", wanted).await;
        delegated.push(worker);
    }
    until("three games", async || {
        let dialogues = project.list("dialogues").await;
        dialogues.iter().filter(|one| one["state"] == "ended").count() == 3
    })
    .await;
    for dialogue in project.list("dialogues").await {
        assert_eq!(dialogue["messages"], 12, "{dialogue:#}");
        assert_eq!(dialogue["end_reason"], "max_turns", "{dialogue:#}");
    }
    for worker in delegated {
        let told = worker.next_action().await;
        assert_eq!(
            (&told["action"], &told["status"]),
            (&json!("delegation_result"), &json!("completed"))
        );
    }
}

/// A task, the talk that it waits for, and the partner of that: three, with one place.
#[tokio::test(flavor = "multi_thread")]
async fn a_task_with_a_talk_is_done_with_one_place_and_with_two() {
    for places in [1, 2] {
        let app = server().env("SHIKIRI_MAX_SPAWNS", places).start().await;
        let office = Office::open(&app, &["worker-a", "worker-b"], "auto").await;
        let task = office.assign("worker-a", GAME).await;
        office.done(&task).await;
        office.check_game().await;
    }
}
