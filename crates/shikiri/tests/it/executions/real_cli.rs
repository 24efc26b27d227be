//! The real Claude Code behind the REST door, in both versions, with a scripted model: turns,
//! subagents, the bill, and what is left when the server is killed.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};
use shikiri_testkit::{FakeModel, Gate, Reply, TestApp, claude_programs, wait_until};

use super::kit::{Event, Talk, events, kinds, terminal, text_of};
use crate::PROGRAM;

const PATIENCE: Duration = Duration::from_secs(60);
const MODEL: &str = "claude-sonnet-4-5";
const LIGHT: &str = "claude-haiku-4-5";

struct World {
    app: TestApp,
    model: FakeModel,
    talk: Talk,
}

impl World {
    async fn start(program: &Path) -> Self {
        let model = FakeModel::start().await;
        let app = TestApp::new(PROGRAM)
            .env("SHIKIRI_CLAUDE_BIN", program.display())
            .env("ANTHROPIC_BASE_URL", model.url())
            .env("ANTHROPIC_API_KEY", "sk-test")
            .env("CLAUDE_CODE_MAX_RETRIES", 1)
            .start()
            .await;
        for (id, name, input) in [("main", MODEL, 3), ("light", LIGHT, 1)] {
            let aliases = if id == "light" { json!(["haiku"]) } else { json!([]) };
            let record = json!({ "id": id, "engine": "claude-code", "model_name": name,
                "aliases": aliases, "prices": { "input": input, "output": 5 * input } });
            app.client().post("/v1/models", &record).await.expect(201);
        }
        let patch = json!({ "model_id": "main", "system_prompt": "合言葉は山。" });
        app.client().patch("/v1/tenants/local", &patch).await.expect(200);
        let talk = Talk::start(&app.local()).await;
        Self { app, model, talk }
    }

    async fn usage(&self, id: &str) -> Vec<Value> {
        self.talk.execution(id, "/usage").await["items"].as_array().unwrap().clone()
    }

    /// By the API's own count: (input, output) of the main thread and of all else.
    fn spent(&self) -> (u64, u64) {
        let spent = self.model.spent();
        let sum = |of: fn(&shikiri_testkit::Usage) -> u64| {
            spent.iter().map(|spent| of(&spent.usage)).sum::<u64>()
        };
        (sum(|usage| usage.input_tokens), sum(|usage| usage.output_tokens))
    }
}

fn spawn(prompt: &str) -> Value {
    json!({ "description": "調べる", "subagent_type": "general-purpose", "prompt": prompt,
        "run_in_background": false })
}

fn id_of(events: &[Event]) -> String {
    events[0].data["execution_id"].as_str().unwrap().to_owned()
}

