//! What follows from a talk or a message comes to an end, whichever agent goes on with it.

use shikiri_model::team::TeamLimits;

use super::world::{Agent, Team, code, permission};

/// The latest message or invitation is shown, and the answer to it comes.
async fn shown(session: &Agent<'_>) {
    session.pending().await;
}

#[tokio::test]
async fn answers_to_answers_come_to_an_end() {
    let team = Team::new().await;
    let (a, b) = (team.chat("a").await, team.chat("b").await);
    a.send("b", "やあ").await.unwrap();
    let mut taken = 1;
    for round in 0..60 {
        let session = if round % 2 == 0 { &b } else { &a };
        shown(session).await;
        let desk = session.at("respond_chat").await.unwrap();
        match code(desk.respond_chat(None, "うん").await) {
            "ok" => taken += 1,
            other => {
                assert_eq!(other, "delegation_too_deep");
                // Nor by a message that answers nothing.
                assert_eq!(code(session.send("c", "ねえ").await), "delegation_too_deep");
                assert_eq!(code(session.start("c", 4, None).await), "delegation_too_deep");
                break;
            }
        }
    }
    assert_eq!(taken, 3);
}

#[tokio::test]
async fn a_person_is_answered_however_often_and_a_person_starts_afresh() {
    let team = Team::new().await;
    let (a, person) = (team.chat("a").await, team.chat("person").await);
    for _ in 0..6 {
        person.send("a", "どう?").await.unwrap();
        shown(&a).await;
        a.at("respond_chat").await.unwrap().respond_chat(None, "元気").await.unwrap();
        shown(&person).await;
    }
    a.send("b", "やあ").await.unwrap();
}

#[tokio::test]
async fn an_answer_follows_from_what_it_answers_and_from_nothing_else() {
    let team = Team::new().await;
    let (a, b, c) = (team.chat("a").await, team.chat("b").await, team.chat("c").await);
    // As far as it goes with b.
    a.send("b", "一").await.unwrap();
    shown(&b).await;
    b.at("respond_chat").await.unwrap().respond_chat(None, "二").await.unwrap();
    shown(&a).await;
    a.at("respond_chat").await.unwrap().respond_chat(None, "三").await.unwrap();
    shown(&b).await;
    assert_eq!(code(b.send("c", "四").await), "delegation_too_deep");
    // What c begins has a budget of its own.
    let message = c.send("b", "一").await.unwrap();
    shown(&b).await;
    let desk = b.at("respond_chat").await.unwrap();
    desk.respond_chat(Some(message.as_str()), "二").await.unwrap();
    // A second answer may follow from anything.
    let again = desk.respond_chat(Some(message.as_str()), "三").await;
    assert_eq!(code(again), "delegation_too_deep");
}

/// Each begins the next talk when the last one is over: the end of a talk refills nothing.
#[tokio::test]
async fn talks_that_follow_from_one_another_come_to_an_end_though_each_has_ended() {
    let team = Team::new().await;
    let (a, b) = (team.chat("a").await, team.chat("b").await);
    let mut talks = 0;
    loop {
        let (from, to, name) = if talks % 2 == 0 { (&a, &b, "b") } else { (&b, &a, "a") };
        let Ok(talk) = from.start(name, 2, None).await else { break };
        shown(to).await;
        to.say(&talk, "続けて").await.unwrap();
        talks += 1;
        assert!(talks < 10, "for ever");
    }
    assert_eq!(talks, 3);
}

