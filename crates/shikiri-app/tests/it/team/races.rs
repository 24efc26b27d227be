//! Sessions of one agent that do the same at the same time.

use std::collections::BTreeSet;
use std::time::Duration;

use futures_util::future::join_all;
use shikiri_model::ids::TenantId;
use shikiri_model::team::TaskStatus;
use shikiri_teams::NextAction;

use super::world::{NO_WAIT, Team, code};

const SESSIONS: usize = 6;

#[tokio::test(flavor = "multi_thread")]
async fn sessions_that_ask_at_once_get_a_task_each() {
    let team = Team::new().await;
    for round in 0..10 {
        // Of too many sessions those of the last round are the oldest.
        team.world.clock.advance(Duration::from_secs(10));
        let mut workers = Vec::new();
        for _ in 0..SESSIONS {
            team.assign("a", "しりとり").await;
            workers.push(team.task("a").await);
        }
        let actions = join_all(workers.iter().map(|worker| worker.next())).await;
        let tasks = actions.iter().map(|action| match action {
            NextAction::Work(task) => task.value.id.clone(),
            other => panic!("{other:?}"),
        });
        assert_eq!(tasks.collect::<BTreeSet<_>>().len(), SESSIONS, "round {round}: shared");
        for (worker, action) in workers.iter().zip(&actions) {
            worker.finish(action).await;
        }
    }
}

#[tokio::test]
async fn a_session_that_ends_while_it_asks_takes_no_task() {
    let team = Team::new().await;
    let worker = team.task("a").await;
    let mut desk = worker.at("get_next_action").await.unwrap();
    team.world.clock.advance(Duration::from_secs(3_600));
    let task = team.assign("a", "しりとり").await;
    assert_eq!(code(desk.next_action(NO_WAIT).await), "sessionExpired");
    let found = team.world.app.teams.task(&TenantId::local(), &team.project, &task).await.unwrap();
    assert_eq!(found.value.status, TaskStatus::Todo);
}

#[tokio::test(flavor = "multi_thread")]
async fn two_that_begin_to_talk_to_each_other_at_once_have_one_dialogue() {
    let team = Team::new().await;
    let (a, b) = (team.chat("a").await, team.chat("b").await);
    for round in 0..20 {
        let started = tokio::join!(a.start("b", 12, None), b.start("a", 12, None));
        let codes = [code(started.0.clone()), code(started.1.clone())];
        assert!(codes.contains(&"ok"), "round {round}: {codes:?}");
        assert!(codes.contains(&"conversation_already_active"), "round {round}: {codes:?}");
        let talk = started.0.or(started.1).unwrap();
        a.at("end_conversation").await.unwrap().end_conversation(&talk, None).await.unwrap();
    }
}
