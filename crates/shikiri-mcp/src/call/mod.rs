//! Following a run on behalf of one request: its events become the request's stream, its end the
//! request's answer.
//!
//! The run knows nothing of it. Dropping a call drops a cursor; in the older era another one can
//! be made at the same place, on any node, and reads the same.

mod progress;
mod render;
mod spec;

use std::time::Duration;

use rmcp::model::JsonObject;
use serde_json::{Value, json};
use shikiri_app::run::RunView;
use shikiri_app::{App, AppError, Delivery, Watch, WatchError};
use shikiri_model::connection::{Connection, Handover, Place};
use shikiri_model::event::Seq;
use shikiri_model::ids::{QuestionId, RunId};
use shikiri_model::run::{Answer, Run, stream_of};
use tokio::time::Instant;

use self::progress::{LastProgress, last_progress};
use self::render::Wishes;
pub(crate) use self::spec::{CallSpec, Shape, Who};
use crate::client::{Caller, Era};
use crate::fault::Fault;
use crate::message;
use crate::question::{Asked, clear_answer, keyed, request_id, unsupported};
use crate::run_view::{Ending, handle, status_result};
use crate::tasks;

/// A silent call shows that it lives so often.
const HEARTBEAT: Duration = Duration::from_secs(14);

/// How long a run has to tell its own progress before the first one.
const FIRST_BEAT: Duration = Duration::from_millis(250);

/// A message of the call's stream.
#[derive(Debug)]
pub(crate) struct Out {
    /// Where it stands, if it can be read again.
    pub(crate) place: Option<Place>,
    pub(crate) text: String,
    /// It answers only because the run cannot be followed here and now.
    pub(crate) is_failure: bool,
}

pub(crate) struct Call {
    app: App,
    caller: Caller,
    /// Number in the connection's stream; none in the newer era, whose streams are not read again.
    number: Option<Seq>,
    spec: CallSpec,
    /// Identifies the request to its continuation.
    digest: String,
    wishes: Wishes,
    watch: Watch,
    /// Answers that the caller brought along, by the names of the questions.
    brought: JsonObject,
    /// Whether its client comes back to a stream that ends before the answer.
    is_releasable: bool,
    /// The answer that was given instead of the run's end.
    handover: Option<Handover>,
    deadline: Option<Instant>,
    beat: Instant,
    /// When the run was made.
    born: Instant,
    progress: Option<LastProgress>,
    /// The run's last event that was looked at.
    seen: Seq,
    ended: bool,
}

impl Call {
    /// Follows the run from `after` on (its own beginning for a new call).
    pub(crate) async fn follow(
        app: &App,
        caller: &Caller,
        number: Option<Seq>,
        spec: CallSpec,
        digest: String,
        after: Seq,
    ) -> Result<Self, AppError> {
        let tenant = &caller.connection.tenant;
        let from = after.max(spec.after);
        let watch = app.watch(tenant, stream_of(&spec.run_id), from).await?;
        let progress = last_progress(app, &spec.run_id, caller, from).await?;
        let handover = match number {
            Some(number) => app.handover(&caller.connection, number).await?,
            None => None,
        };
        let now = app.store().now().await?;
        let left = |until: shikiri_model::time::Timestamp| {
            let ms = until.as_millis().saturating_sub(now.as_millis());
            Instant::now() + Duration::from_millis(u64::try_from(ms).unwrap_or(0))
        };
        let age = spec.run_id.minted_at().map_or(Duration::ZERO, |at| now.since(at));
        let born = Instant::now().checked_sub(age).unwrap_or_else(Instant::now);
        let token = spec.progress_token.as_ref().map(Value::to_string);
        Ok(Self {
            wishes: Wishes { token, log_level: spec.log_level },
            deadline: spec.until.map(left),
            // A caller is told at once where things stand, unless the run says so itself.
            beat: Instant::now() + FIRST_BEAT,
            born,
            progress,
            app: app.clone(),
            caller: caller.clone(),
            number,
            spec,
            digest,
            watch,
            brought: JsonObject::new(),
            is_releasable: false,
            handover,
            seen: from,
            ended: false,
        })
    }

    pub(crate) fn caller(&self) -> &Caller {
        &self.caller
    }

    /// Uses these answers, each once, when the run asks what they are for.
    #[must_use]
    pub(crate) fn bringing(self, brought: JsonObject) -> Self {
        Self { brought, ..self }
    }

    /// The stream may end early if the run releases its callers.
    #[must_use]
    pub(crate) fn releasable(self) -> Self {
        Self { is_releasable: true, ..self }
    }

