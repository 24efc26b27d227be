//! The context that an agent works with. Every method records its outcome in the run's stream.
//! After a crash it returns the recorded outcome instead of acting again.
//!
//! Each method takes its index in the journal when it is called, not when it is awaited, so an
//! agent may join several. When the agent can only wait, its future is dropped and the run waits in
//! the store. The event that it waits for starts the replay.

use std::fmt::Display;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use shikiri_model::event::NewEvent;
use shikiri_model::ids::{RunId, TenantId};
use shikiri_model::journal::{JournalEntry, JournalOperation, OperationKind};
use shikiri_model::run::{QuestionAnswer, QuestionKind, RunEventName, RunOutcome};
use shikiri_model::time::Timestamp;

use super::run_driver::{NewRunQuestion, RunDriver};
use crate::runtime::Runtime;

#[derive(Clone)]
pub struct RunContext {
    pub(super) driver: Arc<RunDriver>,
    /// The name of the questions that are asked through this context.
    question_name: Option<Arc<str>>,
}

/// What to do about a step that began before a crash and has no recorded outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnknownStepPolicy {
    /// Do it again: repeating it does no harm.
    Retry,
    /// Give the agent `StepError::Unknown`.
    Stop,
    /// Ask a person whether to do it again.
    Ask,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StepError {
    #[error("{0}")]
    Failed(String),
    #[error("the step began {attempts} times and it is not known whether it happened")]
    Unknown { attempts: u64 },
}

/// Limits of a model's answer, and settings for it.
#[derive(Clone, Debug, Serialize)]
pub struct ModelLimits {
    pub max_tokens: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub system_prompt: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f64>,
}

impl ModelLimits {
    pub const fn new(max_tokens: u32) -> Self {
        Self { max_tokens, system_prompt: None, temperature: None }
    }
}

impl RunContext {
    pub(super) fn new(driver: Arc<RunDriver>) -> Self {
        Self { driver, question_name: None }
    }

    /// A context whose questions have this name. A caller that knows the agent recognises a
    /// question by its name, and may even send the answer before it is asked.
    #[must_use]
    pub fn named(&self, name: &str) -> Self {
        Self { question_name: Some(name.into()), ..self.clone() }
    }

    /// The run that the agent executes.
    pub fn run_id(&self) -> &RunId {
        &self.driver.run.id
    }

    pub fn tenant(&self) -> &TenantId {
        &self.driver.run.tenant
    }

    /// Who asked for the run, as described by the door that took the request.
    pub fn origin(&self) -> Option<&Value> {
        self.driver.run.origin.as_ref()
    }

    pub fn runtime(&self) -> &Runtime {
        &self.driver.runtime
    }

    /// Reports progress from inside a step. It is not journaled: a step that is replayed reports
    /// nothing.
    pub async fn show_progress(&self, progress: f64, total: f64, message: &str) {
        let note = progress_note(progress, total, message);
        let event = NewEvent::from_value(RunEventName::Progress.as_str(), &note);
        self.driver.push_event(event, Some(note.to_string())).await;
    }

    /// Reports the progress of the run. The latest is also shown in the run's status.
    pub fn progress(
        &self,
        progress: f64,
        total: f64,
        message: &str,
    ) -> impl Future<Output = ()> + use<> {
        let note = progress_note(progress, total, message);
        self.note(RunEventName::Progress, note.clone(), Some(note.to_string()))
    }

    pub fn log(
        &self,
        level: &str,
        logger: &str,
        message: &str,
    ) -> impl Future<Output = ()> + use<> {
        self.note(
            RunEventName::Log,
            json!({ "level": level, "logger": logger, "message": message }),
            None,
        )
    }

    /// Reports a partial result, which can be read before the run ends.
    pub fn partial(&self, data: &Value) -> impl Future<Output = ()> + use<> {
        self.note(RunEventName::Partial, json!({ "data": data }), None)
    }

    /// Releases callers that can come back, because no events will follow for a while.
    pub fn release_callers(&self) -> impl Future<Output = ()> + use<> {
        self.note(RunEventName::CallersReleased, json!({}), None)
    }

