//! How many messages two agents exchange because of one thing: no login and no second session refills it.

use shikiri_model::ids::TenantId;
use shikiri_teams::TeamError;

use super::world::{Agent, Team, code};

const REFUSED: &str = "message_budget_spent";

impl Team {
    /// A message that a person writes to an agent.
    async fn write(&self, to: &str) {
        let (tenant, person) = (TenantId::local(), "person".parse().unwrap());
        let to = to.parse().unwrap();
        let posted = self.world.app.teams.post_message(
            &tenant,
            &self.project,
            &person,
            &to,
            "どう思いますか",
        );
        posted.await.unwrap();
    }

    /// What an agent was told by the server, by the sessions of these logins.
    async fn notices(&self, agent: &str) -> usize {
        let session = self.chat(agent).await;
        let mut notices = 0;
        loop {
            let pending = session.pending().await.pending_messages;
            if pending.is_empty() {
                return notices;
            }
            notices += pending.iter().filter(|message| message.from_agent_id == "shikiri").count();
        }
    }
}

/// Each sends before it reads, in a session of its own.
async fn exchange(team: &Team, rounds: u32) -> Result<u32, (u32, TeamError)> {
    let mut sent = 0;
    for round in 0..rounds {
        let (from, to) = if round % 2 == 0 { ("a", "b") } else { ("b", "a") };
        let session: Agent<'_> = team.chat(from).await;
        match session.send(to, "どう？").await {
            Ok(_) => sent += 1,
            Err(refused) => return Err((sent, refused)),
        }
    }
    Ok(sent)
}

#[tokio::test]
async fn one_message_of_a_person_sets_off_forty_between_two_agents_whoever_logs_in() {
    let team = Team::new().await;
    team.write("a").await;
    let (sent, refused) = exchange(&team, 60).await.expect_err("no end");
    assert_eq!((sent, code::<()>(Err(refused))), (40, REFUSED));
    // Neither of them, by no session, and no talk either.
    for (from, to) in [("a", "b"), ("b", "a"), ("a", "b")] {
        let session = team.chat(from).await;
        assert_eq!(code(session.send(to, "まだ？").await), REFUSED);
        assert_eq!(code(session.start(to, 4, None).await), REFUSED);
    }
    // Both are told once, and the person too.
    for (agent, told) in [("a", 1), ("b", 1), ("person", 1), ("a", 0), ("b", 0), ("person", 0)] {
        assert_eq!(team.notices(agent).await, told, "{agent}");
    }
    // Another agent is another pair, and a person starts afresh.
    team.chat("a").await.send("c", "どう？").await.unwrap();
    team.world.clock.advance(std::time::Duration::from_secs(1));
    team.write("b").await;
    team.chat("b").await.send("a", "どう？").await.unwrap();
}
