//! What a look shows, and to whom.

use std::time::Duration;

use shikiri_model::ids::TenantId;
use shikiri_model::team::TaskStatus;
use shikiri_teams::{NextAction, TaskPatch};

use super::world::{Agent, Team, code, permission};

/// Half of the time for which a session has a delegation.
const A_WHILE: Duration = Duration::from_secs(60);

async fn contents(session: &Agent<'_>) -> Vec<String> {
    let messages = session.pending().await.pending_messages;
    messages.into_iter().map(|message| message.content).collect()
}

#[tokio::test]
async fn what_was_not_dealt_with_is_shown_again_after_a_while() {
    let team = Team::new().await;
    let worker = team.task("a").await;
    let delegation = worker.delegate("b").await;
    let (a, b) = (team.chat("a").await, team.chat("b").await);
    let listed = async |session: &Agent<'_>| session.pending().await.pending_delegations.len();
    assert_eq!((listed(&a).await, listed(&a).await), (1, 0));
    // No session is woken for it every few seconds.
    team.world.clock.advance(A_WHILE / 2);
    assert_eq!(listed(&a).await, 0);
    team.world.clock.advance(A_WHILE / 2);
    assert_eq!((listed(&a).await, listed(&a).await), (1, 0));
    let talk = a.start("b", 4, Some(&delegation)).await.unwrap();
    let invited = async |session: &Agent<'_>| session.pending().await.invitations.len();
    assert_eq!((invited(&b).await, invited(&b).await), (1, 0));
    team.world.clock.advance(A_WHILE);
    assert_eq!((invited(&b).await, listed(&a).await), (1, 0));
    b.say(&talk, "ごりら").await.unwrap();
    assert_eq!(contents(&a).await, ["ごりら"]);
    team.world.clock.advance(A_WHILE);
    assert_eq!((contents(&a).await.len(), invited(&b).await), (1, 0));
}

#[tokio::test]
async fn two_living_sessions_do_not_show_each_others_things() {
    let team = Team::new().await;
    let (first, second) = (team.chat("a").await, team.chat("a").await);
    let sender = team.chat("b").await;
    let desk = sender.at("send_message").await.unwrap();
    desk.send_message("a", "一度だけ", None).await.unwrap();
    assert_eq!(contents(&first).await, ["一度だけ"]);
    // As long as the first one is thinking, and lets itself be heard of.
    for _ in 0..20 {
        team.world.clock.advance(A_WHILE / 3);
        first.at("help").await.unwrap();
        assert_eq!(contents(&second).await, [""; 0]);
    }
    // It says nothing more: as far as anybody knows it died.
    team.world.clock.advance(A_WHILE);
    assert_eq!(contents(&second).await, ["一度だけ"]);
}

/// It is unknown whether a lost answer was read: what it showed is shown again
/// to the same session, until an answer comes.
#[tokio::test]
async fn what_an_answer_showed_that_was_lost_is_shown_again() {
    let team = Team::new().await;
    let (a, b) = (team.chat("a").await, team.chat("b").await);
    b.send("a", "一").await.unwrap();
    for _ in 0..3 {
        assert_eq!(a.pending_and_lose().await.pending_messages[0].content, "一");
    }
    assert_eq!(contents(&a).await, ["一"]);
    assert_eq!(contents(&a).await, [""; 0], "it has come");
    let talk = a.start("b", 12, None).await.unwrap();
    for _ in 0..2 {
        assert_eq!(b.pending_and_lose().await.invitations.len(), 1);
    }
    assert_eq!((b.pending().await.invitations.len(), b.pending().await.invitations.len()), (1, 0));
    b.end(&talk).await;
    for side in [&a, &b] {
        for _ in 0..3 {
            assert_eq!(side.pending_and_lose().await.ended_conversations[0].conversation_id, talk);
        }
    }
    // The next session of one that died with its answer is told.
    let session = a.at("help").await.unwrap().session;
    team.world.app.teams.end_session(&session.tenant, &session.id).await.unwrap();
    let next = team.chat("a").await;
    for (session, times) in [(&next, 1), (&next, 0), (&b, 1), (&b, 0)] {
        let ended = session.pending().await.ended_conversations;
        assert_eq!(ended.len(), times);
        assert!(ended.iter().all(|one| one.told_before), "maybe it was read the first time");
    }
    assert_eq!(team.chat("b").await.pending().await.ended_conversations.len(), 0);
}

