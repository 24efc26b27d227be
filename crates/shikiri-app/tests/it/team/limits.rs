//! What is open is decided in the end, whoever is silent.

use std::time::Duration;

use shikiri_app::team::Action;
use shikiri_model::team::{DelegationStatus, EndReason};

use super::world::{Team, code};

/// Until the keeper has looked: it is told that the clock moved by what it looks at next.
async fn until<T>(mut look: impl AsyncFnMut() -> Option<T>) -> T {
    for _ in 0..1_000 {
        if let Some(found) = look().await {
            return found;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("waited too long")
}

#[tokio::test]
async fn a_dialogue_whose_partner_never_comes_ends_and_completes_its_delegation() {
    let team = Team::new().await;
    let worker = team.task("a").await;
    let delegation = worker.delegate("b").await;
    let a = team.chat("a").await;
    a.pending().await;
    a.start("b", 12, Some(&delegation)).await.unwrap();
    team.world.clock.advance(Duration::from_secs(300));
    let _node = team.world.node();
    let ended = until(async || a.pending().await.ended_conversations.pop()).await;
    assert_eq!(ended.reason, EndReason::Timeout);
    let Action::DelegationResult { delegation, messages } = worker.next().await else {
        panic!("no outcome")
    };
    assert_eq!((delegation.status, messages.len()), (DelegationStatus::Completed, 1));
}

#[tokio::test]
async fn a_delegation_passes_from_session_to_session_and_fails_after_the_third() {
    let team = Team::new().await;
    let worker = team.task("a").await;
    let id = worker.delegate("b").await;
    let _node = team.world.node();
    for attempt in 1..=3 {
        let chat = team.chat("a").await;
        let taken = until(async || chat.pending().await.pending_delegations.pop()).await;
        assert_eq!(taken.delegation_id, id, "{attempt}");
        team.world.clock.advance(Duration::from_secs(121));
    }
    let outcome = until(async || match worker.next().await {
        Action::DelegationResult { delegation, .. } => Some(delegation),
        _ => None,
    });
    let delegation = outcome.await;
    assert_eq!((delegation.status, delegation.attempts), (DelegationStatus::Failed, 3));
    assert!(delegation.result.unwrap()["reason"].is_string());
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
    let ended = until(async || a.pending().await.ended_conversations.pop()).await;
    // The dialogue's own limit may come first: nothing was said for as long.
    assert!(matches!(ended.reason, EndReason::SessionExpired | EndReason::Timeout));
    assert_eq!(ended.conversation_id, talk);
    assert_eq!(code(b.at("get_pending_messages").await), "sessionExpired");
    assert!(matches!(worker.next().await, Action::None));
}