    fn note(
        &self,
        event: RunEventName,
        mut data: Value,
        note: Option<String>,
    ) -> impl Future<Output = ()> + use<> {
        let index = self.driver.next_index();
        data["index"] = index.into();
        let driver = Arc::clone(&self.driver);
        async move {
            let name = event.as_str();
            let operation = JournalOperation { kind: OperationKind::Note, name: name.to_owned() };
            if driver.recall(index, &operation).await.is_none() {
                driver.push_event(NewEvent::from_value(name, &data), note).await;
            }
        }
    }

    /// Performs a step once. `work` runs only if no outcome is recorded, and the start of the step
    /// is durable before it runs.
    pub fn step<T, E>(
        &self,
        name: &str,
        on_unknown: UnknownStepPolicy,
        work: impl Future<Output = Result<T, E>> + Send,
    ) -> impl Future<Output = Result<T, StepError>> + Send
    where
        T: Serialize + DeserializeOwned + Send,
        E: Display,
    {
        let index = self.driver.next_index();
        let driver = Arc::clone(&self.driver);
        let operation = JournalOperation { kind: OperationKind::Step, name: name.to_owned() };
        async move {
            let attempts = match driver.recall(index, &operation).await {
                None => 0,
                Some(JournalEntry::StepCompleted(value)) => return read_back(value),
                Some(JournalEntry::StepFailed(error)) => return Err(StepError::Failed(error)),
                Some(JournalEntry::Unknown { attempts }) => attempts,
                Some(_) => return driver.never().await,
            };
            if attempts > 0 {
                resolve_unknown_step(&driver, index, &operation.name, on_unknown, attempts).await?;
            }
            let started =
                json!({ "index": index, "name": operation.name, "attempt": attempts + 1 });
            driver.record(RunEventName::StepStarted, &started).await;
            let outcome = match driver.busy(work).await {
                Ok(value) => serde_json::to_value(&value).map_err(|e| e.to_string()),
                Err(error) => Err(error.to_string()),
            };
            match outcome {
                Ok(value) => {
                    let ended = json!({ "index": index, "name": operation.name, "result": value });
                    driver.record(RunEventName::StepCompleted, &ended).await;
                    read_back(value)
                }
                Err(error) => {
                    let ended = json!({ "index": index, "name": operation.name, "error": error });
                    driver.record(RunEventName::StepFailed, &ended).await;
                    Err(StepError::Failed(error))
                }
            }
        }
    }

    /// Asks a person. If no answer comes in time, the answer is `AnswerAction::Timeout`.
    pub fn ask_human(
        &self,
        schema: Value,
        message: &str,
        wait: Option<Duration>,
    ) -> impl Future<Output = QuestionAnswer> + use<> {
        self.ask(QuestionKind::Human, message.to_owned(), schema, wait)
    }

    /// Asks the caller's model.
    pub fn ask_model(
        &self,
        messages: &Value,
        limits: &ModelLimits,
        wait: Option<Duration>,
    ) -> impl Future<Output = QuestionAnswer> + use<> {
        let mut schema = json!(limits);
        schema["messages"] = messages.clone();
        self.ask(QuestionKind::Model, String::new(), schema, wait)
    }

    /// Asks the caller's client which folders it works in.
    pub fn ask_roots(
        &self,
        wait: Option<Duration>,
    ) -> impl Future<Output = QuestionAnswer> + use<> {
        let message = "Which folders does the client work in?".to_owned();
        self.ask(QuestionKind::Roots, message, Value::Null, wait)
    }

    fn ask(
        &self,
        kind: QuestionKind,
        message: String,
        schema: Value,
        wait: Option<Duration>,
    ) -> impl Future<Output = QuestionAnswer> + use<> {
        let index = self.driver.next_index();
        let driver = Arc::clone(&self.driver);
        let name = self.question_name.as_deref().map(str::to_owned);
        async move {
            let operation =
                JournalOperation { kind: OperationKind::Question, name: kind.as_str().to_owned() };
            let new = NewRunQuestion { name, kind, message, schema, wait };
            match driver.recall(index, &operation).await {
                Some(JournalEntry::Answered(answer)) => return answer,
                Some(_) => {}
                None => driver.ask(index, new).await,
            }
            driver.wait(None).await
        }
    }

