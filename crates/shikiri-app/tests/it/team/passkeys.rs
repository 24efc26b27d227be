//! Wrong passkeys are counted, and never keep out an agent that has the right one.

use std::time::Duration;

use shikiri_model::ids::TenantId;
use shikiri_model::key::SecretToken;
use shikiri_model::team::{AgentSession, SessionPurpose};
use shikiri_teams::{AgentLoginRequest, TeamError};

use super::world::Team;

async fn try_in(team: &Team, passkey: &str, by: &str) -> Result<AgentSession, TeamError> {
    let login = AgentLoginRequest {
        agent_id: "a".to_owned(),
        passkey: SecretToken::from_caller(passkey),
        project_id: team.project.to_string(),
        purpose: Some(SessionPurpose::Chat),
        by: by.to_owned(),
    };
    let opened = team.world.app.teams.authenticate(&TenantId::local(), login).await;
    opened.map(|(session, _)| session)
}

#[tokio::test]
async fn wrong_passkeys_at_once_are_counted_like_others() {
    let team = Team::new().await;
    let tries = futures_util::future::join_all((0..40).map(|_| try_in(&team, "wrong", "key")));
    let refusals = tries.await.into_iter().map(|tried| tried.unwrap_err().to_string());
    assert_eq!(refusals.filter(|refusal| refusal.contains("too many")).count(), 30);
}

/// A client that guesses waits; the agent itself, and its other clients, do not.
#[tokio::test]
async fn wrong_passkeys_for_an_agent_do_not_keep_it_out() {
    let team = Team::new().await;
    for _ in 0..30 {
        try_in(&team, "wrong", "another agent").await.unwrap_err();
    }
    try_in(&team, "合言葉", "another agent").await.unwrap_err();
    try_in(&team, "合言葉", "key").await.unwrap();
    // Its sessions are what they were.
    let (chat, task) = (team.chat("a").await, team.task("a").await);
    chat.at("help").await.unwrap();
    task.at("help").await.unwrap();
}

#[tokio::test]
async fn too_many_wrong_passkeys_are_answered_with_the_time_to_wait_which_is_exact() {
    let team = Team::new().await;
    for _ in 0..10 {
        let wrong = try_in(&team, "wrong", "key").await.unwrap_err().to_string();
        assert!(!wrong.contains("too many"), "{wrong}");
    }
    team.world.clock.advance(Duration::from_secs(20));
    let refused = try_in(&team, "合言葉", "key").await.unwrap_err().to_string();
    assert!(refused.contains("too many wrong passkeys") && refused.contains("40 s"), "{refused}");
    // Asking again and again in the meantime does not make it longer.
    for _ in 0..40 {
        team.world.clock.advance(Duration::from_millis(990));
        try_in(&team, "wrong", "key").await.unwrap_err();
    }
    team.world.clock.advance(Duration::from_millis(400));
    try_in(&team, "合言葉", "key").await.unwrap();
}

/// The time of a refusal does not tell whether there is such an agent.
#[tokio::test]
async fn an_agent_that_does_not_exist_takes_as_long_to_be_refused() {
    let team = Team::new().await;
    let fastest = async |agent: &str| {
        let mut fastest = Duration::MAX;
        for number in 0..5 {
            let login = AgentLoginRequest {
                agent_id: agent.to_owned(),
                passkey: SecretToken::from_caller("wrong"),
                project_id: team.project.to_string(),
                purpose: None,
                by: number.to_string(),
            };
            let started = std::time::Instant::now();
            team.world.app.teams.authenticate(&TenantId::local(), login).await.unwrap_err();
            fastest = fastest.min(started.elapsed());
        }
        fastest
    };
    // Nothing but the hashing takes long. It would be hundreds of times faster without.
    let (known, unknown, none) =
        (fastest("a").await, fastest("absent").await, fastest("no id!").await);
    for other in [unknown, none] {
        assert!(other * 4 > known && known * 4 > other, "{known:?}, {unknown:?}, {none:?}");
    }
}
