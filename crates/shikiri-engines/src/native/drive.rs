//! A turn from its beginning, or from where another process left it, to its end.

use std::collections::BTreeSet;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::Deserialize as _;
use shikiri_app::execution::{EngineError, Order, Told, ToolBox};
use shikiri_model::execution::{EngineMessage, Finish, total};
use shikiri_model::native::{Call, Ending, Entry, Next, Telling, ThreadId, Turn};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::offered::Offered;
use super::setting::Setting;
use crate::messages::Client;
use crate::redact::Redactor;

/// How a thread ends, or why its process cannot go on with it.
pub(super) type Ended = Result<Ending, EngineError>;

pub(super) struct Driver {
    pub(super) client: Client,
    pub(super) setting: Setting,
    pub(super) offered: Offered,
    pub(super) tools: Arc<dyn ToolBox>,
    pub(super) models: Models,
    pub(super) system: String,
    pub(super) system_of_subagents: String,
    pub(super) limits_money: bool,
    pub(super) prices: shikiri_model::execution::PriceList,
    told: Told,
    turn: Mutex<Turn>,
    redactor: Mutex<Redactor>,
    /// Calls that another process may have made.
    pub(super) unknown: BTreeSet<String>,
    /// Requests whose answer has begun, and those of them that have ended.
    begun: AtomicUsize,
    over: AtomicUsize,
}

/// Names of models, as the provider has them.
pub(super) struct Models {
    pub(super) main: String,
    of_subagents: Option<String>,
    aliases: std::collections::BTreeMap<String, String>,
}

impl Models {
    /// The model that a subagent is to have: one that an alias stands for, or that is in use here
    /// anyway. A model is not chosen by a name that only the model asked for knows.
    pub(super) fn of_subagent(&self, asked: Option<&str>) -> &str {
        let usual = self.of_subagents.as_deref().unwrap_or(&self.main);
        let Some(asked) = asked else { return usual };
        if asked == "inherit" || asked == self.main {
            return &self.main;
        }
        let known = self.aliases.values().find(|name| *name == asked);
        self.aliases.get(asked).or(known).map_or(usual, String::as_str)
    }
}

const FOR_SUBAGENTS: &str = "You are a subagent: another agent has given you a piece of its work. \
Nobody can answer questions. Do the work, and end with an answer that holds everything which the \
other one needs to know; it sees nothing else of what you do.";

pub(super) async fn run(
    client: Client,
    order: Order,
    told: Told,
    stop: CancellationToken,
) -> Result<(), EngineError> {
    let driver = Driver::new(client, order, told).await?;
    let main = driver.thread(&None, &driver.models.main);
    let ended = tokio::select! {
        ended = main => ended?,
        () = stop.cancelled() => return driver.stopped().await,
    };
    let finish = driver.turn().finish(&ended);
    driver.tell(EngineMessage::Finished(finish)).await;
    Ok(())
}

impl Driver {
    async fn new(client: Client, order: Order, told: Told) -> Result<Self, EngineError> {
        let redactor = Mutex::new(Redactor::new(&order));
        let Order { memory, limits, prices, system_prompt, .. } = order;
        let turn = Turn::new(memory.past, &order.prompt, limits.clone(), prices.clone());
        let mut driver = Self {
            client,
            setting: Setting::from_env(&order.env),
            offered: Offered::new(order.tools.tools()),
            tools: order.tools,
            models: Models {
                main: order.model.model_name,
                of_subagents: order.subagent_model,
                aliases: order.aliases,
            },
            system_of_subagents: format!("{FOR_SUBAGENTS}\n\n{system_prompt}"),
            system: system_prompt,
            limits_money: limits.needs_prices(),
            prices,
            told,
            turn: Mutex::new(turn),
            redactor,
            unknown: BTreeSet::new(),
            begun: AtomicUsize::new(0),
            over: AtomicUsize::new(0),
        };
        if memory.steps.is_empty() {
            driver.open(order.resume).await?;
        } else {
            driver.recall(&memory.steps).await?;
            driver.turn().has_spent(&total(&memory.spent).0, total(&memory.spent).1);
            driver.catch_up(&memory.text).await?;
        }
        Ok(driver)
    }

    async fn open(&self, resume: Option<String>) -> Result<(), EngineError> {
        let session_id = resume.unwrap_or_else(|| Uuid::now_v7().to_string());
        let model = self.models.main.clone();
        self.keep(Entry::Opened { session_id, model }).await?;
        for (tool, why) in &self.offered.left_out {
            let message = format!("the tool {tool} is left out: {why}");
            self.warn("TOOL_LEFT_OUT", message).await;
        }
        Ok(())
    }