    /// Waits until `until`. Another process may then continue the run.
    pub fn sleep_until(&self, until: Timestamp) -> impl Future<Output = ()> + use<> {
        self.timer(move |_| until)
    }

    pub fn sleep(&self, duration: Duration) -> impl Future<Output = ()> + use<> {
        self.timer(move |now| now + duration)
    }

    fn timer<F>(&self, until: F) -> impl Future<Output = ()> + Send + use<F>
    where
        F: FnOnce(Timestamp) -> Timestamp + Send,
    {
        let index = self.driver.next_index();
        let driver = Arc::clone(&self.driver);
        async move {
            let operation =
                JournalOperation { kind: OperationKind::Timer, name: "sleep".to_owned() };
            let until = match driver.recall(index, &operation).await {
                Some(JournalEntry::TimerFired) => return,
                Some(JournalEntry::TimerSet(until)) => until,
                _ => {
                    let until = until(driver.now().await);
                    let set = json!({ "index": index, "until": until });
                    driver.record(RunEventName::TimerSet, &set).await;
                    until
                }
            };
            if driver.now().await < until {
                return driver.wait(Some(until)).await;
            }
            let fired =
                NewEvent::from_value(RunEventName::TimerFired.as_str(), &json!({ "index": index }));
            driver.push_event(fired, None).await;
        }
    }

    /// Runs another agent as a run of its own, once, and waits for its end.
    pub fn call(&self, agent: &str, input: Value) -> impl Future<Output = RunOutcome> + use<> {
        let index = self.driver.next_index();
        let driver = Arc::clone(&self.driver);
        let agent = agent.to_owned();
        async move {
            let operation = JournalOperation { kind: OperationKind::Child, name: agent.clone() };
            match driver.recall(index, &operation).await {
                Some(JournalEntry::ChildEnded(outcome)) => return outcome,
                Some(_) => {}
                // A child that is started now would not be stopped.
                None if driver.is_cancelled() => return RunOutcome::Cancelled,
                None => driver.start_child(index, &agent, input).await,
            }
            driver.wait(None).await
        }
    }

    /// Resolves when the run is asked to stop.
    pub async fn cancelled(&self) {
        self.driver.cancelled().await;
    }

    pub fn is_cancelled(&self) -> bool {
        self.driver.is_cancelled()
    }
}

/// Decides whether to repeat a step whose outcome is unknown. Ok means: do it again.
async fn resolve_unknown_step(
    driver: &Arc<RunDriver>,
    index: u64,
    name: &str,
    on_unknown: UnknownStepPolicy,
    attempts: u64,
) -> Result<(), StepError> {
    let unknown = StepError::Unknown { attempts };
    match (on_unknown, driver.step_confirmation(index)) {
        (UnknownStepPolicy::Retry, _) => Ok(()),
        (UnknownStepPolicy::Stop, _) => Err(unknown),
        (UnknownStepPolicy::Ask, Some(JournalEntry::Answered(answer))) => {
            let again = answer.accepted().and_then(|c| c["retry"].as_bool()).unwrap_or(false);
            if again { Ok(()) } else { Err(unknown) }
        }
        (UnknownStepPolicy::Ask, asked) => {
            if asked.is_none() {
                let message = format!(
                    "The step {name:?} was under way when its process died, so it may have \
                     happened. Do it again?"
                );
                let schema = json!({
                    "type": "object",
                    "properties": { "retry": { "type": "boolean" } },
                    "required": ["retry"],
                });
                let kind = QuestionKind::Human;
                let new = NewRunQuestion { name: None, kind, message, schema, wait: None };
                driver.ask(index, new).await;
            }
            driver.wait(None).await
        }
    }
}

/// The data of a progress event, without the digits that binary fractions add.
fn progress_note(progress: f64, total: f64, message: &str) -> Value {
    let rounded = |number: f64| (number * 1e6).round() / 1e6;
    json!({ "progress": rounded(progress), "total": rounded(total), "message": message })
}

fn read_back<T: DeserializeOwned>(value: Value) -> Result<T, StepError> {
    serde_json::from_value(value)
        .map_err(|e| StepError::Failed(format!("the recorded result does not fit the code: {e}")))
}