/// Not even the death of the process that answered loses anything.
#[tokio::test]
async fn what_came_is_known_to_other_processes_and_what_was_lost_is_not() {
    let team = Team::new().await;
    let (a, b) = (team.chat("a").await, team.chat("b").await);
    b.send("a", "一").await.unwrap();
    let other = team.world.upgraded(Vec::new());
    let mut elsewhere =
        other.teams.enter_session(&a.token, permission("get_pending_messages")).await.unwrap();
    let mut desk = a.at("get_pending_messages").await.unwrap();
    let shown = desk.pending(Duration::ZERO).await.unwrap();
    assert_eq!(shown.pending_messages.len(), 1);
    // The first process is gone, and with it what it knew of the answer.
    assert_eq!(elsewhere.pending(Duration::ZERO).await.unwrap(), shown);
    super::world::confirm(&mut elsewhere).await;
    let other = team.world.upgraded(Vec::new());
    let mut elsewhere =
        other.teams.enter_session(&a.token, permission("get_pending_messages")).await.unwrap();
    assert_eq!(elsewhere.pending(Duration::ZERO).await.unwrap().pending_messages, []);
}

#[tokio::test]
async fn an_outcome_whose_answer_was_lost_is_told_again_before_the_work_goes_on() {
    let team = Team::new().await;
    team.assign("a", "仕事").await;
    let worker = team.task("a").await;
    worker.next().await;
    let delegation = worker.delegate("b").await;
    let chat = team.chat("a").await;
    let desk = chat.at("send_message").await.unwrap();
    desk.send_message("b", "やあ", Some(&delegation)).await.unwrap();
    let mut desk = worker.at("get_next_action").await.unwrap();
    let told = desk.next_action(Duration::ZERO).await.unwrap();
    assert!(matches!(told, NextAction::DelegationResult { .. }));
    // While it is on its way, the next call does not go on without it.
    assert!(matches!(worker.next().await, NextAction::WaitForDelegation(_)));
    drop(desk);
    for _ in 0..3 {
        assert!(matches!(worker.next_and_lose().await, NextAction::DelegationResult { .. }));
    }
    assert!(matches!(worker.next().await, NextAction::DelegationResult { .. }));
    assert!(matches!(worker.next().await, NextAction::Work(_)));
}

#[tokio::test]
async fn the_session_that_takes_up_a_blocked_task_hears_what_became_of_its_delegation() {
    let team = Team::new().await;
    let tenant = TenantId::local();
    let task = team.assign("a", "仕事").await;
    let worker = team.task("a").await;
    worker.next().await;
    let delegation = worker.delegate("b").await;
    let desk = worker.at("report_completed").await.unwrap();
    desk.report_completed(task.as_str(), TaskStatus::Blocked, None).await.unwrap();
    let session = worker.at("help").await.unwrap().session;
    team.world.app.teams.end_session(&tenant, &session.id).await.unwrap();
    let chat = team.chat("a").await;
    let desk = chat.at("send_message").await.unwrap();
    desk.send_message("b", "やあ", Some(&delegation)).await.unwrap();
    let next = team.task("a").await;
    assert!(matches!(next.next().await, NextAction::None), "no session works on it");
    assert!(!team.world.app.teams.has_task_work(&tenant, &session.place).await.unwrap());
    let patch = TaskPatch { status: Some(TaskStatus::Todo), ..TaskPatch::default() };
    team.world.app.teams.change_task(&tenant, &team.project, &task, &patch).await.unwrap();
    assert!(matches!(next.next().await, NextAction::DelegationResult { .. }));
    assert!(matches!(next.next().await, NextAction::Work(_)));
}

/// A delegation that cannot be begun while its two agents talk is called to mind when they have
/// done.
#[tokio::test]
async fn a_delegation_that_had_to_wait_is_shown_when_the_talk_is_over() {
    let team = Team::new().await;
    let (a, b, worker) = (team.chat("a").await, team.chat("b").await, team.task("a").await);
    let talk = b.start("a", 4, None).await.unwrap();
    let delegation = worker.delegate("b").await;
    let listed = a.pending().await;
    assert_eq!((listed.pending_delegations.len(), listed.invitations.len()), (1, 1));
    assert_eq!(code(a.start("b", 4, Some(&delegation)).await), "conversation_already_active");
    assert_eq!(a.pending().await.pending_delegations, []);
    b.end(&talk).await;
    let pending = a.pending().await;
    assert_eq!(pending.pending_delegations[0].delegation_id, delegation);
    assert_eq!(pending.ended_conversations.len(), 1);
    a.start("b", 4, Some(&delegation)).await.unwrap();
}

