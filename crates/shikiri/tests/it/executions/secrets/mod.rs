//! Secrets are seen only by those whom they are for: canaries go in wherever a
//! secret can, and are then looked for in all that comes out.

mod canaries;
mod echo;
mod processes;
mod world;

use canaries::Canaries;
use serde_json::{Value, json};
use shikiri_testkit::{TestApp, have_postgres, until};
use world::World;

use super::kit::{Talk, events, terminal};
use crate::PROGRAM;

#[tokio::test(flavor = "multi_thread")]
async fn what_is_given_in_secret_is_found_nowhere() {
    let mut world = World::new().await;
    // A whole turn, one that fails, one that is asked for twice, and one without its reader.
    let whole = world.post(&world.body("#offline events=3 tools=1 subagents=1"), &[]).await;
    let told = events(&whole.text());
    let done = terminal(&told).data["execution_id"].as_str().unwrap().to_owned();
    let failed = world.post(&world.body("#offline events=1 error=壊れた"), &[]).await;
    let told = events(&failed.text());
    assert_eq!(terminal(&told).data["code"], "SDK_ERROR", "{told:?}");
    let failed = terminal(&told).data["execution_id"].as_str().unwrap().to_owned();
    let twice = [("Idempotency-Key", "twice"), ("Prefer", "respond-async")];
    let running = world.post(&world.body("#offline hang=1"), &twice).await.expect(202);
    let running = running["id"].as_str().unwrap().to_owned();
    assert_eq!(world.post(&world.body("#offline hang=1"), &twice).await.expect(202)["id"], running);
    world.look_at_disk();
    refusals(&world).await;
    world.canaries.in_answer("a cancel", &world.talk.cancel(&running).await);
    world.talk.follow(&running, 0).await;
    for execution in [&done, &failed, &running] {
        world.look_everywhere(execution).await;
    }
    a_cli_that_tells_all(&world).await;
    world.look_at_disk();
    trying_a_server(&world).await;
    look_at_terminal(&world, &done);

    // A CLI is cancelled before it has read its files.
    let (hanging, execution) = world.hang().await;
    world.look_at_disk();
    hanging.cancel(&execution).await.expect(200);
    hanging.follow(&execution, 0).await;
    world.look_everywhere(&execution).await;

    // In the middle of two turns the process is gone: its write-ahead log is all there is.
    world.hang().await;
    world.post(&world.body("#offline hang=1"), &[("Prefer", "respond-async")]).await.expect(202);
    world.app.kill9();
    world.look_at_disk();
    world.app.restart().await;
    assert_eq!(world.app.terminate().await.0, 0);
    assert!(!world.app.data_folder().join("state.db-wal").exists(), "the log is taken up");
    world.look_at_disk();
    world.look_at_log();
    world.processes.found_nothing();
}

/// The same on PostgreSQL, where the session's files are rows and the log is the cluster's.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_given_in_secret_is_not_in_postgresql() {
    if !have_postgres("secrets in PostgreSQL") {
        return;
    }
    let mut world = World::on(TestApp::new(PROGRAM).postgres()).await;
    a_cli_that_tells_all(&world).await;
    let (hanging, execution) = world.hang().await;
    hanging.cancel(&execution).await.expect(200);
    hanging.follow(&execution, 0).await;
    world.hang().await;
    world.app.kill9();
    world.look_at_files();
    let rows = world.rows_of_postgres().await;
    assert!(rows.contains(&world.canaries.plain), "the search would not find what is there");
    assert!(rows.contains("go away"), "the session's file is there");
    world.canaries.look("PostgreSQL", rows.as_bytes());
}

