//! Agents are changed and removed, and projects with all that they have.

use serde_json::{Value, json};
use shikiri_model::team::SessionPurpose;
use shikiri_teams::{NextAction, TeamError};

use super::{HELP, P, Team, ids};

const NOT_FOUND: u16 = 404;

fn code<T>(result: Result<T, TeamError>) -> &'static str {
    match result {
        Err(TeamError::Refused(refusal)) => refusal.code.as_str(),
        Err(TeamError::App(error)) => panic!("{error}"),
        Ok(_) => "ok",
    }
}

impl Team {
    async fn remove(&self, path: &str) -> u16 {
        self.world.call(&self.key, "DELETE", path, None).await.status.as_u16()
    }

    /// The audited changes of agents and projects' members, as action and kind.
    async fn audited(&self) -> Vec<(String, String, Vec<String>)> {
        let entries = self.world.app.runtime.newest_audit_entries(100).await.unwrap();
        let of_teams = |kind: &str| ["agent", "membership"].contains(&kind);
        entries
            .into_iter()
            .filter(|one| of_teams(&one.entry.kind))
            .map(|one| (one.entry.action.as_str().to_owned(), one.entry.kind, one.entry.fields))
            .collect()
    }
}

#[tokio::test]
async fn what_is_made_has_the_time_that_is_read_later() {
    let team = Team::new().await;
    let message = json!({ "from_agent_id": "ann", "to_agent_id": "mia", "content": "Hello" });
    for (list, body) in [("tasks", json!({ "title": "Play" })), ("messages", message)] {
        let made = team.post(&format!("{P}/{list}"), body).await.json();
        let read = team.get(&format!("{P}/{list}")).await.json();
        for time in ["created_at", "updated_at"] {
            assert_eq!(made[time], read["items"][0][time], "{list}: {time}");
        }
    }
    let task = team.get(&format!("{P}/tasks")).await.json()["items"][0]["id"].clone();
    let path = format!("{P}/tasks/{}", task.as_str().unwrap());
    let changed = team.patch(&path, json!({ "priority": 3 })).await.json();
    assert_eq!(changed["updated_at"], team.get(&path).await.json()["updated_at"]);
}

#[tokio::test]
async fn an_agent_is_changed_and_its_passkey_rotated() {
    let team = Team::new().await;
    let path = format!("{P}/agents/mia");
    let change = json!({
        "name": "Mia", "rank": "manager", "role": "Asks", "spawn": "auto", "passkey": "another",
    });
    let changed = team.patch(&path, change).await.json();
    for (field, value) in
        [("name", "Mia"), ("rank", "manager"), ("role", "Asks"), ("spawn", "auto"), ("kind", "ai")]
    {
        assert_eq!(changed[field], value);
    }
    assert_eq!(team.get(&path).await.json(), changed);
    assert!(!changed.to_string().contains("another"));
    assert_eq!(code(team.login("mia", SessionPurpose::Task).await), "notAuthenticated");
    let fields = ["name", "passkey", "rank", "role", "spawn"].map(str::to_owned).to_vec();
    let change = ("change".to_owned(), "agent".to_owned(), fields);
    assert_eq!(team.audited().await.last(), Some(&change));

    let back = json!({ "passkey": "pass-mia", "role": null });
    assert_eq!(team.patch(&path, back).await.json()["role"], Value::Null);
    assert_eq!(code(team.login("mia", SessionPurpose::Task).await), "ok");
    assert_eq!(team.patch(&path, json!({ "passkey": null })).await.json()["has_passkey"], false);
    assert_eq!(code(team.login("mia", SessionPurpose::Task).await), "notAuthenticated");

    for (path, change, expected) in [
        (&path, json!({ "passkey": "" }), (400, "INVALID_REQUEST")),
        (&path, json!({ "model_id": "none" }), (400, "INVALID_REQUEST")),
        (&path, json!({ "kind": "human" }), (400, "INVALID_REQUEST")),
        (&format!("{P}/agents/otto"), json!({ "name": "O" }), (NOT_FOUND, "AGENT_NOT_FOUND")),
    ] {
        let refused = team.patch(path, change.clone()).await.problem();
        assert_eq!((refused.0, refused.1.as_str()), expected, "{path} {change}");
    }
    // An agent of another project is not this one's.
    team.post("/v1/tenants/a/projects", json!({ "id": "q" })).await;
    team.post("/v1/tenants/a/projects/q/agents", json!({ "id": "otto" })).await;
    for path in [format!("{P}/agents/otto"), "/v1/tenants/a/projects/r/agents/otto".to_owned()] {
        assert_eq!(team.get(&path).await.status.as_u16(), NOT_FOUND, "{path}");
        assert_eq!(team.remove(&path).await, NOT_FOUND, "{path}");
    }
}