#[tokio::test]
async fn delegations_of_one_session_are_not_in_the_way_of_another() {
    let team = Team::new().await;
    let worker = team.task("a").await;
    for _ in 0..25 {
        worker.delegate("b").await;
    }
    let (first, second) = (team.chat("a").await, team.chat("a").await);
    assert_eq!(first.pending().await.pending_delegations.len(), 20);
    assert_eq!(first.pending().await.pending_delegations.len(), 5);
    let sender = team.chat("b").await;
    sender.at("send_message").await.unwrap().send_message("a", "やあ", None).await.unwrap();
    assert_eq!(contents(&second).await, ["やあ"]);
}

#[tokio::test]
async fn an_answer_goes_to_what_was_read_and_leaves_the_rest() {
    let team = Team::new().await;
    let (a, b, c) = (team.chat("a").await, team.chat("b").await, team.chat("c").await);
    b.at("send_message").await.unwrap().send_message("a", "bより", None).await.unwrap();
    assert_eq!(contents(&a).await, ["bより"]);
    team.world.clock.advance(Duration::from_secs(1));
    c.at("send_message").await.unwrap().send_message("a", "cより", None).await.unwrap();
    a.at("respond_chat").await.unwrap().respond_chat(None, "bへ").await.unwrap();
    assert_eq!(contents(&b).await, ["bへ"]);
    assert_eq!((contents(&c).await, contents(&a).await), (Vec::new(), vec!["cより".to_owned()]));
}

#[tokio::test]
async fn an_outcome_is_found_behind_any_number_of_tasks() {
    let team = Team::new().await;
    for number in 0..205 {
        team.assign("a", &format!("仕事{number}")).await;
    }
    let worker = team.task("a").await;
    worker.next().await;
    let delegation = worker.delegate("b").await;
    let chat = team.chat("a").await;
    let desk = chat.at("send_message").await.unwrap();
    desk.send_message("b", "やあ", Some(&delegation)).await.unwrap();
    assert!(matches!(worker.next().await, NextAction::DelegationResult { .. }));
}

/// Whatever becomes of the task, one session is told once and nothing is left on the list.
#[tokio::test]
async fn an_outcome_of_a_task_that_is_over_is_told_once() {
    let team = Team::new().await;
    let tenant = TenantId::local();
    let task = team.assign("a", "仕事").await;
    let worker = team.task("a").await;
    worker.next().await;
    let delegation = worker.delegate("b").await;
    let patch = TaskPatch { status: Some(TaskStatus::Done), ..TaskPatch::default() };
    team.world.app.teams.change_task(&tenant, &team.project, &task, &patch).await.unwrap();
    let session = worker.at("help").await.unwrap().session;
    team.world.app.teams.end_session(&tenant, &session.id).await.unwrap();
    let chat = team.chat("a").await;
    let desk = chat.at("send_message").await.unwrap();
    desk.send_message("b", "やあ", Some(&delegation)).await.unwrap();
    assert!(team.world.app.teams.has_task_work(&tenant, &session.place).await.unwrap());
    let next = team.task("a").await;
    assert!(matches!(next.next().await, NextAction::DelegationResult { .. }));
    assert!(matches!(next.next().await, NextAction::None));
    assert!(!team.world.app.teams.has_task_work(&tenant, &session.place).await.unwrap());
}

/// The session that asked and the one that goes on with the task each hear it once, however often
/// they ask.
#[tokio::test]
async fn an_outcome_is_told_once_to_each_of_two_sessions() {
    let team = Team::new().await;
    let tenant = TenantId::local();
    let task = team.assign("a", "仕事").await;
    let asker = team.task("a").await;
    asker.next().await;
    let delegation = asker.delegate("b").await;
    // A person gives the task to the next session.
    let patch = TaskPatch { status: Some(TaskStatus::Todo), ..TaskPatch::default() };
    team.world.app.teams.change_task(&tenant, &team.project, &task, &patch).await.unwrap();
    let heir = team.task("a").await;
    heir.next().await;
    let chat = team.chat("a").await;
    let desk = chat.at("send_message").await.unwrap();
    desk.send_message("b", "やあ", Some(&delegation)).await.unwrap();
    let mut told = [0, 0];
    for _ in 0..4 {
        for (session, told) in [&asker, &heir].into_iter().zip(&mut told) {
            *told +=
                usize::from(matches!(session.next().await, NextAction::DelegationResult { .. }));
        }
        team.world.clock.advance(A_WHILE);
    }
    assert_eq!(told, [1, 1]);
}

#[tokio::test]
async fn what_is_reported_is_bounded() {
    let team = Team::new().await;
    let task = team.assign("a", "仕事").await;
    let worker = team.task("a").await;
    worker.next().await;
    let desk = worker.at("report_completed").await.unwrap();
    let long = Some("長".repeat(20_000).into());
    let refused = desk.report_completed(task.as_str(), TaskStatus::Done, long).await;
    assert_eq!(code(refused), "content_too_long");
}
