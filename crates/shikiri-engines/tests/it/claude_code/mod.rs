//! Claude Code as an engine. Its model is scripted: what the engine tells is compared with what the
//! model was asked and with the model's own count of tokens.

mod answers;
mod confined;
mod errors;
mod fakes;
mod outside;
mod subagents;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use shikiri_app::execution::{Engine as _, EngineError, Heard, Memory, NoTools, Order, Told};
use shikiri_engines::claude_code::{ClaudeCode, is_confined};
use shikiri_model::execution::{
    EngineMessage, Expected, PriceList, Processor, SpenderKind, Usage, UsageRow, total,
};
use shikiri_model::models::{EngineKind, Model};
use shikiri_model::native::Limits;
use shikiri_model::time::Timestamp;
use shikiri_testkit::FakeModel;
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

const MODEL: &str = "claude-opus-5-5";
/// One turn takes one to three seconds on an idle machine.
const PATIENCE: Duration = Duration::from_secs(90);

/// The engine with this CLI, and the program that supervises it.
fn engine(cli: &Path) -> ClaudeCode {
    let supervisor = PathBuf::from(env!("CARGO_BIN_EXE_supervise"));
    ClaudeCode::new(Some(cli.to_owned())).supervised_by(supervisor)
}

/// A conversation's folders, a model, and one version of the CLI.
struct World {
    place: TempDir,
    model: FakeModel,
    engine: ClaudeCode,
}

impl World {
    async fn new(cli: &Path) -> Self {
        let place = TempDir::new().unwrap();
        std::fs::create_dir(place.path().join("work")).unwrap();
        Self { place, model: FakeModel::start().await, engine: engine(cli) }
    }

    fn home(&self) -> PathBuf {
        self.place.path().join("home")
    }

    fn work(&self) -> PathBuf {
        self.place.path().join("work")
    }

    fn order(&self, prompt: &str) -> Order {
        let env = [
            ("PATH", std::env::var("PATH").unwrap()),
            ("LANG", "C.UTF-8".to_owned()),
            ("ANTHROPIC_BASE_URL", self.model.url()),
            ("ANTHROPIC_API_KEY", "sk-ant-canary".to_owned()),
            ("CLAUDE_CODE_MAX_RETRIES", "2".to_owned()),
        ];
        Order {
            prompt: prompt.to_owned(),
            system_prompt: String::new(),
            model: Model {
                engine: EngineKind::ClaudeCode,
                model_name: MODEL.to_owned(),
                ..Model::offline()
            },
            subagent_model: None,
            aliases: BTreeMap::new(),
            resume: None,
            servers: Vec::new(),
            skills: Vec::new(),
            tools: Arc::new(NoTools),
            folder: self.work(),
            home: self.home(),
            env: env.map(|(name, value)| (name.to_owned(), value)).into(),
            secrets: Vec::new(),
            limits: Limits::default(),
            prices: PriceList::default(),
            memory: Memory::default(),
        }
    }

    /// Does the turn to its end.
    async fn run(&self, order: Order) -> Outcome {
        self.run_until(order, |_| false).await
    }

    /// Does the turn, which is stopped once it has told what `enough` wants.
    async fn run_until(&self, order: Order, enough: impl Fn(&EngineMessage) -> bool) -> Outcome {
        let (told, heard) = Told::channel();
        let stop = CancellationToken::new();
        let hearing = hear(heard, &stop, enough);
        let running = self.engine.run(order, told, stop.clone());
        let both = async { tokio::join!(running, hearing) };
        let ended = tokio::time::timeout(PATIENCE, both).await;
        let (outcome, messages) = ended.expect("the turn takes too long");
        Outcome::new(messages, outcome)
    }

    /// What the model was told that it told, on the main thread and for each subagent.
    fn bill(&self) -> BTreeMap<Option<String>, Usage> {
        let mut bill = BTreeMap::new();
        for spent in self.model.spent() {
            *bill.entry(spent.agent_id).or_default() += usage(&spent.usage);
        }
        bill
    }

