//! Answers to a server's questions on a call's stream, independent of each other. They outlive the
//! stream on which the questions came.

use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt as _, StreamExt as _};
use serde_json::{Value, json};
use shikiri_model::host::{CallEvent, CallQuestion};

use super::input_requests::InputReply;
use super::{CallFollower, RetryBackoff};

#[derive(Default)]
pub(super) struct PendingAnswers<'a> {
    steps: FuturesUnordered<BoxFuture<'a, AnswerStep>>,
    /// Keys of the questions whose answers are being sent.
    sending: Vec<String>,
}

/// A finished step of an answer.
enum AnswerStep {
    /// None if we do not support the question.
    Found {
        request: Value,
        question: CallQuestion,
        answer: Option<InputReply>,
    },
    Sent {
        key: String,
    },
    Refused,
}

impl<'a> PendingAnswers<'a> {
    /// Starts answering questions that were asked before.
    pub(super) fn resume(follower: &'a CallFollower<'_>, questions: Vec<CallQuestion>) -> Self {
        let mut answers = Self::default();
        for question in questions {
            answers.find(follower, request_id(&question.key), question);
        }
        answers
    }

    pub(super) fn len(&self) -> usize {
        self.steps.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    pub(super) fn find(
        &mut self,
        follower: &'a CallFollower<'_>,
        request: Value,
        question: CallQuestion,
    ) {
        let find = async move {
            let answer = follower.answer_question(&question).await;
            AnswerStep::Found { request, question, answer }
        };
        self.steps.push(find.boxed());
    }

    /// Refuses a request over the limit.
    pub(super) fn refuse(&mut self, follower: &'a CallFollower<'_>, request: Value) {
        let refuse = async move {
            let too_much = "too many questions at once, or too long a one";
            let _ = follower.server.fail(&request, too_much).await;
            AnswerStep::Refused
        };
        self.steps.push(refuse.boxed());
    }

    /// The event of the next answer that arrived at the server. None if no answers are left.
    pub(super) async fn next(&mut self, follower: &'a CallFollower<'_>) -> Option<CallEvent> {
        loop {
            match self.steps.next().await? {
                AnswerStep::Found { request, question, answer } => {
                    self.sending.push(question.key.clone());
                    self.steps.push(follower.send_answer(request, question, answer).boxed());
                }
                AnswerStep::Sent { key } => {
                    self.sending.retain(|sending| *sending != key);
                    return Some(CallEvent::Answered { key });
                }
                AnswerStep::Refused => {}
            }
        }
    }

    /// Events for the answers being sent: the server may have them without having acknowledged
    /// them.
    pub(super) fn in_flight(&self) -> impl Iterator<Item = CallEvent> {
        self.sending.iter().map(|key| CallEvent::Answered { key: key.clone() })
    }
}

impl CallFollower<'_> {
    /// Sends the answer to a request of the server.
    async fn send_answer(
        &self,
        request: Value,
        question: CallQuestion,
        answer: Option<InputReply>,
    ) -> AnswerStep {
        let mut pauses = RetryBackoff::new();
        loop {
            let sent = match answer.clone() {
                Some(answer) => self.server.answer(&request, answer).await,
                None => self.server.decline(&request, &question.method).await,
            };
            match sent {
                // The server waits for the answer, which only this process can send.
                Err(error) if error.is_transient() && self.server.can_reconnect() => {
                    tracing::debug!(%error, "an answer did not get through");
                    pauses.pause(&self.stop).await;
                }
                Err(error) => {
                    // It was answered elsewhere or has expired: the stream shows what follows.
                    tracing::debug!(%error, "an answer was not taken");
                    return AnswerStep::Sent { key: question.key };
                }
                Ok(()) => return AnswerStep::Sent { key: question.key },
            }
        }
    }
}

/// A request's id as the key of its question. A text is kept as it is, unless it looks like a
/// number or a quoted text: the answer must be sent under exactly the same id.
pub(super) fn question_key(request: &Value) -> String {
    match request {
        Value::String(text) if *request == request_id(text) => text.clone(),
        other => other.to_string(),
    }
}

fn request_id(key: &str) -> Value {
    match serde_json::from_str(key) {
        Ok(id @ (Value::Number(_) | Value::String(_))) => id,
        _ => json!(key),
    }
}
