//! What an agent is given: every method records its outcome in the run's stream, and after a
//! crash gives the recorded outcome instead of doing the thing again.
//!
//! Each method takes its place in the journal when it is called, not when it is awaited, so an
//! agent may join several. When nothing is left to do but wait, the agent's future is dropped and
//! the run waits in the store; what it waits for starts the replay.

use std::fmt::Display;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use shikiri_model::event::NewEvent;
use shikiri_model::ids::{RunId, TenantId};
use shikiri_model::journal::{Operation, OperationKind, Recorded};
use shikiri_model::run::{Answer, Outcome, QuestionKind};
use shikiri_model::time::Timestamp;

use super::drive::{Driver, NewQuestion};
use crate::app::App;

#[derive(Clone)]
pub struct Context {
    pub(super) driver: Arc<Driver>,
    /// Of the questions that are asked through it.
    question_name: Option<Arc<str>>,
}

/// What to do about a step that began before a crash and whose outcome nobody recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnUnknown {
    /// Do it again: it does no harm twice.
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

/// Bounds on a model's answer, and how it should be found.
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

impl Context {
    pub(super) fn new(driver: Arc<Driver>) -> Self {
        Self { driver, question_name: None }
    }

    /// Asks under a name of the agent's own. A caller that knows the agent recognises the question
    /// by it, and may even bring the answer along before it is asked.
    #[must_use]
    pub fn named(&self, name: &str) -> Self {
        Self { question_name: Some(name.into()), ..self.clone() }
    }

    /// The run that the agent carries out.
    pub fn run_id(&self) -> &RunId {
        &self.driver.run.id
    }

    pub fn tenant(&self) -> &TenantId {
        &self.driver.run.tenant
    }

    /// Who asked for the run, in the words of the door that was asked.
    pub fn origin(&self) -> Option<&Value> {
        self.driver.run.origin.as_ref()
    }

    pub(crate) fn app(&self) -> &App {
        &self.driver.app
    }

    /// How far a step is, told from inside of it. It has no place in the journal: a step that is not
    /// done again tells nothing again.
    pub(crate) async fn show_progress(&self, progress: f64, total: f64, message: &str) {
        let note = json!({ "progress": progress, "total": total, "message": message });
        let event = NewEvent::from_value("progress", &note);
        self.driver.tell(event, Some(note.to_string())).await;
    }

    /// How far the run is, and with what. Also shown as the run's status.
    pub fn progress(
        &self,
        progress: f64,
        total: f64,
        message: &str,
    ) -> impl Future<Output = ()> + use<> {
        let note = json!({ "progress": progress, "total": total, "message": message });
        self.note("progress", note.clone(), Some(note.to_string()))
    }

    pub fn log(
        &self,
        level: &str,
        logger: &str,
        message: &str,
    ) -> impl Future<Output = ()> + use<> {
        self.note("log", json!({ "level": level, "logger": logger, "message": message }), None)
    }

    /// A result that may be looked at before the run ends.
    pub fn partial(&self, data: &Value) -> impl Future<Output = ()> + use<> {
        self.note("partial", json!({ "data": data }), None)
    }

    /// Nothing will be told for a while: a caller that can come back need not stay connected.
    pub fn release_callers(&self) -> impl Future<Output = ()> + use<> {
        self.note("callers_released", json!({}), None)
    }

    fn note(
        &self,
        kind: &'static str,
        mut data: Value,
        note: Option<String>,
    ) -> impl Future<Output = ()> + use<> {
        let index = self.driver.next_index();
        data["index"] = index.into();
        let driver = Arc::clone(&self.driver);
        async move {
            let operation = Operation { kind: OperationKind::Note, name: kind.to_owned() };
            if driver.recall(index, &operation).await.is_none() {
                driver.tell(NewEvent::from_value(kind, &data), note).await;
            }
        }
    }

    /// Does something once. `work` runs only if no outcome is recorded, and its beginning is
    /// durable before it runs.
    pub fn step<T, E>(
        &self,
        name: &str,
        on_unknown: OnUnknown,
        work: impl Future<Output = Result<T, E>> + Send,
    ) -> impl Future<Output = Result<T, StepError>> + Send
    where
        T: Serialize + DeserializeOwned + Send,
        E: Display,
    {
        let index = self.driver.next_index();
        let driver = Arc::clone(&self.driver);
        let operation = Operation { kind: OperationKind::Step, name: name.to_owned() };
        async move {
            let attempts = match driver.recall(index, &operation).await {
                None => 0,
                Some(Recorded::StepCompleted(value)) => return read_back(value),
                Some(Recorded::StepFailed(error)) => return Err(StepError::Failed(error)),
                Some(Recorded::Unknown { attempts }) => attempts,
                Some(_) => return driver.never().await,
            };
            if attempts > 0 {
                doubt(&driver, index, &operation.name, on_unknown, attempts).await?;
            }
            let started =
                json!({ "index": index, "name": operation.name, "attempt": attempts + 1 });
            driver.record("step_started", &started).await;
            let outcome = match driver.busy(work).await {
                Ok(value) => serde_json::to_value(&value).map_err(|e| e.to_string()),
                Err(error) => Err(error.to_string()),
            };
            match outcome {
                Ok(value) => {
                    let ended = json!({ "index": index, "name": operation.name, "result": value });
                    driver.record("step_completed", &ended).await;
                    read_back(value)
                }
                Err(error) => {
                    let ended = json!({ "index": index, "name": operation.name, "error": error });
                    driver.record("step_failed", &ended).await;
                    Err(StepError::Failed(error))
                }
            }
        }
    }