    /// What another process did is taken as done.
    async fn recall(&mut self, steps: &[shikiri_app::execution::Step]) -> Result<(), EngineError> {
        let unreadable = |error| EngineError::new(format!("a step cannot be read: {error}"));
        for step in steps {
            let entry = Entry::deserialize(&step.entry).map_err(unreadable)?;
            let messages = self.turn().apply(&entry, Telling::Again);
            self.told.again(messages, step.at).await;
        }
        let open: Vec<Call> = self.turn().open_calls();
        self.unknown = open.into_iter().map(|call| call.id).collect();
        Ok(())
    }

    /// What readers have seen of a reply that was under way is a part of the conversation.
    async fn catch_up(&self, text: &str) -> Result<(), EngineError> {
        let was_asking = self.turn().is_asking();
        let unkept = self.turn().unkept(text).to_owned();
        if !unkept.is_empty() {
            let cut = Entry::Cut { thread: None, text: unkept };
            let messages = self.turn().apply(&cut, Telling::Again);
            let now = shikiri_model::time::Timestamp::default();
            self.told.again(messages, now).await;
            self.told.keep(written(&cut)?, Vec::new()).await?;
        }
        if was_asking {
            let why = "the server that ran it is gone: what a request to the model used that was \
                       under way then is not known";
            self.warn("USAGE_INCOMPLETE", why.to_owned()).await;
        }
        Ok(())
    }

    /// A line of thought to its end. Boxed: subagents have it within themselves.
    pub(super) fn thread<'a>(
        &'a self,
        id: &'a ThreadId,
        model: &'a str,
    ) -> Pin<Box<dyn Future<Output = Ended> + Send + 'a>> {
        Box::pin(async move {
            loop {
                let next = self.turn().next(id);
                match next {
                    Next::Ask => {
                        if let Some(ending) = self.ask(id, model).await? {
                            return Ok(ending);
                        }
                    }
                    Next::Call(calls) => self.call_all(id, calls).await?,
                    Next::End(ending) => return Ok(ending),
                }
            }
        })
    }

    /// Somebody wants it stopped: what is under way is dropped.
    async fn stopped(&self) -> Result<(), EngineError> {
        let cut = self.begun.load(Ordering::SeqCst) > self.over.load(Ordering::SeqCst);
        if cut {
            let why = "it was stopped while the model answered: the output of that is not known";
            self.warn("USAGE_INCOMPLETE", why.to_owned()).await;
        }
        let is_asking = cut || self.turn().is_asking();
        let error = if is_asking { "aborted_streaming" } else { "aborted_tools" };
        let finish = self.turn().finish(&Ending::Stopped(error.to_owned()));
        self.tell(EngineMessage::Finished(Finish { is_error: true, ..finish })).await;
        Ok(())
    }

    /// Keeps what has happened, and tells of it; only then it may have consequences.
    pub(super) async fn keep(&self, entry: Entry) -> Result<(), EngineError> {
        let messages = self.turn().apply(&entry, Telling::Live);
        let messages = {
            let mut redactor = self.redactor();
            messages.into_iter().flat_map(|message| redactor.message(message)).collect()
        };
        self.told.keep(written(&entry)?, messages).await
    }

    pub(super) async fn tell(&self, message: EngineMessage) {
        let messages = self.redactor().message(message);
        for message in messages {
            self.told.tell(message).await;
        }
    }

    pub(super) async fn warn(&self, code: &'static str, message: String) {
        self.tell(EngineMessage::Warning { code, message, server: None }).await;
    }

    pub(super) fn turn(&self) -> MutexGuard<'_, Turn> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn redactor(&self) -> MutexGuard<'_, Redactor> {
        let mut redactor = self.redactor.lock().unwrap_or_else(PoisonError::into_inner);
        redactor.learn(self.client.secrets());
        redactor
    }

    pub(super) fn answer_begins(&self) {
        self.begun.fetch_add(1, Ordering::SeqCst);
    }

    pub(super) fn answer_is_over(&self) {
        self.over.fetch_add(1, Ordering::SeqCst);
    }
}

fn written(entry: &Entry) -> Result<serde_json::Value, EngineError> {
    serde_json::to_value(entry).map_err(|error| EngineError::new(error.to_string()))
}
