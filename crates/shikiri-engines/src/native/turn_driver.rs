//! Runs a turn to its end, from its beginning or from the stored steps of another process.

use std::collections::BTreeSet;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::Deserialize as _;
use shikiri_executions::execution::{EngineError, EngineSender, ToolBox, TurnRequest};
use shikiri_model::execution::{EngineFinish, EngineMessage, total};
use shikiri_model::native::{
    ModelToolCall, NativeTurn, ReplayMode, ThreadAction, ThreadEnding, ThreadId, TurnEntry,
};
use shikiri_model::run::WarningCode;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::native_settings::NativeSettings;
use super::tool_catalog::NativeToolCatalog;
use crate::messages::MessagesClient;
use crate::redact::SecretRedactor;

/// How a thread ends, or why this process cannot continue it.
pub(super) type ThreadResult = Result<ThreadEnding, EngineError>;

pub(super) struct NativeTurnDriver {
    pub(super) client: MessagesClient,
    pub(super) setting: NativeSettings,
    pub(super) offered: NativeToolCatalog,
    pub(super) tools: Arc<dyn ToolBox>,
    pub(super) models: ModelNames,
    pub(super) system: String,
    pub(super) system_of_subagents: String,
    pub(super) limits_money: bool,
    pub(super) prices: shikiri_model::execution::PriceList,
    sender: EngineSender,
    turn: Mutex<NativeTurn>,
    redactor: Mutex<SecretRedactor>,
    /// Calls that another process may have made.
    pub(super) unknown: BTreeSet<String>,
    /// The number of answers that have begun, and of those that have ended.
    begun: AtomicUsize,
    over: AtomicUsize,
}

/// The provider's names of the models.
pub(super) struct ModelNames {
    pub(super) main: String,
    of_subagents: Option<String>,
    aliases: std::collections::BTreeMap<String, String>,
}

impl ModelNames {
    /// The model of a subagent: the target of an alias, or a model that is configured already. Other
    /// requested names are ignored.
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
    client: MessagesClient,
    request: TurnRequest,
    sender: EngineSender,
    stop: CancellationToken,
) -> Result<(), EngineError> {
    let driver = NativeTurnDriver::new(client, request, sender).await?;
    let main = driver.thread(&None, &driver.models.main);
    let ended = tokio::select! {
        ended = main => ended?,
        () = stop.cancelled() => return driver.finish_stopped().await,
    };
    let finish = driver.turn().finish(&ended);
    driver.tell(EngineMessage::Finished(finish)).await;
    Ok(())
}

impl NativeTurnDriver {
    async fn new(
        client: MessagesClient,
        request: TurnRequest,
        sender: EngineSender,
    ) -> Result<Self, EngineError> {
        let redactor = Mutex::new(SecretRedactor::new(&request));
        let TurnRequest { memory, limits, prices, system_prompt, .. } = request;
        let turn = NativeTurn::new(memory.past, &request.prompt, limits.clone(), prices.clone());
        let mut driver = Self {
            client,
            setting: NativeSettings::from_env(&request.env),
            offered: NativeToolCatalog::new(request.tools.tools()),
            tools: request.tools,
            models: ModelNames {
                main: request.model.model_name,
                of_subagents: request.subagent_model,
                aliases: request.aliases,
            },
            system_of_subagents: format!("{FOR_SUBAGENTS}\n\n{system_prompt}"),
            system: system_prompt,
            limits_money: limits.needs_prices(),
            prices,
            sender,
            turn: Mutex::new(turn),
            redactor,
            unknown: BTreeSet::new(),
            begun: AtomicUsize::new(0),
            over: AtomicUsize::new(0),
        };
        if memory.steps.is_empty() {
            driver.open(request.resume).await?;
        } else {
            driver.replay_steps(&memory.steps).await?;
            driver.turn().restore_spent(&total(&memory.spent).0, total(&memory.spent).1);
            driver.record_partial_reply(&memory.text).await?;
        }
        Ok(driver)
    }

    async fn open(&self, resume: Option<String>) -> Result<(), EngineError> {
        let session_id = resume.unwrap_or_else(|| Uuid::now_v7().to_string());
        let model = self.models.main.clone();
        self.persist_entry(TurnEntry::Opened { session_id, model }).await?;
        for (tool, why) in &self.offered.left_out {
            let message = format!("the tool {tool} is left out: {why}");
            self.warn(WarningCode::ToolLeftOut, message).await;
        }
        Ok(())
    }