    /// Processes of a run: all of them know its folder.
    fn processes(&self) -> Vec<String> {
        processes(&self.home())
    }
}

async fn hear(
    mut heard: Heard,
    stop: &CancellationToken,
    enough: impl Fn(&EngineMessage) -> bool,
) -> Vec<EngineMessage> {
    let mut messages = Vec::new();
    while let Some(message) = heard.recv().await {
        if enough(&message) {
            stop.cancel();
        }
        messages.push(message);
    }
    messages
}

fn usage(told: &shikiri_testkit::Usage) -> Usage {
    let hour = told.cache_creation_1h_input_tokens;
    Usage {
        input_tokens: told.input_tokens,
        output_tokens: told.output_tokens,
        cache_write_5m_tokens: told.cache_creation_input_tokens - hour,
        cache_write_1h_tokens: hour,
        cache_read_tokens: told.cache_read_input_tokens,
    }
}

/// Living processes whose environment names this folder.
fn processes(home: &Path) -> Vec<String> {
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

/// What the engine told, and what became of it.
struct Outcome {
    messages: Vec<EngineMessage>,
    events: Vec<(&'static str, Value)>,
    processor: Processor,
    outcome: Result<(), EngineError>,
}

impl Outcome {
    fn new(messages: Vec<EngineMessage>, outcome: Result<(), EngineError>) -> Self {
        let mut processor = Processor::new(Expected { turn: 1, ..Expected::default() });
        let mut events = Vec::new();
        for message in &messages {
            for event in processor.take(message.clone(), Timestamp::from_millis(0)) {
                events.push((event.kind(), serde_json::from_str(event.data()).unwrap()));
            }
        }
        Self { messages, events, processor, outcome }
    }

    fn of(&self, kind: &str) -> Vec<&Value> {
        self.events.iter().filter(|(k, _)| *k == kind).map(|(_, data)| data).collect()
    }

    fn warnings(&self) -> Vec<&str> {
        self.of("warning").iter().map(|data| data["code"].as_str().unwrap()).collect()
    }

    fn notes(&self, subtype: &str) -> usize {
        let is = |m: &&EngineMessage| matches!(m, EngineMessage::Note { subtype: s, .. } if s == subtype);
        self.messages.iter().filter(is).count()
    }

    /// The final text of a turn that went well.
    #[track_caller]
    fn result(&self) -> &str {
        assert_eq!(self.outcome, Ok(()), "{:#?}", self.messages);
        let finish = self.processor.finish().unwrap_or_else(|| panic!("{:#?}", self.messages));
        assert!(!finish.is_error, "{finish:?}");
        &finish.result
    }

    fn session_id(&self) -> &str {
        self.processor.session_id().unwrap()
    }

    fn rows(&self) -> Vec<UsageRow> {
        self.processor.rows()
    }

    /// The bill by spender, as the engine tells it.
    fn bill(&self) -> BTreeMap<Option<String>, Usage> {
        let mut bill = BTreeMap::new();
        for row in self.rows() {
            let who = (row.kind == SpenderKind::Subagent).then(|| row.agent_id.unwrap());
            *bill.entry(who).or_default() += row.usage;
        }
        bill
    }

    /// Every spender's tokens are those that the model told, and what each subagent ended with
    /// stands in the event of its end.
    #[track_caller]
    fn assert_exact(&self, world: &World) {
        assert_eq!(self.bill(), world.bill(), "{:#?}", self.messages);
        let all = world.bill().values().copied().sum();
        assert_eq!(total(&self.rows()).0, all);
        for end in self.of("subagent_end") {
            let agent = end["agent_id"].as_str().map(str::to_owned);
            let told: Usage = serde_json::from_value(end["usage"].clone()).unwrap();
            assert_eq!(Some(&told), world.bill().get(&agent), "{end}");
        }
        assert_eq!(self.warnings(), Vec::<&str>::new(), "{:?}", self.of("warning"));
    }
}