#[tokio::test]
async fn an_agent_that_is_removed_leaves_nothing_open() {
    let team = Team::new().await;
    let task = team.task("mia").await;
    let mut worker = team.desk("mia", SessionPurpose::Task).await;
    assert!(matches!(worker.next_action(std::time::Duration::ZERO).await, Ok(NextAction::Work(_))));
    let asked = worker.delegate("ben", "しりとり", None).await.unwrap().id;
    let chat_token = team.login("mia", SessionPurpose::Chat).await.unwrap();
    let teams = &team.world.app.teams;
    let chat = teams.enter_session(&chat_token, HELP).await.unwrap();
    let talk = team.dialogue(&chat).await;
    // Ben's task session waits for Mia.
    let ben = team.desk("ben", SessionPurpose::Task).await;
    let waiting = ben.delegate("mia", "しりとり", None).await.unwrap().id;

    assert_eq!(team.remove(&format!("{P}/agents/mia")).await, 204);
    assert_eq!(code(teams.enter_session(&chat_token, HELP).await), "sessionExpired");
    assert_eq!(code(chat.send_message("ben", "まだいる", None).await), "sessionExpired");
    assert_eq!(code(team.login("mia", SessionPurpose::Chat).await), "notAuthenticated");
    let shown = team.get(&format!("{P}/dialogues/{talk}")).await.json();
    assert_eq!((&shown["state"], &shown["end_reason"]), (&json!("ended"), &json!("cancelled")));
    for id in [asked, waiting] {
        let shown = team.get(&format!("{P}/delegations/{id}")).await.json();
        assert_eq!(shown["status"], "failed");
        assert!(shown["result"]["reason"].as_str().unwrap().contains("mia was removed"), "{shown}");
    }
    let shown = team.get(&format!("{P}/tasks/{task}")).await.json();
    assert_eq!((&shown["status"], &shown["assignee"]), (&json!("blocked"), &json!("mia")));
    assert_eq!(ids(&team.get(&format!("{P}/agents")).await.json()), ["ben", "ann"]);
    assert_eq!(team.remove(&format!("{P}/agents/mia")).await, NOT_FOUND);
    let gone: Vec<_> = team.audited().await.into_iter().rev().take(2).collect();
    let removed = |kind: &str| ("remove".to_owned(), kind.to_owned(), Vec::new());
    assert_eq!(gone, [removed("agent"), removed("membership")]);
    // Nothing is given to it, until another takes its place.
    let again = team.patch(&format!("{P}/tasks/{task}"), json!({ "status": "todo" })).await;
    assert_eq!(again.problem().1, "AGENT_NOT_FOUND");
    let given = json!({ "status": "todo", "assignee": "ben" });
    assert_eq!(team.patch(&format!("{P}/tasks/{task}"), given).await.status.as_u16(), 200);
}

#[tokio::test]
async fn an_agent_of_two_projects_stays_in_the_other_one() {
    let team = Team::new().await;
    team.post("/v1/tenants/a/projects", json!({ "id": "q" })).await;
    team.post("/v1/tenants/a/projects/q/agents", json!({ "id": "mia" })).await;
    assert_eq!(team.remove(&format!("{P}/agents/mia")).await, 204);
    assert_eq!(code(team.login("mia", SessionPurpose::Chat).await), "project_not_found");
    assert_eq!(ids(&team.get("/v1/tenants/a/projects/q/agents").await.json()), ["mia"]);
}

#[tokio::test]
async fn a_project_is_removed_with_all_that_it_has() {
    let team = Team::new().await;
    let task = team.task("mia").await;
    let token = team.login("mia", SessionPurpose::Chat).await.unwrap();
    let chat = team.world.app.teams.enter_session(&token, HELP).await.unwrap();
    let talk = team.dialogue(&chat).await;
    chat.send_message("ann", "やあ", None).await.unwrap();
    assert_eq!(team.remove(P).await, 204);
    assert_eq!(code(team.world.app.teams.enter_session(&token, HELP).await), "notAuthenticated");
    let parts = [
        String::new(),
        "/agents".to_owned(),
        "/messages".to_owned(),
        format!("/tasks/{task}"),
        format!("/dialogues/{talk}"),
    ];
    for part in &parts {
        let (status, code) = team.get(&format!("{P}{part}")).await.problem();
        assert_eq!((status, code.as_str()), (NOT_FOUND, "PROJECT_NOT_FOUND"), "{part}");
    }
    assert_eq!(team.remove(P).await, NOT_FOUND);
    // One of the same name begins with nothing.
    team.post("/v1/tenants/a/projects", json!({ "id": "p" })).await;
    for list in ["agents", "tasks", "messages", "delegations", "dialogues"] {
        assert!(ids(&team.get(&format!("{P}/{list}")).await.json()).is_empty(), "{list}");
    }
}
