//! Every engine behind the REST door of the real program, with a scripted model: the same scenarios
//! for each, and some that only one kind has.

mod limits;
mod lost;
mod outside;
mod stops;
mod tool_pins;
mod toolbox;
mod turns;

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};
use shikiri_testkit::{FakeModel, Gate, Reply, TestApp, TestEngine, each_engine, until};

use super::kit::{Event, Talk, events, kinds, terminal, text_of};
use crate::PROGRAM;

const PATIENCE: Duration = Duration::from_secs(60);
const MODEL: &str = "claude-sonnet-4-5";
const LIGHT: &str = "claude-haiku-4-5";
const TITLE: &str = "古都めぐり";

struct World {
    which: TestEngine,
    app: TestApp,
    model: FakeModel,
    talk: Talk,
}

impl World {
    async fn start(which: TestEngine) -> Self {
        Self::start_with(which, &[]).await
    }

    async fn start_with(which: TestEngine, env: &[(&str, &str)]) -> Self {
        let model = FakeModel::start().await;
        model.require_keys("AKIATEST", "aws-test-secret");
        // The title's request repeats the input and has no tools.
        model.answer(|request| {
            let is_title = request.body.get("tools").is_none() && request.model() == LIGHT;
            is_title.then(|| Reply::text(&format!("「{TITLE}」")))
        });
        let mut app = TestApp::new(PROGRAM)
            .env("ANTHROPIC_BASE_URL", model.url())
            .env("ANTHROPIC_API_KEY", "sk-test-canary")
            .env("CLAUDE_CODE_MAX_RETRIES", 1);
        if let TestEngine::ClaudeCode(program) = &which {
            app = app.env("SHIKIRI_CLAUDE_BIN", program.display());
        }
        if which == TestEngine::Bedrock {
            app = app
                .env("ANTHROPIC_BEDROCK_BASE_URL", model.url())
                .env("AWS_ACCESS_KEY_ID", "AKIATEST")
                .env("AWS_SECRET_ACCESS_KEY", "aws-test-secret");
        }
        for (name, value) in env {
            app = app.env(name, value);
        }
        let app = app.start().await;
        for (id, name, input) in [("main", MODEL, 3), ("light", LIGHT, 1)] {
            let aliases = if id == "light" { json!(["haiku"]) } else { json!([]) };
            let record = json!({ "id": id, "engine": which.name(), "model_name": name,
                "aliases": aliases, "prices": { "input": input, "output": 5 * input } });
            app.client().post("/v1/models", &record).await.expect(201);
        }
        let patch = json!({ "model_id": "main", "system_prompt": "合言葉は山。" });
        app.client().patch("/v1/tenants/local", &patch).await.expect(200);
        let talk = Talk::start(&app.local()).await;
        Self { which, app, model, talk }
    }

    fn spawn(&self, prompt: &str) -> Reply {
        Reply::call(self.which.task(), self.which.spawn(prompt))
    }

    fn spawns(&self, reply: Reply, prompt: &str) -> Reply {
        reply.and_call(self.which.task(), self.which.spawn(prompt))
    }

    async fn usage(&self, id: &str) -> Vec<Value> {
        self.talk.execution(id, "/usage").await["items"].as_array().unwrap().clone()
    }

    /// The bill of an execution is what the API told since `before`, to the token. Gives its rows.
    async fn assert_billed(&self, id: &str, before: usize) -> Vec<Value> {
        let rows = self.usage(id).await;
        let sum = |field: &str| -> u64 {
            rows.iter().map(|row| row["usage"][field].as_u64().unwrap()).sum()
        };
        let spent = self.model.spent().split_off(before);
        let (input, output) = spent.iter().fold((0, 0), |(input, output), spent| {
            (input + spent.usage.input_tokens, output + spent.usage.output_tokens)
        });
        assert_eq!((sum("input_tokens"), sum("output_tokens")), (input, output), "{rows:#?}");
        let record = self.talk.execution(id, "").await;
        assert_eq!(record["usage"]["input_tokens"], input, "{record}");
        assert_eq!(record["usage"]["output_tokens"], output, "{record}");
        rows
    }

    /// The newest request in which the user has said this.
    fn asked(&self, words: &str) -> String {
        let asked = self.model.messages().into_iter().rev();
        let mut asked = asked.filter(|request| request.body.get("tools").is_some());
        asked.find(|request| request.says(words)).unwrap().body.to_string()
    }

    async fn restart(&mut self) {
        self.app.restart().await;
        self.talk.tenant = self.app.local();
    }
}

fn body(input: &str, more: Value) -> Value {
    let mut body = Talk::body(input);
    for (name, value) in more.as_object().unwrap() {
        body[name] = value.clone();
    }
    body
}

fn id_of(events: &[Event]) -> String {
    events[0].data["execution_id"].as_str().unwrap().to_owned()
}

fn of<'a>(events: &'a [Event], kind: &str) -> Vec<&'a Value> {
    events.iter().filter(|event| event.kind == kind).map(|event| &event.data).collect()
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

/// A turn that is at a command of the CLI which takes long. Gives its id.
async fn at_a_command(world: &World, words: &str, then: Reply) -> String {
    let sleeps = Reply::call("Bash", json!({ "command": "sleep 300", "description": "待つ" }));
    world.model.script(words, [sleeps, then]);
    let id = world.talk.begin(words).await;
    until("the tool call", async || {
        let tools = world.talk.execution(&id, "/tools").await;
        tools["items"].as_array().is_some_and(|items| !items.is_empty())
    })
    .await;
    id
}
