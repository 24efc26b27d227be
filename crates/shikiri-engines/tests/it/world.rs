//! The world of one engine: a scripted model, a conversation's folders, and what an engine's words
//! came to. What the engine tells is compared with what the model was asked and with the model's own
//! count of tokens.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use serde_json::{Value, json};
use shikiri_engines::claude_code::ClaudeCodeEngine;
use shikiri_engines::native::NativeEngine;
use shikiri_executions::execution::{
    Engine, EngineOutput, EngineReceiver, EngineSender, JournalStep, NoTools, ResumeState, ToolBox,
    ToolCallResult, ToolSpec, TurnRequest,
};
use shikiri_model::execution::{EngineMessage, PriceList, TokenUsage};
use shikiri_model::models::{EngineKind, Model};
use shikiri_model::native::ExecutionLimits;
use shikiri_model::tenant::EgressPolicy;
use shikiri_model::time::Timestamp;
use shikiri_testkit::{FakeModel, Reply, TestEngine, until};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

use crate::outcome::Outcome;

pub(crate) const MODEL: &str = "claude-opus-5-5";
/// One turn of the CLI takes one to three seconds on an idle machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(90);

/// The engine with this CLI, and the program that supervises it.
pub(crate) fn claude_code(cli: &Path) -> ClaudeCodeEngine {
    let supervisor = PathBuf::from(env!("CARGO_BIN_EXE_supervise"));
    ClaudeCodeEngine::new(Some(cli.to_owned())).with_supervisor(supervisor)
}

/// Tools that keep what they were called with.
#[derive(Default)]
pub(crate) struct Tools {
    tools: Vec<ToolSpec>,
    calls: Mutex<Vec<(String, Value)>>,
}

impl Tools {
    fn new() -> Self {
        let tool = |name: &str, schema: Value, is_repeatable: bool| ToolSpec {
            name: name.to_owned(),
            description: format!("does {name}"),
            input_schema: schema,
            is_repeatable,
        };
        let text = json!({ "type": "object", "required": ["text"],
            "properties": { "text": { "type": "string" } } });
        let any = json!({ "type": "object" });
        let tools = vec![
            tool("echo", text, false),
            tool("look", any.clone(), true),
            tool("fail", any.clone(), false),
            tool("flood", any.clone(), false),
            tool("hang", any, false),
        ];
        Self { tools, calls: Mutex::default() }
    }

    pub(crate) fn calls(&self, name: &str) -> usize {
        self.calls.lock().unwrap().iter().filter(|(called, _)| called == name).count()
    }
}

#[async_trait]
impl ToolBox for Tools {
    fn tools(&self) -> &[ToolSpec] {
        &self.tools
    }

    async fn call(&self, name: &str, input: &Value) -> ToolCallResult {
        self.calls.lock().unwrap().push((name.to_owned(), input.clone()));
        match name {
            "echo" => ToolCallResult::text(format!("heard {}", input["text"].as_str().unwrap())),
            "look" => ToolCallResult::text("seen"),
            "fail" => ToolCallResult::error("it cannot be done, sk-ant-canary"),
            "flood" => ToolCallResult::text("水".repeat(1_000_000)),
            "hang" => std::future::pending().await,
            other => ToolCallResult::error(format!("there is no tool {other}")),
        }
    }
}

/// One engine with a model of its own.
pub(crate) struct World {
    pub(crate) which: TestEngine,
    pub(crate) place: TempDir,
    pub(crate) model: FakeModel,
    pub(crate) engine: Arc<dyn Engine>,
    /// Of the native engines. The CLI brings its own.
    pub(crate) tools: Arc<Tools>,
}

impl World {
    pub(crate) async fn new(which: TestEngine) -> Self {
        let place = TempDir::new().unwrap();
        std::fs::create_dir(place.path().join("work")).unwrap();
        let model = FakeModel::start().await;
        model.require_keys("AKIAFAKE", "fake-secret");
        let engine: Arc<dyn Engine> = match &which {
            TestEngine::ClaudeCode(cli) => Arc::new(claude_code(cli)),
            TestEngine::Anthropic => Arc::new(NativeEngine::anthropic()),
            TestEngine::Bedrock => Arc::new(NativeEngine::bedrock()),
        };
        Self { which, place, model, engine, tools: Arc::new(Tools::new()) }
    }

