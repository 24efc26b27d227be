//! A task, a delegation, a talk of six rounds, and back.

use std::time::Duration;

use shikiri_model::team::{DelegationStatus, DialogueEndReason, TaskStatus};
use shikiri_teams::NextAction;

use super::world::{Team, code};

#[tokio::test]
async fn six_rounds_by_delegation_end_in_a_task_that_is_done() {
    let team = Team::new().await;
    let task = team.assign("a", "6往復しりとり").await;
    let worker = team.task("a").await;
    let NextAction::Work(work) = worker.next().await else { panic!("no work") };
    assert_eq!((work.value.id, work.value.status), (task.clone(), TaskStatus::InProgress));
    let delegation = worker.delegate("b").await;
    assert!(
        matches!(worker.next().await, NextAction::WaitForDelegation(id) if id.as_str() == delegation)
    );

    let (a, b) = (team.chat("a").await, team.chat("b").await);
    let pending = a.pending().await;
    assert_eq!(pending.pending_delegations[0].delegation_id, delegation);
    assert_eq!(a.pending().await.pending_delegations, []);
    let talk = a.start("b", 12, Some(&delegation)).await.unwrap();
    let invitation = b.pending().await.invitations.remove(0);
    assert_eq!(
        (invitation.conversation_id.as_str(), invitation.initial_message.as_str()),
        (&*talk, "りんご")
    );
    for left in (0..11).rev() {
        let (speaker, other) = if left % 2 == 0 { (&b, &a) } else { (&a, &b) };
        assert_eq!(code(other.say(&talk, "割り込み").await), "not_your_turn");
        assert_eq!(speaker.say(&talk, "ごりら").await.unwrap(), left);
        if left > 0 {
            let heard = other.pending().await.pending_messages.remove(0);
            assert_eq!(heard.conversation_id.as_deref(), Some(&*talk));
        }
    }
    for side in [&a, &b] {
        let ended = side.pending().await.ended_conversations;
        assert_eq!((ended.len(), ended[0].reason), (1, DialogueEndReason::MaxTurns));
        assert_eq!(side.pending().await.ended_conversations, []);
    }
    let NextAction::DelegationResult { delegation: done, messages } = worker.next().await else {
        panic!("no outcome")
    };
    assert_eq!((done.id.as_str(), done.status), (&*delegation, DelegationStatus::Completed));
    assert_eq!(messages.len(), 12);
    let result = done.result.unwrap();
    assert_eq!(result["messages"].as_array().unwrap().len(), 12);
    assert_eq!(result["end_reason"], "max_turns");
    // Told once; then the work goes on.
    assert!(matches!(worker.next().await, NextAction::Work(_)));
    let desk = worker.at("report_completed").await.unwrap();
    let task = desk.report_completed(task.as_str(), TaskStatus::Done, None).await.unwrap();
    assert_eq!(task.value.status, TaskStatus::Done);
    assert!(matches!(worker.next().await, NextAction::None));
}

#[tokio::test]
async fn a_waiting_call_is_woken_by_what_the_other_side_does() {
    let team = Team::new().await;
    let (a, b) = (team.chat("a").await, team.chat("b").await);
    let mut desk = b.at("get_pending_messages").await.unwrap();
    let waiting = tokio::spawn(async move { desk.pending(Duration::from_secs(20)).await.unwrap() });
    let talk = a.start("b", 40, None).await.unwrap();
    let pending = tokio::time::timeout(Duration::from_secs(10), waiting).await.unwrap().unwrap();
    assert_eq!(pending.invitations[0].conversation_id, talk);
    // A side that is shown a message is told that it is its turn, however closely it was waiting.
    for said in 1..30 {
        let (speaker, hearer) = if said % 2 == 1 { (&b, &a) } else { (&a, &b) };
        let mut desk = hearer.at("get_conversation_messages").await.unwrap();
        let (id, after) = (talk.clone(), said.to_string());
        let waiting = tokio::spawn(async move {
            desk.conversation_messages(&id, Some(&after), Duration::from_secs(20)).await.unwrap()
        });
        speaker.say(&talk, &format!("ごりら{said}")).await.unwrap();
        let heard = tokio::time::timeout(Duration::from_secs(10), waiting).await.unwrap().unwrap();
        assert_eq!(heard.messages[0].said.content, format!("ごりら{said}"));
        assert!(heard.your_turn, "{heard:?}");
    }
}

#[tokio::test]
async fn an_unhandled_message_is_shown_to_the_next_session() {
    let team = Team::new().await;
    let sender = team.chat("b").await;
    let send = async |text: &str| {
        let desk = sender.at("send_message").await.unwrap();
        desk.send_message("a", text, None).await.unwrap();
    };
    let read = async |session: &super::world::Agent<'_>| {
        let messages = session.pending().await.pending_messages;
        messages.into_iter().map(|message| message.content).collect::<Vec<_>>()
    };
    send("一").await;
    let first = team.chat("a").await;
    assert_eq!(read(&first).await, ["一"]);
    // It died, as far as anybody knows after a while.
    let second = team.chat("a").await;
    assert_eq!(read(&second).await, [""; 0]);
    team.world.clock.advance(Duration::from_secs(60));
    assert_eq!(read(&second).await, ["一"]);
    assert_eq!(read(&second).await, [""; 0]);
    team.world.clock.advance(Duration::from_secs(1));
    send("二").await;
    assert_eq!(read(&second).await, ["二"]);
    second.at("respond_chat").await.unwrap().respond_chat(None, "はい").await.unwrap();
    let third = team.chat("a").await;
    assert_eq!(read(&third).await, [""; 0]);
}
