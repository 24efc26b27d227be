//! What is open is decided in the end, whichever side is silent.

use std::time::Duration;

use shikiri_model::team::{DelegationStatus, DialogueEndReason};
use shikiri_teams::NextAction;
use shikiri_testkit::until;

use super::world::{Team, code};

#[tokio::test]
async fn a_dialogue_whose_partner_never_comes_ends_and_its_delegation_fails() {
    let team = Team::new().await;
    let worker = team.task("a").await;
    let delegation = worker.delegate("b").await;
    let a = team.chat("a").await;
    a.pending().await;
    a.start("b", 12, Some(&delegation)).await.unwrap();
    team.world.clock.advance(Duration::from_secs(300));
    let _node = team.world.node();
    let ended =
        until("the dialogue ends", async || a.pending().await.ended_conversations.pop()).await;
    assert_eq!(ended.reason, DialogueEndReason::Timeout);
    let NextAction::DelegationResult { delegation, messages } = worker.next().await else {
        panic!("no outcome")
    };
    assert_eq!((delegation.status, messages.len()), (DelegationStatus::Failed, 1));
    let result = delegation.result.unwrap();
    assert_eq!(result["reason"], "nobody answered the first message in time", "{result}");
}

/// Row 2.10.
#[tokio::test]
async fn a_delegation_passes_from_session_to_session_and_fails_after_the_third() {
    let team = Team::new().await;
    let worker = team.task("a").await;
    let id = worker.delegate("b").await;
    let _node = team.world.node();
    for attempt in 1..=3 {
        let chat = team.chat("a").await;
        let taken = until("the delegation arrives", async || {
            chat.pending().await.pending_delegations.pop()
        })
        .await;
        assert_eq!(taken.delegation_id, id, "{attempt}");
        team.world.clock.advance(Duration::from_secs(121));
    }
    let outcome = until("the delegation has a result", async || match worker.next().await {
        NextAction::DelegationResult { delegation, .. } => Some(delegation),
        _ => None,
    });
    let delegation = outcome.await;
    assert_eq!((delegation.status, delegation.attempts), (DelegationStatus::Failed, 3));
    assert!(delegation.result.unwrap()["reason"].is_string());
}

/// Row 2.10: two are listed together, and three sessions die of the first: that is not held against the
/// second.
#[tokio::test]
async fn a_delegation_that_was_listed_beside_another_loses_no_attempt_by_it() {
    let team = Team::new().await;
    let worker = team.task("a").await;
    let first = worker.delegate("b").await;
    team.world.clock.advance(Duration::from_secs(1));
    let second = worker.delegate("c").await;
    let attempts = async |id: &str| {
        let desk = worker.at("get_delegation").await.unwrap();
        let found = desk.delegation(id).await.unwrap().value;
        (found.status, found.attempts)
    };
    for attempt in 1..=3 {
        let chat = team.chat("a").await;
        assert_eq!(chat.pending().await.pending_delegations.len(), 2);
        assert_eq!(attempts(&first).await, (DelegationStatus::Processing, attempt));
        assert_eq!(attempts(&second).await, (DelegationStatus::Processing, 0));
        let session = chat.at("help").await.unwrap().session;
        team.world.app.teams.end_session(&session.tenant, &session.id).await.unwrap();
    }
    assert_eq!(attempts(&first).await, (DelegationStatus::Failed, 3));
    let chat = team.chat("a").await;
    assert_eq!(chat.pending().await.pending_delegations[0].delegation_id, second);
    assert_eq!(attempts(&second).await, (DelegationStatus::Processing, 1));
    chat.start("c", 4, Some(&second)).await.unwrap();
}