/// Whatever is wrong with a request, its answer does not repeat what is secret in it.
async fn refusals(world: &World) {
    let Canaries { token, .. } = &world.canaries;
    let other = |tokens: Value| {
        let mut body = world.body("やあ");
        body["tokens"] = tokens;
        body
    };
    let missing = world.post(&other(json!({ "gitlab": token })), &[]).await;
    assert_eq!(missing.problem(400)["code"], "MISSING_TOKEN");
    for wrong in [
        json!({ "github": format!("{token}\r\nX-Evil: 1") }),
        json!({ "github": format!("{token}{}", "x".repeat(20_000)) }),
        json!({ "github": [token] }),
        json!({ "github": { "value": token } }),
        json!(token),
        json!([token]),
    ] {
        let refused = world.post(&other(wrong), &[]).await;
        assert_eq!(refused.problem(400)["code"], "INVALID_REQUEST");
    }
    let mut unknown = world.body("やあ");
    unknown["token"] = json!(token);
    world.post(&unknown, &[]).await.problem(400);
    let mut nowhere = world.body("やあ");
    nowhere["model_id"] = json!("none");
    world.post(&nowhere, &[]).await.problem(404);
    let mut unskilled = world.body("やあ");
    unskilled["preferred_skills"] = json!(["none"]);
    world.post(&unskilled, &[]).await.problem(400);
    let model_env = &world.canaries.model_env;
    for env in
        [json!(model_env), json!({ "A": [model_env] }), json!({ "A": format!("{model_env}\0") })]
    {
        let model = json!({ "id": "wrong", "engine": "offline", "env": env });
        let refused = world.app.client().post("/v1/models", &model).await;
        world.canaries.in_answer("a refused model", &refused);
        refused.problem(400);
    }
    let status = async |status: &str| {
        let change = json!({ "status": status });
        world.app.client().patch("/v1/tenants/user", &change).await.expect(200);
    };
    status("inactive").await;
    let mut admin = world.talk.clone();
    admin.tenant.client = world.app.client();
    let inactive = admin.post(&world.body("やあ"), &[]).await;
    world.canaries.in_answer("an inactive tenant", &inactive);
    assert_eq!(inactive.problem(403)["code"], "TENANT_INACTIVE");
    status("active").await;
    let locked = world.post(&world.body("やあ"), &[]).await;
    assert_eq!(locked.problem(409)["code"], "CONVERSATION_LOCKED");
}

/// What an engine's program says goes on to readers, without what it should have kept to itself.
async fn a_cli_that_tells_all(world: &World) {
    let talk = Talk::start(&world.talk.tenant).await;
    let mut body = world.body("やあ");
    body["model_id"] = json!("blabbing");
    let answer = talk.post(&body, &[]).await;
    let told = events(&answer.text());
    let end = &terminal(&told).data;
    // The token of the run. It has neither the request's nor a credential of the operator's.
    let result = end["result"].as_str().unwrap();
    assert_eq!(result.trim(), "[REDACTED]", "{}", answer.text());
    // Its server was sent the token and repeated it, but not to the CLI and its session's file.
    assert!(world.echo.heard.lock().unwrap().contains(&world.canaries.token));
    let home = world.app.data_folder().join("engines").join(&talk.id);
    let session = std::fs::read_to_string(home.join("claude/projects/p/s.jsonl")).unwrap();
    assert!(session.contains("go away") && session.contains("[REDACTED]"), "{session}");
    world.canaries.in_answer("what a CLI told", &answer);
    let path = talk.path("/messages");
    world.get(&talk.tenant.client, &path).await;
    world.look_everywhere(end["execution_id"].as_str().unwrap()).await;
    world.look_at_files();
}

/// The server that the token is for gets it; what it makes of it is not repeated.
async fn trying_a_server(world: &World) {
    let client = &world.talk.tenant.client;
    let check = format!("{}/check", world.server);
    let with = json!({ "tokens": { "github": world.canaries.token } });
    let tried = client.post(&check, &with).await;
    world.canaries.in_answer("a check", &tried);
    assert!(tried.expect(200)["detail"].as_str().unwrap().contains("go away"), "{}", tried.text());
    let heard = || world.echo.heard.lock().unwrap().clone();
    until("the token arrived", async || heard().contains(&world.canaries.token)).await;
    for wrong in [json!({}), json!({ "github": "a\nb" }), json!(world.canaries.token)] {
        let refused = client.post(&check, &json!({ "tokens": wrong })).await;
        world.canaries.in_answer("a refused check", &refused);
        refused.problem(400);
    }
}

fn look_at_terminal(world: &World, execution: &str) {
    let cli = world.app.cli();
    for args in [
        &["models", "show", "secretive", "--json"][..],
        &["models", "list"],
        &["executions", "show", execution, "--tenant", "user", "--json"],
        &["runs", "show", execution, "--tenant", "user", "--json"],
        &["doctor"],
    ] {
        let ended = cli.run(args);
        world.canaries.look(&args.join(" "), ended.stdout.as_bytes());
        world.canaries.look(&args.join(" "), ended.stderr.as_bytes());
        assert_ne!(ended.code, 2, "{args:?}: {}", ended.stderr);
    }
}
