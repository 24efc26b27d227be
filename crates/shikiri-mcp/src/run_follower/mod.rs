//! Following a run on behalf of one request: its events become the request's stream, its end the
//! request's answer.
//!
//! Dropping a follower drops a cursor. In the older era another follower can be made at the same
//! position, on any node, and reads the same. In the newer era the run may depend on its caller's
//! wait ([`WaitingCaller`]).

mod call_spec;
mod event_notifications;
mod progress_heartbeat;
mod waiting_caller;

use std::time::Duration;

use rmcp::model::JsonObject;
use serde_json::{Value, json};
use shikiri_app::App;
use shikiri_model::connection::{EventPosition, InterimReply, McpConnection};
use shikiri_model::event::Seq;
use shikiri_model::ids::{QuestionId, RunId};
use shikiri_model::run::{QuestionAnswer, Run, run_stream};
use shikiri_runtime::run::RunView;
use shikiri_runtime::{AppError, EventBatch, Watch, WatchError};
use tokio::time::Instant;

pub(crate) use self::call_spec::{AnswerShape, CallAttribution, CallSpec, CallTemplate};
use self::event_notifications::NotificationFilter;
use self::progress_heartbeat::{LastProgress, last_progress};
pub(crate) use self::waiting_caller::{TicketUse, WaitingCaller};
use crate::mcp_caller::{McpCaller, ProtocolEra};
use crate::message;
use crate::rpc_error::RpcError;
use crate::run_questions::{QuestionEventData, clear_answer, keyed, request_id, unsupported};
use crate::run_view::{RunEnding, handover_result, status_result};
use crate::tasks;

/// How often a silent call sends its progress again.
const HEARTBEAT: Duration = Duration::from_secs(14);

/// How long a run has to report its own progress before the first heartbeat.
const FIRST_BEAT: Duration = Duration::from_millis(250);

/// A message of the call's stream.
#[derive(Debug)]
pub(crate) struct CallStreamMessage {
    /// Its position, if it can be read again.
    pub(crate) place: Option<EventPosition>,
    pub(crate) text: String,
    /// It is an answer only because the run cannot be followed here and now.
    pub(crate) is_failure: bool,
}

pub(crate) struct RunFollower {
    app: App,
    caller: McpCaller,
    /// Number in the connection's stream; none in the newer era, whose streams are not read again.
    number: Option<Seq>,
    spec: CallSpec,
    /// Identifies the request to its continuation.
    digest: String,
    filter: NotificationFilter,
    watch: Watch,
    /// Answers that came with the request, by the names of the questions.
    prepared_answers: JsonObject,
    /// Whether its client comes back to a stream that ends before the answer.
    is_releasable: bool,
    /// Stops the run if the caller leaves before its answer; none if the run does not depend on it.
    waiting: Option<WaitingCaller>,
    /// The answer that was given instead of the run's end.
    handover: Option<InterimReply>,
    deadline: Option<Instant>,
    next_heartbeat: Instant,
    /// When the run was created.
    run_began: Instant,
    progress: Option<LastProgress>,
    /// The run's last event that was looked at.
    seen: Seq,
    ended: bool,
}

impl RunFollower {
    /// Follows the run from `after` on (its own beginning for a new call).
    pub(crate) async fn follow(
        app: &App,
        caller: &McpCaller,
        number: Option<Seq>,
        spec: CallSpec,
        digest: String,
        after: Seq,
    ) -> Result<Self, AppError> {
        let tenant = &caller.connection.tenant;
        let from = after.max(spec.after);
        let watch = app.runtime.watch(tenant, run_stream(&spec.run_id), from).await?;
        let progress = last_progress(app, &spec.run_id, caller, from).await?;
        let handover = match number {
            Some(number) => app.tenancy.handover(&caller.connection, number).await?,
            None => None,
        };
        let now = app.runtime.store().now().await?;
        let left = |until: shikiri_model::time::Timestamp| {
            let ms = until.as_millis().saturating_sub(now.as_millis());
            Instant::now() + Duration::from_millis(u64::try_from(ms).unwrap_or(0))
        };
        let age = spec.run_id.minted_at().map_or(Duration::ZERO, |at| now.since(at));
        let run_began = Instant::now().checked_sub(age).unwrap_or_else(Instant::now);
        let token = spec.progress_token.as_ref().map(Value::to_string);
        Ok(Self {
            filter: NotificationFilter { token, log_level: spec.log_level },
            deadline: spec.until.map(left),
            // Sends the current progress at once, unless the run does so itself.
            next_heartbeat: Instant::now() + FIRST_BEAT,
            run_began,
            progress,
            app: app.clone(),
            caller: caller.clone(),
            number,
            spec,
            digest,
            watch,
            prepared_answers: JsonObject::new(),
            is_releasable: false,
            waiting: None,
            handover,
            seen: from,
            ended: false,
        })
    }

