//! Each side of a dialogue is told of its end, even if a session dies with the answer unread.
//!
//! A session that goes on is told once. One that is never heard of again may have read the answer or
//! not, so its successor is told, and told that it may know.

use std::time::Duration;

use shikiri_model::team::DialogueEndReason;

use super::world::{Agent, NO_WAIT, Team, permission};

/// What a look tells of ends: which, and whether they may be known.
async fn ends(session: &Agent<'_>) -> Vec<(String, bool)> {
    let ended = session.pending().await.ended_conversations;
    ended.into_iter().map(|one| (one.conversation_id, one.told_before)).collect()
}

/// A talk of `a` and `b` that `b` has ended.
async fn ended_talk(a: &Agent<'_>, b: &Agent<'_>) -> String {
    let talk = a.start("b", 12, None).await.unwrap();
    b.pending().await;
    b.end(&talk).await;
    talk
}

async fn end_session(team: &Team, session: &Agent<'_>) {
    let session = session.at("help").await.unwrap().session;
    team.world.app.teams.end_session(&session.tenant, &session.id).await.unwrap();
}

/// The same without a call by which it would show that it lives.
async fn kill(team: &Team, session: &Agent<'_>) {
    let session = team.world.app.tenancy.session_of(&session.token).await.unwrap().unwrap().value;
    team.world.app.teams.end_session(&session.tenant, &session.id).await.unwrap();
}

/// Row 2.16.
#[tokio::test]
async fn an_end_that_a_session_died_with_is_told_to_the_next_one() {
    enum Death {
        Ended,
        Idle,
        Silent,
    }
    for death in [Death::Ended, Death::Idle, Death::Silent] {
        let team = Team::new().await;
        let (a, b) = (team.chat("a").await, team.chat("b").await);
        let talk = ended_talk(&a, &b).await;
        // The answer is written, and neither side is heard of again.
        assert_eq!(ends(&a).await, [(talk.clone(), false)]);
        match death {
            Death::Ended => kill(&team, &a).await,
            Death::Idle => team.world.clock.advance(Duration::from_secs(600)),
            Death::Silent => team.world.clock.advance(Duration::from_secs(60)),
        }
        let next = team.chat("a").await;
        let told = next.pending().await.ended_conversations;
        assert_eq!(told.len(), 1);
        assert_eq!(
            (&told[0].conversation_id, told[0].reason),
            (&talk, DialogueEndReason::ParticipantEnded)
        );
        assert!(told[0].told_before);
        assert_eq!(ends(&next).await, []);
        kill(&team, &next).await;
        assert_eq!(ends(&team.chat("a").await).await, [], "the next one has called again");
    }
}

/// Row 2.16.
#[tokio::test]
async fn any_call_proves_that_an_end_was_heard() {
    let team = Team::new().await;
    for tool in ["help", "get_pending_messages", "get_conversation_messages", "send_message"] {
        let (a, b) = (team.chat("a").await, team.chat("b").await);
        let talk = ended_talk(&a, &b).await;
        assert_eq!(ends(&a).await, [(talk, false)], "{tool}");
        drop(a.at(tool).await.unwrap());
        kill(&team, &a).await;
        assert_eq!(ends(&team.chat("a").await).await, [], "{tool}");
        ends(&b).await;
        end_session(&team, &b).await;
    }
}

/// A call that is made while the answer is on its way, or after it was lost, proves nothing.
#[tokio::test]
async fn a_call_beside_an_answer_that_is_lost_proves_nothing() {
    let team = Team::new().await;
    let (a, b) = (team.chat("a").await, team.chat("b").await);
    let talk = ended_talk(&a, &b).await;
    let mut desk = a.at("get_pending_messages").await.unwrap();
    assert_eq!(desk.pending(NO_WAIT).await.unwrap().ended_conversations.len(), 1);
    a.at("help").await.unwrap();
    drop(desk);
    a.at("help").await.unwrap();
    assert_eq!(ends(&a).await, [(talk, true)]);
    assert_eq!(ends(&a).await, []);
}

/// The process that answers the next call knows what another one has told.
#[tokio::test]
async fn the_proof_counts_on_every_node() {
    let team = Team::new().await;
    let (a, b) = (team.chat("a").await, team.chat("b").await);
    let talk = ended_talk(&a, &b).await;
    assert_eq!(ends(&a).await, [(talk, false)]);
    let other = team.world.upgraded(Vec::new());
    drop(other.teams.enter_session(&a.token, permission("help")).await.unwrap());
    kill(&team, &a).await;
    assert_eq!(ends(&team.chat("a").await).await, []);
}

#[tokio::test]
async fn a_session_beside_the_one_that_was_told_is_told_only_if_that_one_dies() {
    let team = Team::new().await;
    let (first, second, b) = (team.chat("a").await, team.chat("a").await, team.chat("b").await);
    let talk = ended_talk(&first, &b).await;
    assert_eq!(ends(&first).await, [(talk, false)]);
    assert_eq!(ends(&second).await, [], "the first may be reading it");
    first.at("help").await.unwrap();
    kill(&team, &first).await;
    assert_eq!(ends(&second).await, []);
    // And the other way round.
    let first = team.chat("a").await;
    let talk = ended_talk(&second, &b).await;
    assert_eq!(ends(&first).await, [(talk.clone(), false)]);
    kill(&team, &first).await;
    assert_eq!(ends(&second).await, [(talk, true)]);
}
