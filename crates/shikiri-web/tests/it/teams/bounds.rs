//! What is refused, whose a team is, and how it goes.

use axum::http::StatusCode;
use serde_json::json;
use shikiri_model::team::SessionPurpose;

use super::{HELP, P, Team, ids};

#[tokio::test]
async fn what_is_wrong_is_refused_with_its_code() {
    let team = Team::new().await;
    team.post("/v1/tenants/a/projects", json!({ "id": "q" })).await;
    team.post("/v1/tenants/a/projects/q/agents", json!({ "id": "otto" })).await;
    let task = team.task("mia").await;
    let message = |from: &str, to: &str, content: &str| json!({ "from_agent_id": from, "to_agent_id": to, "content": content });
    let long = "語".repeat(4_001);
    let wide = "x".repeat(501);
    let (tasks, messages) = (format!("{P}/tasks"), format!("{P}/messages"));
    let agents = format!("{P}/agents");
    let gone = "/v1/tenants/a/projects/gone";
    let cases = [
        (messages.clone(), message("ann", "ann", "x"), 400, "CANNOT_CONVERSATION_WITH_SELF"),
        (messages.clone(), message("ann", "absent", "x"), 404, "AGENT_NOT_FOUND"),
        (messages.clone(), message("absent", "ann", "x"), 404, "AGENT_NOT_FOUND"),
        (messages.clone(), message("ann", "otto", "x"), 403, "TARGET_AGENT_NOT_IN_PROJECT"),
        (messages.clone(), message("ann", "mia", " "), 400, "INVALID_REQUEST"),
        (messages.clone(), message("ann", "mia", &long), 400, "CONTENT_TOO_LONG"),
        (messages.clone(), json!({ "content": "x" }), 400, "INVALID_REQUEST"),
        (tasks.clone(), json!({}), 400, "INVALID_REQUEST"),
        (tasks.clone(), json!({ "title": "" }), 400, "INVALID_REQUEST"),
        (tasks.clone(), json!({ "title": wide }), 400, "INVALID_REQUEST"),
        (tasks.clone(), json!({ "title": 5 }), 400, "INVALID_REQUEST"),
        (tasks.clone(), json!({ "title": "x", "priority": 1.5 }), 400, "INVALID_REQUEST"),
        (tasks.clone(), json!({ "title": "x", "titel": "y" }), 400, "INVALID_REQUEST"),
        (tasks.clone(), json!({ "title": "x", "assignee": "absent" }), 404, "AGENT_NOT_FOUND"),
        (
            tasks.clone(),
            json!({ "title": "x", "assignee": "otto" }),
            403,
            "TARGET_AGENT_NOT_IN_PROJECT",
        ),
        (tasks.clone(), json!({ "title": "x", "parent_id": "tsk_1" }), 404, "TASK_NOT_FOUND"),
        (agents.clone(), json!({}), 400, "INVALID_REQUEST"),
        (agents.clone(), json!({ "id": "a b" }), 400, "INVALID_REQUEST"),
        (agents.clone(), json!({ "id": "x", "kind": "robot" }), 400, "INVALID_REQUEST"),
        (agents.clone(), json!({ "id": "x", "passkey": "" }), 400, "INVALID_REQUEST"),
        (agents.clone(), json!({ "id": "x", "model_id": "none" }), 400, "INVALID_REQUEST"),
        (agents.clone(), json!({ "id": "mia" }), 409, "CONFLICT"),
        (format!("{gone}/tasks"), json!({ "title": "x" }), 404, "PROJECT_NOT_FOUND"),
        (format!("{gone}/agents"), json!({ "id": "x" }), 404, "PROJECT_NOT_FOUND"),
        (format!("{gone}/messages"), message("ann", "mia", "x"), 404, "PROJECT_NOT_FOUND"),
        (format!("{gone}/dialogues/dia_1/cancel"), json!({}), 404, "PROJECT_NOT_FOUND"),
        (format!("{P}/dialogues/dia_1/cancel"), json!({}), 404, "CONVERSATION_NOT_FOUND"),
        ("/v1/tenants/a/projects".to_owned(), json!({ "id": "../p" }), 400, "INVALID_REQUEST"),
        ("/v1/tenants/a/projects".to_owned(), json!({ "name": "" }), 400, "INVALID_REQUEST"),
    ];
    let agents_before = team.get(&agents).await.text;
    for (path, body, status, code) in cases {
        let answer = team.post(&path, body.clone()).await;
        assert_eq!(answer.problem(), (status, code.to_owned()), "{path} {body}: {}", answer.text);
    }
    for (path, code) in [
        (gone.to_owned(), "PROJECT_NOT_FOUND"),
        (format!("{gone}/tasks"), "PROJECT_NOT_FOUND"),
        (format!("{gone}/dialogues"), "PROJECT_NOT_FOUND"),
        (format!("{gone}/delegations/x"), "PROJECT_NOT_FOUND"),
        (format!("{gone}/messages?agent_id=mia"), "PROJECT_NOT_FOUND"),
        (format!("{P}/tasks/tsk_1"), "TASK_NOT_FOUND"),
        (format!("/v1/tenants/a/projects/q/tasks/{task}"), "TASK_NOT_FOUND"),
        (format!("{P}/delegations/%20"), "DELEGATION_NOT_FOUND"),
        (format!("{P}/dialogues/dia_1"), "CONVERSATION_NOT_FOUND"),
        (format!("{P}/dialogues/dia_1/messages"), "CONVERSATION_NOT_FOUND"),
        (format!("{P}/dialogues/dia_1/events"), "CONVERSATION_NOT_FOUND"),
    ] {
        assert_eq!(team.get(&path).await.problem(), (404, code.to_owned()), "{path}");
    }
    for path in [
        format!("{P}/tasks?status=open"),
        format!("{P}/dialogues?state=gone"),
        format!("{P}/delegations?status="),
        format!("{P}/messages?agent_id=a%20b"),
        format!("{P}/agents?limit=0"),
    ] {
        assert_eq!(team.get(&path).await.problem().0, 400, "{path}");
    }
    let before = team.get(&format!("{P}/tasks/{task}")).await.text;
    for body in
        [json!({ "status": "open" }), json!({ "assignee": "otto" }), json!({ "title": " " })]
    {
        let answer = team.patch(&format!("{P}/tasks/{task}"), body.clone()).await;
        assert!(answer.status.is_client_error(), "{body}");
    }
    assert_eq!(team.get(&format!("{P}/tasks/{task}")).await.text, before);
    assert_eq!(team.get(&agents).await.text, agents_before);
    assert!(ids(&team.get(&messages).await.json()).is_empty());
}