    /// Where the stream begins, before its first event.
    pub(crate) fn start(&self) -> Option<Place> {
        self.number.map(|call| Place { call, seq: self.seen })
    }

    /// The last message of a call that must end here although its run goes on.
    pub(crate) async fn leave(&mut self) -> Out {
        self.hand_over().await
    }

    /// The messages that are there; None after the last. Whoever drops this unfinished loses
    /// messages.
    pub(crate) async fn next(&mut self) -> Option<Vec<Out>> {
        while !self.ended {
            let out = tokio::select! {
                biased;
                next = self.watch.next() => self.take(next).await,
                () = until(self.deadline) => vec![self.hand_over().await],
                () = tokio::time::sleep_until(self.beat), if self.wishes.token.is_some() => {
                    self.heartbeat().into_iter().collect()
                }
            };
            if !out.is_empty() {
                return Some(out);
            }
        }
        None
    }

    async fn take(&mut self, next: Result<Option<Delivery>, WatchError>) -> Vec<Out> {
        match next {
            Ok(Some(delivery)) => self.render(&delivery).await,
            // The end was told by an event before this cursor.
            Ok(None) => {
                self.ended = true;
                Vec::new()
            }
            Err(error) => {
                tracing::warn!(run.id = %self.spec.run_id, %error, "a call cannot be followed");
                let fault = Fault::internal("the run's events cannot be read: try again")
                    .with(json!({ "run_id": self.spec.run_id }));
                vec![self.fail(fault)]
            }
        }
    }

    async fn render(&mut self, delivery: &Delivery) -> Vec<Out> {
        let mut out = Vec::new();
        let mut known = Vec::new();
        let mut waits = false;
        for event in delivery.events() {
            if let Some(handover) = self.handover.take_if(|h| event.seq > h.after) {
                out.push(self.answer(Some(LAST), Ok(handover.reply)));
                return out;
            }
            self.seen = event.seq;
            waits = event.kind == "waiting";
            let place = Some(event.seq);
            if let Some(ending) = Ending::read(event.kind, event.data) {
                let answer = self.ending(ending).await;
                out.push(self.answer(place, answer));
                return out;
            }
            if event.kind == "progress" {
                self.beat = Instant::now() + HEARTBEAT;
                self.progress = LastProgress::read(event.data, event.seq).or(self.progress.take());
            }
            if event.kind == "question" && self.spec.shape != Shape::Wait {
                match serde_json::from_str::<Asked>(event.data) {
                    Ok(asked) => match self.known_answer(&asked) {
                        Some(answer) => known.push((asked.question_id, answer)),
                        None if self.caller.era == Era::Legacy => {
                            out.push(self.ask(event.seq, &asked));
                        }
                        // In the newer era the answer itself asks, once the run waits for it.
                        None => {}
                    },
                    Err(error) => tracing::error!(%error, "a question cannot be read"),
                }
            } else if event.kind == "callers_released" && self.is_releasable {
                self.ended = true;
                break;
            } else if let Some(text) = self.wishes.notification(&self.spec.run_id, event) {
                out.push(self.out(place, text));
            }
        }
        for (question, answer) in known {
            self.answer_for_the_client(&question, answer).await;
        }
        if waits && (self.caller.era == Era::Modern || self.spec.shape == Shape::Wait) {
            out.extend(self.ask_back().await);
        }
        if let Some(handover) = self.handover.take_if(|h| self.seen >= h.after) {
            out.push(self.answer(Some(LAST), Ok(handover.reply)));
        }
        out
    }

    async fn ending(&self, ending: Ending) -> Result<Value, Fault> {
        match self.spec.shape {
            Shape::Tool => ending.tool_result(&self.spec.run_id, &self.spec.name),
            Shape::Prompt => match ending {
                Ending::Result(prompt) => Ok(prompt),
                Ending::Error { message, .. } => Err(Fault::internal(message)),
            },
            Shape::Wait => Ok(status_result(&self.view().await?)),
        }
    }

    async fn view(&self) -> Result<RunView, AppError> {
        self.app.run(&self.caller.connection.tenant, &self.spec.run_id).await
    }

    fn ask(&self, seq: Seq, asked: &Asked) -> Out {
        let id = request_id(&self.spec.run_id, &asked.question_id);
        self.out(Some(seq), message::request(&id, asked.method(), &asked.params()))
    }

    /// The fail-safe rule: who cannot be asked has not agreed. Who brought an answer along need
    /// not be asked.
    fn known_answer(&mut self, asked: &Asked) -> Option<Answer> {
        if !self.caller.can_answer(asked.kind) {
            return Some(unsupported(asked.kind));
        }
        let response = self.brought.remove(asked.name.as_deref()?)?;
        clear_answer(asked.kind, &response)
    }