    pub(crate) fn caller(&self) -> &McpCaller {
        &self.caller
    }

    /// Uses these answers, each once, when the run asks what they are for.
    #[must_use]
    pub(crate) fn with_answers(self, prepared_answers: JsonObject) -> Self {
        Self { prepared_answers, ..self }
    }

    /// The stream may end early if the run releases its callers.
    #[must_use]
    pub(crate) fn releasable(self) -> Self {
        Self { is_releasable: true, ..self }
    }

    /// The run ends with this wait, if the caller leaves before its answer.
    #[must_use]
    pub(crate) fn depending_on(self, waiting: Option<WaitingCaller>) -> Self {
        Self { waiting, ..self }
    }

    /// The caller has left, or cancelled its request.
    pub(crate) async fn caller_left(&mut self) {
        if let Some(waiting) = self.waiting.take() {
            waiting.left().await;
        }
    }

    /// Where the stream begins, before its first event.
    pub(crate) fn start(&self) -> Option<EventPosition> {
        self.number.map(|call| EventPosition { call, seq: self.seen })
    }

    /// The last message of a call that must end here although its run goes on.
    pub(crate) async fn leave(&mut self) -> CallStreamMessage {
        self.hand_over().await
    }

    /// The next messages; None after the last. Dropping the future before it is ready loses
    /// messages.
    pub(crate) async fn next(&mut self) -> Option<Vec<CallStreamMessage>> {
        while !self.ended {
            let out = tokio::select! {
                biased;
                next = self.watch.next() => self.handle_delivery(next).await,
                () = until(self.deadline) => vec![self.hand_over().await],
                () = tokio::time::sleep_until(self.next_heartbeat), if self.filter.token.is_some() => {
                    self.heartbeat().into_iter().collect()
                }
            };
            if !out.is_empty() {
                return Some(out);
            }
        }
        None
    }

    async fn handle_delivery(
        &mut self,
        next: Result<Option<EventBatch>, WatchError>,
    ) -> Vec<CallStreamMessage> {
        match next {
            Ok(Some(delivery)) => self.render(&delivery).await,
            // The event of the end lies before this cursor.
            Ok(None) => {
                self.ended = true;
                Vec::new()
            }
            Err(error) => {
                tracing::warn!(run.id = %self.spec.run_id, %error, "a call cannot be followed");
                let fault = RpcError::internal("the run's events cannot be read: try again")
                    .with(json!({ "run_id": self.spec.run_id }));
                vec![self.fail(fault)]
            }
        }
    }