    pub(crate) fn is_native(&self) -> bool {
        self.which.is_native()
    }

    pub(crate) fn home(&self) -> PathBuf {
        self.place.path().join("home")
    }

    pub(crate) fn work(&self) -> PathBuf {
        self.place.path().join("work")
    }

    pub(crate) fn order(&self, prompt: &str) -> TurnRequest {
        let mut env = vec![
            ("ANTHROPIC_BASE_URL", self.model.url()),
            ("ANTHROPIC_API_KEY", "sk-ant-canary".to_owned()),
            ("CLAUDE_CODE_MAX_RETRIES", "2".to_owned()),
        ];
        env.extend(match self.is_native() {
            true => vec![
                ("ANTHROPIC_BEDROCK_BASE_URL", self.model.url()),
                ("AWS_REGION", "eu-west-1".to_owned()),
                ("AWS_ACCESS_KEY_ID", "AKIAFAKE".to_owned()),
                ("AWS_SECRET_ACCESS_KEY", "fake-secret".to_owned()),
                // Without keys, this machine's role is not looked for.
                ("AWS_EC2_METADATA_DISABLED", "true".to_owned()),
            ],
            false => vec![("PATH", std::env::var("PATH").unwrap()), ("LANG", "C.UTF-8".to_owned())],
        });
        let tools: Arc<dyn ToolBox> = match self.is_native() {
            true => self.tools.clone(),
            false => Arc::new(NoTools),
        };
        let model = Model { engine: self.kind(), model_name: MODEL.to_owned(), ..Model::offline() };
        TurnRequest {
            tools,
            folder: self.work(),
            home: self.home(),
            ..order(prompt, model, env.iter().map(|(name, value)| (*name, value.as_str())))
        }
    }

    fn kind(&self) -> EngineKind {
        match self.which {
            TestEngine::ClaudeCode(_) => EngineKind::ClaudeCode,
            TestEngine::Anthropic => EngineKind::Anthropic,
            TestEngine::Bedrock => EngineKind::Bedrock,
        }
    }

    /// Calls a tool that answers with this text.
    pub(crate) fn echo(&self, text: &str) -> Reply {
        let name = if self.is_native() { "echo" } else { "Bash" };
        Reply::call(name, self.echo_input(text))
    }

    pub(crate) fn echo_input(&self, text: &str) -> Value {
        match self.is_native() {
            true => json!({ "text": text }),
            false => json!({ "command": format!("echo {text} in the $(basename $PWD)") }),
        }
    }

    pub(crate) fn echoed(&self, text: &str) -> String {
        match self.is_native() {
            true => format!("heard {text}"),
            false => format!("{text} in the work"),
        }
    }

    /// As another call of a reply: one that starts a subagent.
    pub(crate) fn spawns(&self, reply: Reply, prompt: &str) -> Reply {
        reply.and_call(self.which.task(), self.which.spawn(prompt))
    }

    pub(crate) fn spawn(&self, prompt: &str) -> Reply {
        Reply::call(self.which.task(), self.which.spawn(prompt))
    }

    /// Does the turn to its end.
    pub(crate) async fn run(&self, order: TurnRequest) -> Outcome {
        self.run_until(order, |_| false).await
    }

    /// Does the turn, which is stopped once it has told what `enough` wants. No process is left.
    pub(crate) async fn run_until(
        &self,
        order: TurnRequest,
        enough: impl Fn(&EngineMessage) -> bool,
    ) -> Outcome {
        let ended = run(&*self.engine, order, enough).await;
        until_gone(&self.home()).await;
        ended
    }

    /// A turn that is stopped, and told how that went. The CLI has two seconds for that, which a busy
    /// machine may not give it: it gets more tries.
    pub(crate) async fn stopped(&self, turn: impl AsyncFn() -> Outcome) -> Outcome {
        let tries = if self.is_native() { 1 } else { 3 };
        let mut ended = turn().await;
        for _ in 1..tries {
            if ended.processor.finish().is_none() {
                ended = turn().await;
            }
        }
        ended
    }

    /// What the model told that it cost, on the main thread and for each subagent.
    pub(crate) fn bill(&self) -> BTreeMap<Option<String>, TokenUsage> {
        let mut bill = BTreeMap::new();
        for spent in self.model.spent() {
            *bill.entry(spent.agent_id).or_default() += usage(&spent.usage);
        }
        bill
    }