    /// Replays the stored steps of another process.
    async fn replay_steps(
        &mut self,
        steps: &[shikiri_executions::execution::JournalStep],
    ) -> Result<(), EngineError> {
        let unreadable = |error| EngineError::new(format!("a step cannot be read: {error}"));
        for step in steps {
            let entry = TurnEntry::deserialize(&step.entry).map_err(unreadable)?;
            let messages = self.turn().apply(&entry, ReplayMode::Again);
            self.sender.replay(messages, step.at).await;
        }
        let open: Vec<ModelToolCall> = self.turn().open_calls();
        self.unknown = open.into_iter().map(|call| call.id).collect();
        Ok(())
    }

    /// Stores the part of an unfinished reply that readers have seen.
    async fn record_partial_reply(&self, text: &str) -> Result<(), EngineError> {
        let was_asking = self.turn().is_asking();
        let unkept = self.turn().unsaved_text(text).to_owned();
        if !unkept.is_empty() {
            let cut = TurnEntry::Cut { thread: None, text: unkept };
            let messages = self.turn().apply(&cut, ReplayMode::Again);
            let now = shikiri_model::time::Timestamp::default();
            self.sender.replay(messages, now).await;
            self.sender.persist_step(written(&cut)?, Vec::new()).await?;
        }
        if was_asking {
            let why = "the server that ran it is gone: what a request to the model used that was \
                       under way then is not known";
            self.warn(WarningCode::UsageIncomplete, why.to_owned()).await;
        }
        Ok(())
    }

    /// Runs a thread to its end. Boxed, because subagents call it recursively.
    pub(super) fn thread<'a>(
        &'a self,
        id: &'a ThreadId,
        model: &'a str,
    ) -> Pin<Box<dyn Future<Output = ThreadResult> + Send + 'a>> {
        Box::pin(async move {
            loop {
                let next = self.turn().next(id);
                match next {
                    ThreadAction::Ask => {
                        if let Some(ending) = self.ask(id, model).await? {
                            return Ok(ending);
                        }
                    }
                    ThreadAction::Call(calls) => self.call_all(id, calls).await?,
                    ThreadAction::End(ending) => return Ok(ending),
                }
            }
        })
    }

    /// Finishes a turn that was stopped. Running work is dropped.
    async fn finish_stopped(&self) -> Result<(), EngineError> {
        let cut = self.begun.load(Ordering::SeqCst) > self.over.load(Ordering::SeqCst);
        if cut {
            let why = "it was stopped while the model answered: the output of that is not known";
            self.warn(WarningCode::UsageIncomplete, why.to_owned()).await;
        }
        let is_asking = cut || self.turn().is_asking();
        let error = if is_asking { "aborted_streaming" } else { "aborted_tools" };
        let finish = self.turn().finish(&ThreadEnding::Stopped(error.to_owned()));
        self.tell(EngineMessage::Finished(EngineFinish { is_error: true, ..finish })).await;
        Ok(())
    }

    /// Stores a step and sends its messages. Only then may it have consequences.
    pub(super) async fn persist_entry(&self, entry: TurnEntry) -> Result<(), EngineError> {
        let messages = self.turn().apply(&entry, ReplayMode::Live);
        let messages = {
            let mut redactor = self.redactor();
            messages.into_iter().flat_map(|message| redactor.message(message)).collect()
        };
        self.sender.persist_step(written(&entry)?, messages).await
    }

    pub(super) async fn tell(&self, message: EngineMessage) {
        let messages = self.redactor().message(message);
        for message in messages {
            self.sender.send(message).await;
        }
    }

    pub(super) async fn warn(&self, code: WarningCode, message: String) {
        self.tell(EngineMessage::Warning { code, message, server: None }).await;
    }

    pub(super) fn turn(&self) -> MutexGuard<'_, NativeTurn> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn redactor(&self) -> MutexGuard<'_, SecretRedactor> {
        let mut redactor = self.redactor.lock().unwrap_or_else(PoisonError::into_inner);
        redactor.add_secrets(self.client.secrets());
        redactor
    }

    pub(super) fn answer_begins(&self) {
        self.begun.fetch_add(1, Ordering::SeqCst);
    }

    pub(super) fn answer_is_over(&self) {
        self.over.fetch_add(1, Ordering::SeqCst);
    }
}

fn written(entry: &TurnEntry) -> Result<serde_json::Value, EngineError> {
    serde_json::to_value(entry).map_err(|error| EngineError::new(error.to_string()))
}
