//! The native engines behind the REST door, with a scripted model: turns, sessions, limits, bills,
//! and a server that is killed.

use std::time::Duration;

use serde_json::{Value, json};
use shikiri_testkit::{FakeModel, Gate, Reply, TestApp, wait_until};

use super::kit::{Talk, events, kinds, terminal, text_of};
use crate::PROGRAM;

const PATIENCE: Duration = Duration::from_secs(30);
const LIGHT: &str = "claude-haiku-4-5";

struct World {
    app: TestApp,
    model: FakeModel,
    talk: Talk,
}

impl World {
    async fn start(engine: &str) -> Self {
        Self::start_with(engine, &[]).await
    }

    async fn start_with(engine: &str, env: &[(&str, &str)]) -> Self {
        let model = FakeModel::start().await;
        model.require_keys("AKIATEST", "aws-test-secret");
        // The title's request has no tools; any turn's offers `Task`.
        model.answer(|request| {
            request.body.get("tools").is_none().then(|| Reply::text("「古都めぐり」"))
        });
        let mut app = TestApp::new(PROGRAM)
            .env("ANTHROPIC_BASE_URL", model.url())
            .env("ANTHROPIC_BEDROCK_BASE_URL", model.url())
            .env("ANTHROPIC_API_KEY", "sk-test-canary")
            .env("AWS_ACCESS_KEY_ID", "AKIATEST")
            .env("AWS_SECRET_ACCESS_KEY", "aws-test-secret")
            .env("CLAUDE_CODE_MAX_RETRIES", 1);
        for (name, value) in env {
            app = app.env(name, value);
        }
        let app = app.start().await;
        for (id, name, input) in [("main", "claude-sonnet-4-5", 3), ("light", LIGHT, 1)] {
            let aliases = if id == "light" { json!(["haiku"]) } else { json!([]) };
            let record = json!({ "id": id, "engine": engine, "model_name": name,
                "aliases": aliases, "prices": { "input": input, "output": 5 * input } });
            app.client().post("/v1/models", &record).await.expect(201);
        }
        let patch = json!({ "model_id": "main", "system_prompt": "合言葉は山。" });
        app.client().patch("/v1/tenants/local", &patch).await.expect(200);
        let talk = Talk::start(&app.local()).await;
        Self { app, model, talk }
    }

    /// By the API's own count.
    fn spent(&self) -> (u64, u64) {
        let spent = self.model.spent();
        let sum = |of: fn(&shikiri_testkit::Usage) -> u64| {
            spent.iter().map(|spent| of(&spent.usage)).sum::<u64>()
        };
        (sum(|usage| usage.input_tokens), sum(|usage| usage.output_tokens))
    }

    async fn restart(&mut self) {
        self.app.restart().await;
        self.talk.tenant = self.app.local();
    }
}

fn spawn(prompt: &str) -> Value {
    json!({ "description": "調べる", "subagent_type": "general-purpose", "prompt": prompt })
}

fn body(input: &str, more: Value) -> Value {
    let mut body = Talk::body(input);
    for (name, value) in more.as_object().unwrap() {
        body[name] = value.clone();
    }
    body
}