    async fn render(&mut self, delivery: &EventBatch) -> Vec<CallStreamMessage> {
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
            if let Some(ending) = RunEnding::read(event.kind, event.data) {
                let answer = self.ending(ending).await;
                out.push(self.answer(place, answer));
                return out;
            }
            if event.kind == "started" {
                self.progress.iter_mut().for_each(LastProgress::started);
            }
            if event.kind == "progress" {
                self.next_heartbeat = Instant::now() + HEARTBEAT;
                self.progress = LastProgress::read(event.data, event.seq).or(self.progress.take());
            }
            if event.kind == "question" && self.spec.shape != AnswerShape::Wait {
                match serde_json::from_str::<QuestionEventData>(event.data) {
                    Ok(asked) => match self.known_answer(&asked) {
                        Some(answer) => known.push((asked.question_id, answer)),
                        None if self.caller.era == ProtocolEra::Legacy => {
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
            } else if let Some(text) = self.filter.notification(&self.spec.run_id, event) {
                out.push(self.out(place, text));
            }
        }
        for (question, answer) in known {
            self.answer_for_the_client(&question, answer).await;
        }
        if waits && (self.caller.era == ProtocolEra::Modern || self.spec.shape == AnswerShape::Wait)
        {
            out.extend(self.ask_back().await);
        }
        if let Some(handover) = self.handover.take_if(|h| self.seen >= h.after) {
            out.push(self.answer(Some(LAST), Ok(handover.reply)));
        }
        out
    }

    async fn ending(&self, ending: RunEnding) -> Result<Value, RpcError> {
        match self.spec.shape {
            AnswerShape::Tool => ending.tool_result(&self.spec.run_id, &self.spec.name),
            AnswerShape::Prompt => match ending {
                RunEnding::Result(prompt) => Ok(prompt),
                RunEnding::Error { message, .. } => Err(RpcError::internal(message)),
            },
            AnswerShape::Wait => Ok(status_result(&self.view().await?)),
        }
    }

    async fn view(&self) -> Result<RunView, AppError> {
        self.app.runtime.run(&self.caller.connection.tenant, &self.spec.run_id).await
    }

    fn ask(&self, seq: Seq, asked: &QuestionEventData) -> CallStreamMessage {
        let id = request_id(&self.spec.run_id, &asked.question_id);
        self.out(Some(seq), message::request(&id, asked.method(), &asked.params()))
    }

    /// The fail-safe rule: a caller that cannot be asked has not agreed. A caller whose answer came
    /// with the request need not be asked.
    fn known_answer(&mut self, asked: &QuestionEventData) -> Option<QuestionAnswer> {
        if !self.caller.can_answer(asked.kind) {
            return Some(unsupported(asked.kind));
        }
        let response = self.prepared_answers.remove(asked.name.as_deref()?)?;
        clear_answer(asked.kind, &response)
    }

    async fn answer_for_the_client(&self, question: &QuestionId, answer: QuestionAnswer) {
        let (tenant, run) = (&self.caller.connection.tenant, &self.spec.run_id);
        match self.app.runtime.answer_run(tenant, run, question, answer).await {
            // It was answered elsewhere, or the run is over.
            Ok(_) | Err(AppError::NotFound { .. } | AppError::NotNow(_)) => {}
            // The prepared answer does not fit: the caller is asked.
            Err(AppError::Invalid { .. }) => {}
            // It stays open until it expires.
            Err(error) => tracing::warn!(%error, "a question was not answered"),
        }
    }

    /// The run waits: if for an answer, the caller is asked for it by the answer to its request.
    async fn ask_back(&mut self) -> Option<CallStreamMessage> {
        let view = match self.view().await {
            Ok(view) if view.run.questions.is_empty() => return None,
            Ok(view) => view,
            Err(error) => return Some(self.fail(error.into())),
        };
        let answer = match self.spec.shape {
            AnswerShape::Wait => Ok(status_result(&view)),
            AnswerShape::Tool | AnswerShape::Prompt => {
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

    /// Answers before the run has ended, for a caller that can come back for its end.
    async fn hand_over(&mut self) -> CallStreamMessage {
        let reply = match (self.view().await, self.spec.shape) {
            (Ok(view), AnswerShape::Wait) => status_result(&view),
            (Ok(view), AnswerShape::Tool) if self.caller.has_tasks() => {
                tasks::created(&view, &self.app)
            }
            (Ok(view), _) => handover_result(&view),
            (Err(error), _) => return self.fail(error.into()),
        };
        self.record(reply).await
    }

    async fn record(&mut self, reply: Value) -> CallStreamMessage {
        let Some(number) = self.number else { return self.answer(None, Ok(reply)) };
        let recorded =
            self.app.tenancy.hand_over(&self.caller.connection, number, self.seen, reply).await;
        match recorded {
            Ok(handover) => self.answer(Some(LAST), Ok(handover.reply)),
            Err(error) => self.fail(error.into()),
        }
    }

    fn heartbeat(&mut self) -> Option<CallStreamMessage> {
        self.next_heartbeat = Instant::now() + HEARTBEAT;
        let text =
            self.progress.as_ref()?.again(&self.filter, self.seen, self.run_began.elapsed())?;
        Some(CallStreamMessage { place: None, text, is_failure: false })
    }

    fn answer(&mut self, seq: Option<Seq>, outcome: Result<Value, RpcError>) -> CallStreamMessage {
        self.ended = true;
        if let Some(waiting) = self.waiting.take() {
            waiting.answered();
        }
        let outcome = outcome.map(|result| crate::server::finish_result(&self.caller, result));
        self.out(seq, message::reply(&self.spec.id, &outcome))
    }

    fn fail(&mut self, fault: RpcError) -> CallStreamMessage {
        CallStreamMessage { is_failure: true, ..self.answer(None, Err(fault)) }
    }

    fn out(&self, seq: Option<Seq>, text: String) -> CallStreamMessage {
        let place = self.number.zip(seq).map(|(call, seq)| EventPosition { call, seq });
        CallStreamMessage { place, text, is_failure: false }
    }
}

/// The place of an answer that no event of the run stands for. Nothing follows it.
pub(crate) const LAST: Seq = u32::MAX as Seq;

/// An answer that asks back, with the ticket that its continuation must show.
pub(crate) async fn input_required(
    app: &App,
    caller: &McpCaller,
    run: &Run,
    digest: &str,
    after: Seq,
) -> Result<Value, RpcError> {
    let McpConnection { tenant, principal, .. } = &*caller.connection;
    let open = keyed(&run.questions);
    let asked =
        open.iter().map(|(key, question)| ((*key).to_owned(), question.id.clone())).collect();
    let ticket = app.tenancy.issue_ticket(tenant, principal, &run.id, digest, after, asked).await?;
    let requests = open
        .into_iter()
        .map(|(key, q)| (key.to_owned(), QuestionEventData::from(q).input_request()));
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

/// The run that a request names.
pub(crate) fn parse_run(text: &str) -> Result<RunId, RpcError> {
    text.parse().map_err(|_| RpcError::params(format!("there is no run {text:?}")))
}