    /// Asks a person. No answer in time is an answer: `AnswerAction::Timeout`.
    pub fn ask_human(
        &self,
        schema: Value,
        message: &str,
        wait: Option<Duration>,
    ) -> impl Future<Output = Answer> + use<> {
        self.ask(QuestionKind::Human, message.to_owned(), schema, wait)
    }

    /// Asks whichever model the caller has.
    pub fn ask_model(
        &self,
        messages: &Value,
        limits: &ModelLimits,
        wait: Option<Duration>,
    ) -> impl Future<Output = Answer> + use<> {
        let mut schema = json!(limits);
        schema["messages"] = messages.clone();
        self.ask(QuestionKind::Model, String::new(), schema, wait)
    }

    /// Asks the caller's client which folders it works in.
    pub fn ask_roots(&self, wait: Option<Duration>) -> impl Future<Output = Answer> + use<> {
        let message = "Which folders does the client work in?".to_owned();
        self.ask(QuestionKind::Roots, message, Value::Null, wait)
    }

    fn ask(
        &self,
        kind: QuestionKind,
        message: String,
        schema: Value,
        wait: Option<Duration>,
    ) -> impl Future<Output = Answer> + use<> {
        let index = self.driver.next_index();
        let driver = Arc::clone(&self.driver);
        let name = self.question_name.as_deref().map(str::to_owned);
        async move {
            let operation =
                Operation { kind: OperationKind::Question, name: kind.as_str().to_owned() };
            let new = NewQuestion { name, kind, message, schema, wait };
            match driver.recall(index, &operation).await {
                Some(Recorded::Answered(answer)) => return answer,
                Some(_) => {}
                None => driver.ask(index, new).await,
            }
            driver.wait(None).await
        }
    }

    /// Goes on at `until`, in whichever process then carries the run.
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
            let operation = Operation { kind: OperationKind::Timer, name: "sleep".to_owned() };
            let until = match driver.recall(index, &operation).await {
                Some(Recorded::TimerFired) => return,
                Some(Recorded::TimerSet(until)) => until,
                _ => {
                    let until = until(driver.now().await);
                    let set = json!({ "index": index, "until": until });
                    driver.record("timer_set", &set).await;
                    until
                }
            };
            if driver.now().await < until {
                return driver.wait(Some(until)).await;
            }
            let fired = NewEvent::from_value("timer_fired", &json!({ "index": index }));
            driver.tell(fired, None).await;
        }
    }

    /// Runs another agent as a run of its own, once, and waits for its end.
    pub fn call(&self, agent: &str, input: Value) -> impl Future<Output = Outcome> + use<> {
        let index = self.driver.next_index();
        let driver = Arc::clone(&self.driver);
        let agent = agent.to_owned();
        async move {
            let operation = Operation { kind: OperationKind::Child, name: agent.clone() };
            match driver.recall(index, &operation).await {
                Some(Recorded::ChildEnded(outcome)) => return outcome,
                Some(_) => {}
                // Nobody would be left to stop it.
                None if driver.is_cancelled() => return Outcome::Cancelled,
                None => driver.start_child(index, &agent, input).await,
            }
            driver.wait(None).await
        }
    }

    /// Resolves when somebody wants the run stopped.
    pub async fn cancelled(&self) {
        self.driver.cancelled().await;
    }

    pub fn is_cancelled(&self) -> bool {
        self.driver.is_cancelled()
    }
}

/// Settles what to do about a step whose outcome is unknown; Ok means: do it again.
async fn doubt(
    driver: &Arc<Driver>,
    index: u64,
    name: &str,
    on_unknown: OnUnknown,
    attempts: u64,
) -> Result<(), StepError> {
    let unknown = StepError::Unknown { attempts };
    match (on_unknown, driver.doubt(index)) {
        (OnUnknown::Retry, _) => Ok(()),
        (OnUnknown::Stop, _) => Err(unknown),
        (OnUnknown::Ask, Some(Recorded::Answered(answer))) => {
            let again = answer.accepted().and_then(|c| c["retry"].as_bool()).unwrap_or(false);
            if again { Ok(()) } else { Err(unknown) }
        }
        (OnUnknown::Ask, asked) => {
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
                let new = NewQuestion { name: None, kind, message, schema, wait: None };
                driver.ask(index, new).await;
            }
            driver.wait(None).await
        }
    }
}

fn read_back<T: DeserializeOwned>(value: Value) -> Result<T, StepError> {
    serde_json::from_value(value)
        .map_err(|e| StepError::Failed(format!("the recorded result does not fit the code: {e}")))
}