#[tokio::test(flavor = "multi_thread")]
async fn turns_with_parallel_subagents_are_billed_to_the_token_and_resumed_without_files() {
    for engine in ["anthropic", "bedrock"] {
        let mut world = World::start(engine).await;
        let mut second = spawn("奈良を見よ");
        second["model"] = json!("haiku");
        let ask = Reply::thinking("どこ?").and_text("調べます。");
        let ask = ask.and_call("Task", spawn("京都を見よ")).and_call("Task", second);
        world.model.script("都を調べて", [ask, Reply::text("京都と奈良です。")]);
        world.model.script("京都を見よ", [Reply::text("京都")]);
        world.model.script("奈良を見よ", [Reply::text("奈良")]);
        let told = world.talk.say("都を調べて").await;
        let end = terminal(&told);
        assert_eq!(
            (end.kind.as_str(), &end.data["result"]),
            ("result", &json!("京都と奈良です。")),
            "{}",
            end.data
        );
        assert_eq!(text_of(&told), "調べます。京都と奈良です。");
        for kind in ["subagent_start", "subagent_end", "tool_use", "tool_result"] {
            let count = kinds(&told).iter().filter(|k| **k == kind).count();
            assert_eq!(count, 2, "{kind} in {:?}", kinds(&told));
        }
        let title = told.iter().find(|event| event.kind == "title").unwrap();
        assert_eq!(title.data["title"], "古都めぐり");
        let id = told[0].data["execution_id"].as_str().unwrap();
        let rows = world.talk.execution(id, "/usage").await["items"].as_array().unwrap().clone();
        let sum = |field: &str| -> u64 {
            rows.iter().map(|row| row["usage"][field].as_u64().unwrap()).sum()
        };
        assert_eq!((sum("input_tokens"), sum("output_tokens")), world.spent(), "{rows:#?}");
        assert_eq!(rows.iter().filter(|row| row["kind"] == "subagent").count(), 2, "{rows:#?}");
        assert!(rows.iter().any(|row| row["kind"] == "subagent" && row["model"] == LIGHT));

        // Another process goes on with the session, from the store alone.
        let session = end.data["session_id"].clone();
        world.restart().await;
        world.model.script("次は", [Reply::text("大阪です。")]);
        let told = world.talk.say("次は").await;
        assert_eq!((&told[0].data["resumed"], &told[0].data["turn"]), (&json!(true), &json!(2)));
        assert_eq!(terminal(&told).data["session_id"], session);
        let asked = world.model.messages().pop().unwrap();
        let said = asked.body["messages"].to_string();
        assert!(said.contains("都を調べて") && said.contains("京都と奈良です。"), "{said}");
        assert!(said.contains("\"tool_result\""), "{said}");
        // A new session knows nothing of it.
        let forget = json!({ "session_id": null });
        world.talk.tenant.client.patch(&world.talk.path(""), &forget).await.expect(200);
        let told = world.talk.say("次は").await;
        assert_eq!(told[0].data["resumed"], false);
        assert!(!world.model.messages().pop().unwrap().says("都を調べて"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_come_with_the_request_and_the_end_names_the_one_that_was_reached() {
    let world = World::start("anthropic").await;
    world.model.answer(|request| request.says("続けて").then(|| Reply::call("nobody", json!({}))));
    let answer =
        world.talk.post(&body("続けて", json!({ "limits": { "max_turns": 2 } })), &[]).await;
    let told = events(&answer.text());
    let end = &terminal(&told).data;
    assert_eq!((&end["limit"], &end["is_error"]), (&json!("max_turns"), &json!(true)), "{end}");
    assert_eq!(end["errors"], json!(["stopped by the limit max_turns of 2"]));
    assert_eq!(end["num_turns"], 2);
    let dear = json!({ "limits": { "max_cost_usd": 0.0001 } });
    let told = events(&world.talk.post(&body("続けて", dear), &[]).await.text());
    assert_eq!(terminal(&told).data["limit"], "max_cost_usd");
    assert_eq!(terminal(&told).data["total_cost_usd"], 0.0, "it was not even asked");
    for (bad, field) in [
        (json!({ "max_turns": 0 }), "limits.max_turns"),
        (json!({ "max_cost_usd": -1 }), "limits.max_cost_usd"),
        (json!({ "subagent": { "max_tokens": 0 } }), "limits.max_tokens"),
    ] {
        let refused = world.talk.post(&body("x", json!({ "limits": bad })), &[]).await.expect(400);
        assert!(refused.to_string().contains(field), "{refused}");
    }
    let other = body("x", json!({ "model_id": "offline", "limits": { "max_turns": 1 } }));
    let refused = world.talk.post(&other, &[]).await.expect(400);
    assert!(refused.to_string().contains("anthropic or bedrock"), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_goes_on_after_its_server_was_killed_and_one_with_secrets_does_not() {
    let mut world = World::start_with("anthropic", &[("SHIKIRI_NODE_LEASE_SECONDS", "1")]).await;
    let gate = Gate::new();
    let first = Reply::text("前半、").and_call("Task", spawn("見よ"));
    world.model.script("長い話", [first, Reply::text("後半。")]);
    world.model.script("見よ", [Reply::text("見た").held(&gate)]);
    let id = world.talk.begin("長い話").await;
    world.model.asked(PATIENCE, |request| request.says("見よ")).await;
    world.app.kill9();
    gate.open();
    world.restart().await;
    let told = events(&world.talk.follow(&id, 0).await);
    assert_eq!(terminal(&told).data["result"], "後半。", "{:?}", terminal(&told));
    assert_eq!(text_of(&told), "前半、後半。");
    let numbers: Vec<_> = told.iter().map(|event| event.id).collect();
    assert_eq!(numbers, (1..=numbers.len() as u64).collect::<Vec<_>>());
    let asked = |words: &str| {
        let all = world.model.messages();
        all.iter()
            .filter(|request| request.says(words) && request.body.get("tools").is_some())
            .count()
    };
    assert_eq!(asked("長い話"), 2, "the first reply was kept");
    assert_eq!(world.talk.record().await["turns"], 1);

    let gate = Gate::new();
    world.model.script("内緒", [Reply::text("秘").held(&gate)]);
    let secret = body("内緒", json!({ "tokens": { "t": "token-canary-77" } }));
    let begun = world.talk.post(&secret, &[("Prefer", "respond-async")]).await.expect(202);
    let id = begun["id"].as_str().unwrap().to_owned();
    world.model.asked(PATIENCE, |request| request.says("内緒")).await;
    world.app.kill9();
    gate.open();
    world.restart().await;
    let told = events(&world.talk.follow(&id, 0).await);
    assert_eq!(terminal(&told).data["code"], "INTERRUPTED");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_is_cancelled_wherever_it_is_and_is_billed() {
    let mut world = World::start_with("bedrock", &[("SHIKIRI_NODE_LEASE_SECONDS", "1")]).await;
    let slow = || Reply::text(&"長い ".repeat(300)).paced(Duration::from_millis(20));
    world.model.script("長い話", [slow()]);
    let id = world.talk.begin("長い話").await;
    let has_text = async || {
        let usage = world.talk.execution(&id, "/usage").await;
        usage["items"].as_array().is_some_and(|rows| !rows.is_empty())
    };
    wait_until("it has begun", PATIENCE, has_text).await;
    world.talk.cancel(&id).await.expect(200);
    let told = events(&world.talk.follow(&id, 0).await);
    assert_eq!(terminal(&told).data["code"], "CANCELLED");
    let execution = world.talk.execution(&id, "").await;
    assert_eq!(execution["usage"]["input_tokens"], 100);

    // One that waits for another process is cancelled there.
    let id = world.talk.begin("長い話").await;
    wait_until("it has begun", PATIENCE, async || world.model.spent().len() == 2).await;
    world.app.kill9();
    world.restart().await;
    world.talk.cancel(&id).await;
    let told = events(&world.talk.follow(&id, 0).await);
    assert_eq!(terminal(&told).data["code"], "CANCELLED");
    assert_eq!(world.talk.record().await["turns"], 0);
    let next = world.talk.post(&Talk::body("#x"), &[("Prefer", "respond-async")]).await;
    assert_eq!(next.status, 202, "the conversation is free");
}

#[tokio::test(flavor = "multi_thread")]
async fn time_runs_out_for_a_native_turn_as_for_any() {
    let world = World::start_with("anthropic", &[("SHIKIRI_EXECUTION_TIMEOUT_SECONDS", "1")]).await;
    let gate = Gate::new();
    world.model.script("黙れ", [Reply::text("x").held(&gate)]);
    let told = world.talk.say("黙れ").await;
    assert_eq!(terminal(&told).data["code"], "TIMEOUT");
    let slow = Reply::text(&"長い ".repeat(300)).paced(Duration::from_millis(20));
    world.model.script("話せ", [slow]);
    let told = world.talk.say("話せ").await;
    let end = terminal(&told);
    assert_eq!((end.kind.as_str(), &end.data["partial"]), ("result", &json!(true)));
    assert_eq!(end.data["result"], text_of(&told));
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_key_a_turn_is_refused_before_it_starts() {
    let app = TestApp::new(PROGRAM).env("ANTHROPIC_API_KEY", "").start().await;
    for engine in ["anthropic", "bedrock"] {
        let record = json!({ "id": engine, "engine": engine, "model_name": "m",
            "env": { "AWS_SHARED_CREDENTIALS_FILE": "/nowhere", "AWS_CONFIG_FILE": "/nowhere" } });
        app.client().post("/v1/models", &record).await.expect(201);
        let talk = Talk::start(&app.local()).await;
        let refused = talk.post(&body("x", json!({ "model_id": engine })), &[]).await;
        assert!(refused.status >= 400, "{}", refused.text());
        assert!(refused.text().contains("_KEY"), "{}", refused.text());
        let listed = talk.tenant.client.get(&talk.path("/executions")).await.expect(200);
        assert_eq!(listed["items"], json!([]), "nothing has begun");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_is_handed_on_by_a_server_that_is_asked_to_end() {
    let mut world = World::start("anthropic").await;
    let gate = Gate::new();
    world.model.script("長い話", [Reply::call("Task", spawn("見よ")), Reply::text("済み。")]);
    world.model.script("見よ", [Reply::text("見た").held(&gate)]);
    let id = world.talk.begin("長い話").await;
    world.model.asked(PATIENCE, |request| request.says("見よ")).await;
    // It waits a while for the end of the turn, in vain.
    let (code, _) = world.app.terminate().await;
    assert_eq!(code, 0);
    gate.open();
    world.restart().await;
    let told = events(&world.talk.follow(&id, 0).await);
    assert_eq!(terminal(&told).data["result"], "済み。", "{:?}", terminal(&told));
    let asked = world.model.messages();
    let first = asked.iter().filter(|r| r.says("長い話") && r.body.get("tools").is_some());
    assert_eq!(first.count(), 2, "no kept reply was asked for again");
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_are_given_on_the_command_line() {
    let world = World::start("anthropic").await;
    world.model.answer(|request| request.says("続けて").then(|| Reply::call("nobody", json!({}))));
    let cli = world.app.cli();
    let ended = tokio::task::spawn_blocking(move || {
        let engine = ["run", "続けて", "--engine", "anthropic"];
        let limits = ["--max-turns", "2", "--subagent-max-cost-usd", "0.5"];
        cli.run(&[&engine[..], &limits[..], &["--output", "stream-json"][..]].concat())
    });
    let ended = ended.await.unwrap();
    let lines = ended.stdout.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let result = lines.into_iter().find(|line| line["event"] == "result");
    let result = result.unwrap_or_else(|| panic!("{} {}", ended.stdout, ended.stderr));
    assert_eq!((&result["limit"], &result["num_turns"]), (&json!("max_turns"), &json!(2)));
}
