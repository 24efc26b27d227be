//! What an open delegation keeps its agent from, and what became of one.

use std::time::Duration;

use shikiri_model::ids::TenantId;
use shikiri_model::team::{DelegationStatus, DialogueEndReason};
use shikiri_teams::NextAction;

use super::world::{Agent, Team, code};

fn work(action: &NextAction) -> String {
    let NextAction::Work(task) = action else { panic!("no work: {action:?}") };
    task.value.id.to_string()
}

fn awaited(action: &NextAction) -> String {
    let NextAction::WaitForDelegation(id) = action else { panic!("no wait: {action:?}") };
    id.to_string()
}

#[tokio::test]
async fn an_open_delegation_leaves_its_agent_free_for_another_task() {
    let team = Team::new().await;
    let first = team.assign("a", "しりとり").await;
    let worker = team.task("a").await;
    assert_eq!(work(&worker.next().await), first.as_str());
    let delegation = worker.delegate("b").await;
    assert_eq!(awaited(&worker.next().await), delegation);
    // A new task does not wait for it.
    team.world.clock.advance(Duration::from_secs(1));
    let second = team.assign("a", "片付け").await;
    let action = worker.next().await;
    assert_eq!(work(&action), second.as_str());
    worker.finish(&action).await;
    assert_eq!(awaited(&worker.next().await), delegation);
    // Nor does one that comes after the report.
    let desk = worker.at("report_completed").await.unwrap();
    desk.report_completed(first.as_str(), shikiri_model::team::TaskStatus::Done, None)
        .await
        .unwrap();
    assert_eq!(awaited(&worker.next().await), delegation);
    let third = team.assign("a", "掃除").await;
    assert_eq!(work(&worker.next().await), third.as_str());
}

/// A session that takes over two tasks of one that is gone is told what became of each.
#[tokio::test]
async fn outcomes_find_the_session_that_took_their_tasks_over() {
    let team = Team::new().await;
    let first = team.assign("a", "しりとり").await;
    let before = team.task("a").await;
    before.next().await;
    let delegation = before.delegate("b").await;
    team.world.clock.advance(Duration::from_secs(1));
    let second = team.assign("a", "片付け").await;
    before.next().await;
    let session = before.at("help").await.unwrap().session;
    team.world.app.teams.end_session(&session.tenant, &session.id).await.unwrap();
    let after = team.task("a").await;
    let action = after.next().await;
    assert_eq!(work(&action), second.as_str(), "what can be done now");
    after.finish(&action).await;
    assert_eq!(awaited(&after.next().await), delegation);
    let chat = team.chat("a").await;
    chat.at("send_message")
        .await
        .unwrap()
        .send_message("b", "やあ", Some(&delegation))
        .await
        .unwrap();
    let NextAction::DelegationResult { delegation: told, .. } = after.next().await else {
        panic!("no outcome")
    };
    assert_eq!((told.id.as_str(), told.task.as_ref()), (delegation.as_str(), Some(&first)));
    // What follows from the outcome belongs to its task.
    let next = after.delegate("c").await;
    let desk = after.at("get_delegation").await.unwrap();
    assert_eq!(desk.delegation(&next).await.unwrap().value.task, Some(first));
}

/// A talk for a delegation of `a`, which `b` has seen.
async fn talk<'a>(team: &'a Team, worker: &Agent<'_>) -> (Agent<'a>, Agent<'a>, String) {
    let delegation = worker.delegate("b").await;
    let (a, b) = (team.chat("a").await, team.chat("b").await);
    a.pending().await;
    let talk = a.start("b", 4, Some(&delegation)).await.unwrap();
    b.pending().await;
    (a, b, talk)
}

async fn outcome(worker: &Agent<'_>) -> (DelegationStatus, Option<String>) {
    let NextAction::DelegationResult { delegation, .. } = worker.next().await else {
        panic!("no outcome")
    };
    let reason = delegation.result.as_ref().and_then(|result| result["reason"].as_str());
    (delegation.status, reason.map(str::to_owned))
}

#[tokio::test]
async fn a_delegation_whose_partner_never_spoke_has_failed() {
    for by in ["a", "b", "person"] {
        let team = Team::new().await;
        let worker = team.task("a").await;
        let (a, b, talk) = talk(&team, &worker).await;
        match by {
            "a" => a.end(&talk).await,
            "b" => b.end(&talk).await,
            _ => {
                let id = talk.parse().unwrap();
                let teams = &team.world.app.teams;
                teams.cancel_dialogue(&TenantId::local(), &team.project, &id).await.unwrap();
            }
        }
        let (status, reason) = outcome(&worker).await;
        assert_eq!(status, DelegationStatus::Failed, "{by}");
        assert!(reason.is_some(), "{by}");
    }
    // One word of it is enough.
    let team = Team::new().await;
    let worker = team.task("a").await;
    let (a, b, talk) = talk(&team, &worker).await;
    b.say(&talk, "ごま").await.unwrap();
    a.end(&talk).await;
    assert_eq!(outcome(&worker).await, (DelegationStatus::Completed, None));
}

#[tokio::test]
async fn to_end_a_talk_that_the_server_has_ended_is_no_error() {
    let team = Team::new().await;
    let (a, b) = (team.chat("a").await, team.chat("b").await);
    let talk = a.start("b", 2, None).await.unwrap();
    b.pending().await;
    b.say(&talk, "ごま").await.unwrap();
    for session in [&a, &b] {
        let desk = session.at("end_conversation").await.unwrap();
        let ended = desk.end_conversation(&talk, None).await.unwrap();
        assert_eq!(ended, DialogueEndReason::MaxTurns);
        assert_eq!(code(session.say(&talk, "まり").await), "conversation_ended");
    }
    // One that a side has ended is over for the other.
    let talk = a.start("b", 4, None).await.unwrap();
    b.pending().await;
    a.end(&talk).await;
    for session in [&a, &b] {
        let desk = session.at("end_conversation").await.unwrap();
        assert_eq!(code(desk.end_conversation(&talk, None).await), "conversation_ended");
    }
}