/// Depth 3: a talk, one that follows from it, one that follows from that; and no delegation either.
#[tokio::test]
async fn a_chain_of_delegations_is_as_deep_as_it_may_be_over_a_restart_too() {
    let team = Team::new().await;
    let names = ["a", "b", "c"];
    let mut hops = Vec::new();
    let mut app = team.world.app.clone();
    for depth in 0..4 {
        let (own, next) = (names[depth % 3], names[(depth + 1) % 3]);
        let (worker, chat) = (team.task(own).await, team.chat(own).await);
        let desk = app
            .teams
            .enter_session(&worker.token, permission("delegate_to_chat_session"))
            .await
            .unwrap();
        let made = desk.delegate(next, "続けて", None).await;
        if depth == 3 {
            assert_eq!(code(made), "delegation_too_deep");
            break;
        }
        let made = made.unwrap();
        hops.push(made.budget.hops);
        chat.pending().await;
        chat.start(next, 4, Some(made.id.as_str())).await.unwrap();
        team.chat(next).await.pending().await;
        // Another process goes on with what lies in the store.
        app = team.world.upgraded(Vec::new());
    }
    assert_eq!(hops, [2, 1, 0]);
}

#[tokio::test]
async fn what_a_session_was_told_is_known_after_a_restart() {
    let team = Team::new().await;
    let (a, b) = (team.chat("a").await, team.chat("b").await);
    let talk = a.start("b", 4, None).await.unwrap();
    shown(&b).await;
    a.end(&talk).await;
    let other = team.world.upgraded(Vec::new());
    let desk = other.teams.enter_session(&b.token, permission("send_message")).await.unwrap();
    let told = desk.session.told.unwrap();
    assert_eq!(told.hops, TeamLimits::default().delegation_depth - 1);
    let sent = desk.send_message("c", "ねえ", None).await.unwrap();
    let message = other.teams.team_message(desk_tenant(&desk), &team.project, &sent).await.unwrap();
    assert_eq!(message.value.hops, Some(told.hops - 1));
}

fn desk_tenant(desk: &shikiri_teams::AgentSessionHandle) -> &shikiri_model::ids::TenantId {
    &desk.session.tenant
}

/// A talk takes its turns when it begins, and gives back those that were not used.
#[tokio::test]
async fn many_talks_of_two_agents_that_follow_from_one_share_its_turns() {
    let team = Team::new().await;
    let (a, b) = (team.chat("a").await, team.chat("b").await);
    let talk = a.start("b", 10, None).await.unwrap();
    shown(&b).await;
    a.end(&talk).await;
    let mut talks = 0;
    while let Ok(next) = b.start("c", 12, None).await {
        talks += 1;
        b.end(&next).await;
        assert!(talks < 400, "for ever");
    }
    assert_eq!(talks, 39, "a talk needs two turns of the forty");
    assert_eq!(code(b.start("c", 2, None).await), "message_budget_spent");
}

/// Nor does an agent that was told something write for ever to one that cannot answer.
#[tokio::test]
async fn messages_that_follow_from_one_share_its_turns() {
    let team = Team::new().await;
    let (a, b) = (team.chat("a").await, team.chat("b").await);
    a.send("b", "やあ").await.unwrap();
    shown(&b).await;
    let mut sent = 0;
    while b.send("c", "ねえ").await.is_ok() {
        sent += 1;
        assert!(sent < 100, "for ever");
    }
    // What a wrote to b is the first that counts.
    assert_eq!(sent, 39);
    assert_eq!(code(b.send("c", "ねえ").await), "message_budget_spent");
    // A person is told all the same.
    b.send("person", "困りました").await.unwrap();
}

#[tokio::test]
async fn an_agent_has_a_hundred_open_delegations_at_most() {
    let team = Team::new().await;
    let worker = team.task("a").await;
    let mut last = String::new();
    for _ in 0..100 {
        last = worker.delegate("b").await;
    }
    let refused = worker.at("delegate_to_chat_session").await.unwrap();
    assert_eq!(code(refused.delegate("b", "もう一つ", None).await), "too_many_delegations");
    // Another agent's do not count, and one that is over makes room.
    team.task("c").await.delegate("b").await;
    let chat = team.chat("a").await;
    chat.at("send_message").await.unwrap().send_message("b", "やあ", Some(&last)).await.unwrap();
    worker.delegate("b").await;
}
