//! The native engines, with a scripted model at both kinds of API: what an engine tells is compared
//! with what the model was asked and with the model's own count of tokens. The scenarios are those
//! of the tests of Claude Code, and some that only a loop of our own has.

mod answers;
mod errors;
mod limits;
mod steps;
mod subagents;
mod unruly;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use serde_json::{Value, json};
use shikiri_app::execution::{
    Answer, Engine as _, EngineError, Heard, Memory, Order, Step, Told, Tool, ToolBox, Word,
};
use shikiri_engines::native::Native;
use shikiri_model::execution::{
    EngineMessage, Expected, Finish, PriceList, Processor, SpenderKind, Usage, UsageRow, total,
};
use shikiri_model::models::{EngineKind, Model};
use shikiri_model::native::Limits;
use shikiri_model::time::Timestamp;
use shikiri_testkit::{FakeModel, Reply};
use tokio_util::sync::CancellationToken;

const MODEL: &str = "claude-opus-5-5";
const PATIENCE: Duration = Duration::from_secs(60);

/// Tools that keep what they were called with.
#[derive(Default)]
struct Tools {
    tools: Vec<Tool>,
    calls: Mutex<Vec<(String, Value)>>,
}

impl Tools {
    fn new() -> Self {
        let tool = |name: &str, schema: Value, is_repeatable: bool| Tool {
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

    fn calls(&self, name: &str) -> usize {
        self.calls.lock().unwrap().iter().filter(|(called, _)| called == name).count()
    }
}

#[async_trait]
impl ToolBox for Tools {
    fn tools(&self) -> &[Tool] {
        &self.tools
    }

    async fn call(&self, name: &str, input: &Value) -> Answer {
        self.calls.lock().unwrap().push((name.to_owned(), input.clone()));
        match name {
            "echo" => Answer::text(format!("heard {}", input["text"].as_str().unwrap())),
            "look" => Answer::text("seen"),
            "fail" => Answer::error("it cannot be done, sk-ant-canary"),
            "flood" => Answer::text("水".repeat(1_000_000)),
            "hang" => std::future::pending().await,
            other => Answer::error(format!("there is no tool {other}")),
        }
    }
}

/// A model at one kind of API, and the engine for it.
struct World {
    model: FakeModel,
    engine: Native,
    kind: EngineKind,
    tools: Arc<Tools>,
}

/// One for each kind of API.
async fn worlds() -> [World; 2] {
    [World::new(EngineKind::Anthropic).await, World::new(EngineKind::Bedrock).await]
}

impl World {
    async fn new(kind: EngineKind) -> Self {
        let model = FakeModel::start().await;
        model.require_keys("AKIAFAKE", "fake-secret");
        let engine = match kind {
            EngineKind::Anthropic => Native::anthropic(),
            _ => Native::bedrock(),
        };
        Self { model, engine, kind, tools: Arc::new(Tools::new()) }
    }

    fn order(&self, prompt: &str) -> Order {
        let env = [
            ("ANTHROPIC_BASE_URL", self.model.url()),
            ("ANTHROPIC_BEDROCK_BASE_URL", self.model.url()),
            ("ANTHROPIC_API_KEY", "sk-ant-canary".to_owned()),
            ("AWS_REGION", "eu-west-1".to_owned()),
            ("AWS_ACCESS_KEY_ID", "AKIAFAKE".to_owned()),
            ("AWS_SECRET_ACCESS_KEY", "fake-secret".to_owned()),
            ("CLAUDE_CODE_MAX_RETRIES", "2".to_owned()),
        ];
        Order {
            prompt: prompt.to_owned(),
            system_prompt: String::new(),
            model: Model { engine: self.kind, model_name: MODEL.to_owned(), ..Model::offline() },
            subagent_model: None,
            aliases: BTreeMap::new(),
            resume: None,
            servers: Vec::new(),
            skills: Vec::new(),
            tools: self.tools.clone(),
            folder: PathBuf::new(),
            home: PathBuf::new(),
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
        let (outcome, told) = ended.expect("the turn takes too long");
        Outcome::new(told, outcome)
    }

    /// What the model told that it cost, on the main thread and for each subagent.
    fn bill(&self) -> BTreeMap<Option<String>, Usage> {
        let mut bill = BTreeMap::new();
        for spent in self.model.spent() {
            *bill.entry(spent.agent_id).or_default() += usage(&spent.usage);
        }
        bill
    }
}

/// Everything that was told, live and again, and the steps that were kept.
#[derive(Default)]
struct Account {
    messages: Vec<EngineMessage>,
    again: Vec<EngineMessage>,
    steps: Vec<Step>,
}

async fn hear(
    mut heard: Heard,
    stop: &CancellationToken,
    enough: impl Fn(&EngineMessage) -> bool,
) -> Account {
    let mut account = Account::default();
    while let Some(word) = heard.word().await {
        let messages = match word {
            Word::Message(message) => vec![message],
            Word::Step { entry, messages, kept } => {
                let at = Timestamp::from_millis(i64::try_from(account.steps.len()).unwrap());
                account.steps.push(Step { at, entry });
                kept.done();
                messages
            }
            Word::Again { messages, .. } => {
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

fn tokens(number: u64) -> shikiri_testkit::Usage {
    shikiri_testkit::Usage {
        input_tokens: 1_000 + number,
        output_tokens: 10 + number,
        cache_read_input_tokens: 2 * number,
        cache_creation_input_tokens: 3 * number,
        cache_creation_1h_input_tokens: number,
    }
}

/// What the engine told, and what became of it.
struct Outcome {
    account: Account,
    events: Vec<(&'static str, Value)>,
    processor: Processor,
    outcome: Result<(), EngineError>,
}

impl Outcome {
    fn new(account: Account, outcome: Result<(), EngineError>) -> Self {
        let mut processor = Processor::new(Expected { turn: 1, ..Expected::default() });
        let mut events = Vec::new();
        for message in &account.again {
            processor.take_again(message.clone(), Timestamp::from_millis(0));
        }
        for message in &account.messages {
            for event in processor.take(message.clone(), Timestamp::from_millis(0)) {
                events.push((event.kind(), serde_json::from_str(event.data()).unwrap()));
            }
        }
        Self { account, events, processor, outcome }
    }

    fn of(&self, kind: &str) -> Vec<&Value> {
        self.events.iter().filter(|(k, _)| *k == kind).map(|(_, data)| data).collect()
    }

    fn warnings(&self) -> Vec<&str> {
        self.of("warning").iter().map(|data| data["code"].as_str().unwrap()).collect()
    }

    fn notes(&self, subtype: &str) -> usize {
        let is = |m: &&EngineMessage| matches!(m, EngineMessage::Note { subtype: s, .. } if s == subtype);
        self.account.messages.iter().filter(is).count()
    }

    #[track_caller]
    fn finish(&self) -> &Finish {
        assert_eq!(self.outcome, Ok(()), "{:#?}", self.account.messages);
        self.processor.finish().unwrap_or_else(|| panic!("{:#?}", self.account.messages))
    }

    /// The final text of a turn that went well.
    #[track_caller]
    fn result(&self) -> &str {
        let finish = self.finish();
        assert!(!finish.is_error, "{finish:?}");
        &finish.result
    }

    /// What went wrong in a turn that did not go well.
    #[track_caller]
    fn error(&self) -> &str {
        let finish = self.finish();
        assert!(finish.is_error && finish.errors.len() == 1, "{finish:?}");
        &finish.errors[0]
    }

    fn rows(&self) -> Vec<UsageRow> {
        self.processor.rows()
    }

    /// The bill by spender, as the engine tells it.
    fn bill(&self) -> BTreeMap<Option<String>, Usage> {
        let mut bill = BTreeMap::new();
        for row in self.rows() {
            let who = (row.kind == SpenderKind::Subagent).then(|| row.tool_use_id.unwrap());
            *bill.entry(who).or_default() += row.usage;
        }
        bill
    }

    /// Every spender's tokens are those that the model told, and what each subagent ended with
    /// stands in the event of its end.
    #[track_caller]
    fn assert_exact(&self, world: &World) {
        assert_eq!(self.bill(), world.bill(), "{:#?}", self.account.messages);
        let all = world.bill().values().copied().sum();
        assert_eq!(total(&self.rows()).0, all);
        for end in self.of("subagent_end") {
            let agent = end["tool_use_id"].as_str().map(str::to_owned);
            let told: Usage = serde_json::from_value(end["usage"].clone()).unwrap();
            assert_eq!(Some(&told), world.bill().get(&agent), "{end}");
        }
        assert_eq!(self.warnings(), Vec::<&str>::new(), "{:?}", self.of("warning"));
    }
}

fn echo(text: &str) -> Reply {
    Reply::call("echo", json!({ "text": text }))
}