/// Processes that work below the server's data folder.
fn processes_in(folder: &Path) -> Vec<u32> {
    let all = std::fs::read_dir("/proc").unwrap().flatten();
    all.filter(|process| {
        let place: Option<PathBuf> = std::fs::read_link(process.path().join("cwd")).ok();
        place.is_some_and(|place| place.starts_with(folder))
    })
    .filter_map(|process| process.file_name().to_str()?.parse().ok())
    .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn turns_with_parallel_subagents_are_billed_to_the_token() {
    for program in claude_programs() {
        let world = World::start(&program).await;
        world.model.script(
            "都を調べて",
            [
                Reply::call("Agent", spawn("京都を見よ")).and_call("Agent", spawn("奈良を見よ")),
                Reply::text("京都と奈良です。"),
            ],
        );
        // The title's request repeats the input and has no tools.
        world.model.answer(|request| {
            let is_title = request.body["model"] == LIGHT && request.body.get("tools").is_none();
            is_title.then(|| Reply::text("「古都めぐり」"))
        });
        world.model.script("京都を見よ", [Reply::text("京都")]);
        world.model.script("奈良を見よ", [Reply::text("奈良")]);
        let told = world.talk.say("都を調べて").await;
        let end = terminal(&told);
        assert_eq!(end.kind, "result", "{}", end.data);
        assert_eq!(end.data["result"], "京都と奈良です。");
        assert!(text_of(&told).ends_with("京都と奈良です。"), "{:?}", kinds(&told));
        for kind in ["subagent_start", "subagent_end"] {
            assert_eq!(
                kinds(&told).iter().filter(|k| **k == kind).count(),
                2,
                "{:?}",
                kinds(&told)
            );
        }
        let title = told.iter().find(|event| event.kind == "title").unwrap();
        assert_eq!(title.data["title"], "古都めぐり");

        let rows = world.usage(&id_of(&told)).await;
        let sum = |field: &str| -> u64 {
            rows.iter().map(|row| row["usage"][field].as_u64().unwrap()).sum()
        };
        let (input, output) = world.spent();
        assert_eq!((sum("input_tokens"), sum("output_tokens")), (input, output), "{rows:#?}");
        assert_eq!(end.data["usage"]["output_tokens"], output);
        assert_eq!(rows.iter().filter(|row| row["kind"] == "subagent").count(), 2, "{rows:#?}");
        assert!(end.data["total_cost_usd"].as_f64().unwrap() > 0.0);

        // The second turn knows the first, and the tenant's system prompt is there.
        world.model.script("そして", [Reply::text("以上。")]);
        let next = world.talk.say("そして").await;
        assert_eq!(next[0].data["resumed"], true);
        let asked = world.model.asked(PATIENCE, |request| {
            request.body.to_string().contains("そして") && request.is_message()
        });
        let asked = asked.await.body.to_string();
        assert!(asked.contains("都を調べて") && asked.contains("合言葉は山"), "{asked}");
        let rows = world.usage(&id_of(&next)).await;
        assert!(rows.iter().all(|row| row["kind"] == "main"), "only this turn's: {rows:#?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_server_leaves_no_program_and_the_committed_session() {
    for program in claude_programs() {
        let mut world = World::start(&program).await;
        world.model.script("一", [Reply::text("壱")]);
        let first = world.talk.say("一").await;
        assert_eq!(terminal(&first).kind, "result", "{}", terminal(&first).data);
        let gate = Gate::new();
        world.model.script(
            "二の問い",
            [
                Reply::call("Bash", json!({ "command": "sleep 300", "description": "待つ" })),
                Reply::text("弐").held(&gate),
            ],
        );
        let id = world.talk.begin("二の問い").await;
        wait_until("the tool call", PATIENCE, async || {
            let tools = world.talk.execution(&id, "/tools").await;
            tools["items"].as_array().is_some_and(|items| !items.is_empty())
        })
        .await;
        let folder = world.app.data_folder();
        assert!(!processes_in(&folder).is_empty(), "the engine runs");
        world.app.kill9();
        wait_until("no program is left", Duration::from_secs(5), async || {
            processes_in(&folder).is_empty()
        })
        .await;

        world.app.restart().await;
        world.talk.tenant = world.app.local();
        world.model.script("三の問い", [Reply::text("参")]);
        let next = world.talk.say("三の問い").await;
        assert_eq!(terminal(&next).data["result"], "参");
        assert_eq!(next[0].data["session_id"], first[0].data["session_id"]);
        let asked = world.model.asked(PATIENCE, |request| {
            request.is_message() && request.body.to_string().contains("三の問い")
        });
        let asked = asked.await.body.to_string();
        assert!(asked.contains('壱'), "the first turn is known: {asked}");
        assert!(!asked.contains("二の問い"), "the lost turn is not: {asked}");
        let lost = events(&world.talk.follow(&id, 0).await);
        assert_eq!(terminal(&lost).data["code"], "INTERRUPTED");
        assert!(!world.usage(&id).await.is_empty(), "what it had spent is billed");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_interrupts_the_program_and_bills_what_ended() {
    for program in claude_programs() {
        let world = World::start(&program).await;
        world.model.script(
            "長い仕事",
            [
                Reply::call("Bash", json!({ "command": "sleep 300", "description": "待つ" })),
                Reply::text("終"),
            ],
        );
        let id = world.talk.begin("長い仕事").await;
        wait_until("the tool call", PATIENCE, async || {
            let tools = world.talk.execution(&id, "/tools").await;
            tools["items"].as_array().is_some_and(|items| !items.is_empty())
        })
        .await;
        world.talk.cancel(&id).await.expect(200);
        let told = events(&world.talk.follow(&id, 0).await);
        assert_eq!(terminal(&told).data["code"], "CANCELLED");
        let folder = world.app.data_folder();
        wait_until("no program is left", Duration::from_secs(5), async || {
            processes_in(&folder).is_empty()
        })
        .await;
        assert!(!world.usage(&id).await.is_empty());
        assert_eq!(world.talk.record().await["session_id"], Value::Null);
    }
}