    /// Processes of a run: all of them know its folder.
    pub(crate) fn processes(&self) -> Vec<String> {
        processes(&self.home())
    }
}

/// An order with nothing but this.
pub(crate) fn order<'a>(
    prompt: &str,
    model: Model,
    env: impl IntoIterator<Item = (&'a str, &'a str)>,
) -> TurnRequest {
    let env = env.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned()));
    TurnRequest {
        prompt: prompt.to_owned(),
        system_prompt: String::new(),
        model,
        subagent_model: None,
        aliases: BTreeMap::new(),
        resume: None,
        servers: Vec::new(),
        skills: Vec::new(),
        tools: Arc::new(NoTools),
        folder: PathBuf::new(),
        home: PathBuf::new(),
        env: env.collect(),
        secrets: Vec::new(),
        limits: ExecutionLimits::default(),
        prices: PriceList::default(),
        memory: ResumeState::default(),
        egress: EgressPolicy::default(),
        loopback_ports: Vec::new(),
    }
}

/// Does a turn, which is stopped once it has told what `enough` wants.
pub(crate) async fn run(
    engine: &dyn Engine,
    order: TurnRequest,
    enough: impl Fn(&EngineMessage) -> bool,
) -> Outcome {
    let (told, heard) = EngineSender::channel();
    let stop = CancellationToken::new();
    let hearing = hear(heard, &stop, enough);
    let running = engine.run(order, told, stop.clone());
    let both = async { tokio::join!(running, hearing) };
    let ended = tokio::time::timeout(PATIENCE, both).await;
    let (outcome, account) = ended.expect("the turn takes too long");
    Outcome::new(account, outcome)
}

/// Everything that was told, live and again, and the steps that were kept.
#[derive(Default)]
pub(crate) struct Account {
    pub(crate) messages: Vec<EngineMessage>,
    pub(crate) again: Vec<EngineMessage>,
    pub(crate) steps: Vec<JournalStep>,
}

async fn hear(
    mut heard: EngineReceiver,
    stop: &CancellationToken,
    enough: impl Fn(&EngineMessage) -> bool,
) -> Account {
    let mut account = Account::default();
    while let Some(word) = heard.next_output().await {
        let messages = match word {
            EngineOutput::Message(message) => vec![message],
            EngineOutput::Step { entry, messages, kept } => {
                let at = Timestamp::from_millis(i64::try_from(account.steps.len()).unwrap());
                account.steps.push(JournalStep { at, entry });
                kept.confirm();
                messages
            }
            EngineOutput::Again { messages, .. } => {
                account.again.extend(messages);
                continue;
            }
        };
        if messages.iter().any(&enough) {
            stop.cancel();
        }
        account.messages.extend(messages);
    }
    account
}

pub(crate) fn usage(told: &shikiri_testkit::Usage) -> TokenUsage {
    let hour = told.cache_creation_1h_input_tokens;
    TokenUsage {
        input_tokens: told.input_tokens,
        output_tokens: told.output_tokens,
        cache_write_5m_tokens: told.cache_creation_input_tokens - hour,
        cache_write_1h_tokens: hour,
        cache_read_tokens: told.cache_read_input_tokens,
    }
}

/// Tokens that can be told from those of another number.
pub(crate) fn tokens(number: u64) -> shikiri_testkit::Usage {
    shikiri_testkit::Usage {
        input_tokens: 1_000 + number,
        output_tokens: 10 + number,
        cache_read_input_tokens: 2 * number,
        cache_creation_input_tokens: 3 * number,
        cache_creation_1h_input_tokens: number,
    }
}

/// Until nothing of a run is left. A turn that ends has told all of it to go, but waits for that only
/// as long as an idle machine needs.
pub(crate) async fn until_gone(home: &Path) {
    let is_gone = async || processes(home).is_empty();
    until("no process is left", is_gone).await;
}

/// Living processes whose environment names this folder.
pub(crate) fn processes(home: &Path) -> Vec<String> {
    let home = home.as_os_str().as_encoded_bytes();
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let read = |name: &str| std::fs::read(entry.path().join(name)).unwrap_or_default();
        if read("environ").windows(home.len()).any(|part| part == home) {
            let line = String::from_utf8_lossy(&read("cmdline")).replace('\0', " ");
            found.push(format!("{}: {line}", entry.file_name().display()));
        }
    }
    found
}