/// What cannot be begun yet is not what a session died of.
#[tokio::test]
async fn a_delegation_that_has_to_wait_for_a_talk_loses_no_attempt() {
    let team = Team::new().await;
    let (worker, b) = (team.task("a").await, team.chat("b").await);
    let _invited = b.start("a", 4, None).await.unwrap();
    let waiting = worker.delegate("b").await;
    team.world.clock.advance(Duration::from_secs(1));
    let free = worker.delegate("c").await;
    let attempts = async |id: &str| {
        let desk = worker.at("get_delegation").await.unwrap();
        desk.delegation(id).await.unwrap().value.attempts
    };
    let chat = team.chat("a").await;
    assert_eq!(chat.pending().await.pending_delegations.len(), 2);
    assert_eq!((attempts(&waiting).await, attempts(&free).await), (0, 1));
    // What comes later is beside what it has.
    let later = worker.delegate("c").await;
    assert_eq!(chat.pending().await.pending_delegations[0].delegation_id, later);
    assert_eq!(attempts(&later).await, 0);
    chat.start("c", 4, Some(&later)).await.unwrap();
    assert_eq!(attempts(&later).await, 1, "its first attempt counts");
}

#[tokio::test]
async fn a_session_that_ends_takes_its_dialogues_along_and_not_its_sibling() {
    let team = Team::new().await;
    let (a, b, worker) = (team.chat("a").await, team.chat("b").await, team.task("b").await);
    let talk = a.start("b", 12, None).await.unwrap();
    b.pending().await;
    team.world.clock.advance(Duration::from_secs(500));
    a.pending().await;
    team.world.clock.advance(Duration::from_secs(101));
    let _node = team.world.node();
    let ended =
        until("the dialogue ends", async || a.pending().await.ended_conversations.pop()).await;
    // The dialogue's own limit may come first: nothing was said for as long.
    assert!(matches!(ended.reason, DialogueEndReason::SessionExpired | DialogueEndReason::Timeout));
    assert_eq!(ended.conversation_id, talk);
    assert_eq!(code(b.at("get_pending_messages").await), "sessionExpired");
    assert!(matches!(worker.next().await, NextAction::None));
}

#[tokio::test]
async fn the_session_that_takes_up_a_task_hears_of_its_delegation_first() {
    let team = Team::new().await;
    team.assign("a", "しりとり").await;
    let first = team.task("a").await;
    first.next().await;
    let delegation = first.delegate("b").await;
    team.world.clock.advance(Duration::from_secs(3_599));
    let (a, b) = (team.chat("a").await, team.chat("b").await);
    let talk = a.start("b", 2, Some(&delegation)).await.unwrap();
    team.world.clock.advance(Duration::from_secs(1));
    // The first session is over by now; the second goes on with its task.
    let second = team.task("a").await;
    assert!(
        matches!(second.next().await, NextAction::WaitForDelegation(id) if id.as_str() == delegation)
    );
    b.say(&talk, "ごりら").await.unwrap_err();
    let _node = team.world.node();
    until("the dialogue ends", async || a.pending().await.ended_conversations.pop()).await;
    assert!(matches!(second.next().await, NextAction::DelegationResult { .. }));
    assert!(matches!(second.next().await, NextAction::Work(_)));
}

#[tokio::test]
async fn what_an_ended_session_had_taken_on_is_given_back_at_once() {
    let team = Team::new().await;
    let worker = team.task("a").await;
    let delegation = worker.delegate("b").await;
    let first = team.chat("a").await;
    assert_eq!(first.pending().await.pending_delegations[0].delegation_id, delegation);
    let session = first.at("help").await.unwrap().session;
    team.world.app.teams.end_session(&session.tenant, &session.id).await.unwrap();
    let second = team.chat("a").await;
    assert_eq!(second.pending().await.pending_delegations[0].delegation_id, delegation);
    let desk = second.at("get_delegation").await.unwrap();
    assert_eq!(desk.delegation(&delegation).await.unwrap().value.attempts, 2);
}

#[tokio::test]
async fn a_session_that_ends_leaves_open_what_its_agent_was_only_invited_to() {
    let team = Team::new().await;
    let (a, b) = (team.chat("a").await, team.chat("b").await);
    let begun = b.start("c", 12, None).await.unwrap();
    let invited = a.start("b", 12, None).await.unwrap();
    let session = b.at("help").await.unwrap().session;
    team.world.app.teams.end_session(&session.tenant, &session.id).await.unwrap();
    let next = team.chat("b").await.pending().await;
    assert_eq!(next.invitations[0].conversation_id, invited);
    let ended: Vec<_> = next.ended_conversations.iter().map(|one| &one.conversation_id).collect();
    assert_eq!(ended, [&begun]);
}