#[tokio::test]
async fn an_inactive_tenants_team_gets_nothing_more() {
    let team = Team::new().await;
    let inactive = Some(json!({ "status": "inactive" }));
    team.world.call(&team.world.admin, "PATCH", "/v1/tenants/a", inactive).await;
    let message = json!({ "from_agent_id": "ann", "to_agent_id": "mia", "content": "x" });
    for (path, body) in [
        ("/v1/tenants/a/projects".to_owned(), json!({})),
        (format!("{P}/agents"), json!({ "id": "new" })),
        (format!("{P}/tasks"), json!({ "title": "x" })),
        (format!("{P}/messages"), message),
    ] {
        let answer = team.post(&path, body).await;
        assert_eq!(answer.problem(), (403, "TENANT_INACTIVE".to_owned()), "{path}");
    }
    assert!(ids(&team.get(&format!("{P}/tasks")).await.json()).is_empty());
}

/// Nothing of a team is found with another tenant's key, nor through another tenant's path.
#[tokio::test]
async fn another_tenants_team_is_not_there() {
    let team = Team::new().await;
    let other = team.world.tenant("b").await;
    let mia = team.desk("mia", SessionPurpose::Chat).await;
    let (dialogue, task) = (team.dialogue(&mia).await, team.task("mia").await);
    team.world.call(&other, "POST", "/v1/tenants/b/projects", Some(json!({ "id": "p" }))).await;
    for (rest, code) in [
        (format!("/tasks/{task}"), "TASK_NOT_FOUND"),
        (format!("/dialogues/{dialogue}"), "CONVERSATION_NOT_FOUND"),
        (format!("/dialogues/{dialogue}/messages"), "CONVERSATION_NOT_FOUND"),
        (format!("/dialogues/{dialogue}/events"), "CONVERSATION_NOT_FOUND"),
    ] {
        let foreign = team.world.call(&other, "GET", &format!("{P}{rest}"), None).await;
        assert_eq!(foreign.problem(), (404, "TENANT_NOT_FOUND".to_owned()), "{rest}");
        let path = format!("/v1/tenants/b/projects/p{rest}");
        let own = team.world.call(&other, "GET", &path, None).await;
        assert_eq!(own.problem(), (404, code.to_owned()), "{rest}");
    }
    for list in ["agents", "tasks", "messages", "delegations", "dialogues"] {
        let path = format!("/v1/tenants/b/projects/p/{list}");
        let page = team.world.call(&other, "GET", &path, None).await.json();
        assert!(ids(&page).is_empty(), "{list}");
    }
    let body = json!({ "from_agent_id": "ann", "to_agent_id": "mia", "content": "x" });
    let path = "/v1/tenants/b/projects/p/messages";
    let answer = team.world.call(&other, "POST", path, Some(body)).await;
    assert_eq!(answer.problem(), (404, "AGENT_NOT_FOUND".to_owned()));
    let path = format!("/v1/tenants/b/projects/p/dialogues/{dialogue}/cancel");
    let answer = team.world.call(&other, "POST", &path, None).await;
    assert_eq!(answer.problem(), (404, "CONVERSATION_NOT_FOUND".to_owned()));
    assert_eq!(team.get(&format!("{P}/dialogues/{dialogue}")).await.json()["state"], "pending");
}

#[tokio::test]
async fn a_team_goes_with_its_tenant_and_its_tokens_stop_working() {
    let team = Team::new().await;
    let mia = team.desk("mia", SessionPurpose::Chat).await;
    team.dialogue(&mia).await;
    team.task("mia").await;
    let token = team.login("mia", SessionPurpose::Task).await.unwrap();
    let app = &team.world.app;
    app.teams.enter_session(&token, HELP).await.unwrap();
    let gone = team.world.call(&team.world.admin, "DELETE", "/v1/tenants/a", None).await;
    assert_eq!(gone.status, StatusCode::NO_CONTENT);
    assert!(app.teams.enter_session(&token, HELP).await.is_err());
    assert!(team.login("mia", SessionPurpose::Task).await.is_err());
    let rows = "SELECT (SELECT count(*) FROM records WHERE tenant = 'a')
                     + (SELECT count(*) FROM streams WHERE tenant = 'a')";
    let database = team.world.database();
    let left: i64 = database.query_row(rows, [], |row| row.get(0)).unwrap();
    assert_eq!(left, 0);
    // Another tenant's of the same name starts with nothing.
    team.world.tenant("a").await;
    let path = "/v1/tenants/a/projects";
    assert!(ids(&team.world.get(path).await.json()).is_empty());
}