    async fn answer_for_the_client(&self, question: &QuestionId, answer: Answer) {
        let (tenant, run) = (&self.caller.connection.tenant, &self.spec.run_id);
        match self.app.answer_run(tenant, run, question, answer).await {
            // Somebody else answered it, or the run is over.
            Ok(_) | Err(AppError::NotFound { .. } | AppError::NotNow(_)) => {}
            // What was brought along does not fit: the caller is asked.
            Err(AppError::Invalid { .. }) => {}
            // It stays open until it expires.
            Err(error) => tracing::warn!(%error, "a question was not answered"),
        }
    }

    /// The run waits: if for an answer, the caller is asked for it by the answer to its request.
    async fn ask_back(&mut self) -> Option<Out> {
        let view = match self.view().await {
            Ok(view) if view.run.questions.is_empty() => return None,
            Ok(view) => view,
            Err(error) => return Some(self.fail(error.into())),
        };
        let answer = match self.spec.shape {
            Shape::Wait => Ok(status_result(&view)),
            Shape::Tool | Shape::Prompt => {
                input_required(&self.app, &self.caller, &view.run, &self.digest, self.seen).await
            }
        };
        if self.number.is_some() {
            return Some(match answer {
                Ok(reply) => self.record(reply).await,
                Err(fault) => self.fail(fault),
            });
        }
        Some(self.answer(None, answer))
    }

    /// Answers before the run has ended: whoever can come back for its end is let go with it.
    async fn hand_over(&mut self) -> Out {
        let reply = match (self.view().await, self.spec.shape) {
            (Ok(view), Shape::Wait) => status_result(&view),
            (Ok(view), Shape::Tool) if self.caller.has_tasks() => tasks::created(&view, &self.app),
            (Ok(view), _) => handle(&view),
            (Err(error), _) => return self.fail(error.into()),
        };
        self.record(reply).await
    }

    async fn record(&mut self, reply: Value) -> Out {
        let Some(number) = self.number else { return self.answer(None, Ok(reply)) };
        let recorded = self.app.hand_over(&self.caller.connection, number, self.seen, reply).await;
        match recorded {
            Ok(handover) => self.answer(Some(LAST), Ok(handover.reply)),
            Err(error) => self.fail(error.into()),
        }
    }

    fn heartbeat(&mut self) -> Option<Out> {
        self.beat = Instant::now() + HEARTBEAT;
        let text = self.progress.as_ref()?.again(&self.wishes, self.seen, self.born.elapsed())?;
        Some(Out { place: None, text, is_failure: false })
    }

    fn answer(&mut self, seq: Option<Seq>, outcome: Result<Value, Fault>) -> Out {
        self.ended = true;
        let outcome = outcome.map(|result| crate::server::finish(self.caller.era, result));
        self.out(seq, message::reply(&self.spec.id, &outcome))
    }

    fn fail(&mut self, fault: Fault) -> Out {
        Out { is_failure: true, ..self.answer(None, Err(fault)) }
    }

    fn out(&self, seq: Option<Seq>, text: String) -> Out {
        let place = self.number.zip(seq).map(|(call, seq)| Place { call, seq });
        Out { place, text, is_failure: false }
    }
}

/// The place of an answer that no event of the run stands for. Nothing follows it.
pub(crate) const LAST: Seq = u32::MAX as Seq;

/// An answer that asks back, with the ticket that its continuation must show.
pub(crate) async fn input_required(
    app: &App,
    caller: &Caller,
    run: &Run,
    digest: &str,
    after: Seq,
) -> Result<Value, Fault> {
    let Connection { tenant, principal, .. } = &*caller.connection;
    let open = keyed(&run.questions);
    let asked =
        open.iter().map(|(key, question)| ((*key).to_owned(), question.id.clone())).collect();
    let ticket = app.issue_ticket(tenant, principal, &run.id, digest, after, asked).await?;
    let requests =
        open.into_iter().map(|(key, q)| (key.to_owned(), Asked::from(q).input_request()));
    Ok(json!({
        "resultType": "input_required",
        "inputRequests": requests.collect::<Value>(),
        "requestState": ticket.reveal(),
    }))
}

async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

/// Kept here because a run's id in a request must be read before it can be followed.
pub(crate) fn parse_run(text: &str) -> Result<RunId, Fault> {
    text.parse().map_err(|_| Fault::params(format!("there is no run {text:?}")))
}
