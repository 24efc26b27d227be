//! Answers to what a server asks on a call's stream, each in its own time. They outlive the stream
//! on which they were asked for.

use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt as _, StreamExt as _};
use serde_json::{Value, json};
use shikiri_model::host::{News, Question};

use super::inputs::Answered;
use super::{Following, Pauses};

#[derive(Default)]
pub(super) struct Answers<'a> {
    steps: FuturesUnordered<BoxFuture<'a, Step>>,
    /// Keys of the questions whose answers are being sent.
    sending: Vec<String>,
}

/// How far one of them has come.
enum Step {
    /// None if we offer nothing of the kind.
    Found {
        request: Value,
        question: Question,
        answer: Option<Answered>,
    },
    Sent {
        key: String,
    },
    Refused,
}

impl<'a> Answers<'a> {
    /// Takes up questions that were asked before.
    pub(super) fn to(following: &'a Following<'_>, questions: Vec<Question>) -> Self {
        let mut answers = Self::default();
        for question in questions {
            answers.find(following, request_id(&question.key), question);
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
        following: &'a Following<'_>,
        request: Value,
        question: Question,
    ) {
        let find = async move {
            let answer = following.answer_to(&question).await;
            Step::Found { request, question, answer }
        };
        self.steps.push(find.boxed());
    }

    /// Tells the server that this is too much.
    pub(super) fn refuse(&mut self, following: &'a Following<'_>, request: Value) {
        let refuse = async move {
            let too_much = "too many questions at once, or too long a one";
            let _ = following.server.fail(&request, too_much).await;
            Step::Refused
        };
        self.steps.push(refuse.boxed());
    }

    /// The next one that has arrived; none if there are no more.
    pub(super) async fn next(&mut self, following: &'a Following<'_>) -> Option<News> {
        loop {
            match self.steps.next().await? {
                Step::Found { request, question, answer } => {
                    self.sending.push(question.key.clone());
                    self.steps.push(following.send_answer(request, question, answer).boxed());
                }
                Step::Sent { key } => {
                    self.sending.retain(|sending| *sending != key);
                    return Some(News::Answered { key });
                }
                Step::Refused => {}
            }
        }
    }

    /// Those that are being sent: the server may have them, although it has not yet said so.
    pub(super) fn on_their_way(&self) -> impl Iterator<Item = News> {
        self.sending.iter().map(|key| News::Answered { key: key.clone() })
    }
}

impl Following<'_> {
    /// Answers a request of the server on its own line.
    async fn send_answer(
        &self,
        request: Value,
        question: Question,
        answer: Option<Answered>,
    ) -> Step {
        let mut pauses = Pauses::new();
        loop {
            let sent = match answer.clone() {
                Some(answer) => self.server.answer(&request, answer).await,
                None => self.server.decline(&request, &question.method).await,
            };
            match sent {
                // The server waits for it, and nobody else will tell it.
                Err(error) if error.is_passing() && self.server.can_return() => {
                    tracing::debug!(%error, "an answer did not get through");
                    pauses.pause(&self.stop).await;
                }
                Err(error) => {
                    // Somebody else answered it, or its time was over: the stream shows what follows.
                    tracing::debug!(%error, "an answer was not taken");
                    return Step::Sent { key: question.key };
                }
                Ok(()) => return Step::Sent { key: question.key },
            }
        }
    }
}

/// A request's id as the key of its question. What is no number stays as it is, unless it looks like
/// one: the answer must go back under the very same id.
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
