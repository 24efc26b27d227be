//! A run's questions in the protocol's words, and the answers to them.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value, json};
use shikiri_model::ids::{QuestionId, RunId};
use shikiri_model::run::{AnswerAction, QuestionAnswer, QuestionKind, RunQuestion};

/// A question as it stands in the run's stream.
#[derive(Deserialize)]
pub(crate) struct QuestionEventData {
    pub(crate) question_id: QuestionId,
    pub(crate) name: Option<String>,
    pub(crate) kind: QuestionKind,
    #[serde(default)]
    pub(crate) message: String,
    #[serde(default)]
    pub(crate) schema: Value,
}

impl From<&RunQuestion> for QuestionEventData {
    fn from(question: &RunQuestion) -> Self {
        Self {
            question_id: question.id.clone(),
            name: question.name.clone(),
            kind: question.kind,
            message: question.message.clone(),
            schema: question.schema.clone(),
        }
    }
}

impl QuestionEventData {
    pub(crate) fn method(&self) -> &'static str {
        match self.kind {
            QuestionKind::Human => "elicitation/create",
            QuestionKind::Model => "sampling/createMessage",
            QuestionKind::Roots => "roots/list",
        }
    }

    pub(crate) fn params(&self) -> Value {
        match self.kind {
            QuestionKind::Human => {
                json!({ "mode": "form", "message": self.message, "requestedSchema": self.schema })
            }
            QuestionKind::Model => {
                let mut params = Map::new();
                for (ours, theirs) in [
                    ("messages", "messages"),
                    ("max_tokens", "maxTokens"),
                    ("system_prompt", "systemPrompt"),
                    ("temperature", "temperature"),
                ] {
                    if let Some(value) = self.schema.get(ours).filter(|value| !value.is_null()) {
                        params.insert(theirs.to_owned(), value.clone());
                    }
                }
                Value::Object(params)
            }
            QuestionKind::Roots => json!({}),
        }
    }

    /// As part of an answer that asks back.
    pub(crate) fn input_request(&self) -> Value {
        json!({ "method": self.method(), "params": self.params() })
    }
}

/// The id of the server's request: it names run and question, so that any node can take the
/// answer and a late one never answers something else.
pub(crate) fn request_id(run: &RunId, question: &QuestionId) -> String {
    format!("{question}.{run}")
}

pub(crate) fn parse_request_id(id: &str) -> Option<(RunId, QuestionId)> {
    let (question, run) = id.split_once('.')?;
    let is_ours = question.starts_with(QuestionId::PREFIX) && run.starts_with(RunId::PREFIX);
    is_ours.then(|| Some((run.parse().ok()?, question.parse().ok()?))).flatten()
}

/// Open questions by the keys under which a caller answers them: the agent's own names, where
/// those tell them apart.
pub(crate) fn keyed(open: &[RunQuestion]) -> BTreeMap<&str, &RunQuestion> {
    let is_alone =
        |name: &&str| open.iter().filter(|q| q.name.as_deref() == Some(name)).count() == 1;
    let keys = open.iter().map(|q| q.name.as_deref().filter(is_alone).unwrap_or(q.id.as_str()));
    keys.zip(open).collect()
}

/// The answer in a client's result or error. Anything but a clear answer is a no.
pub(crate) fn answer_of(kind: QuestionKind, outcome: &Result<Value, Value>) -> QuestionAnswer {
    let result = match outcome {
        Ok(result) => result,
        Err(error) => {
            let message = error["message"].as_str().unwrap_or("no reason given");
            return refusal(AnswerAction::Cancel, format!("the client failed: {message}"));
        }
    };
    clear_answer(kind, result).unwrap_or_else(|| {
        let missing = match kind {
            QuestionKind::Human => "action",
            QuestionKind::Model => "content",
            QuestionKind::Roots => "roots",
        };
        refusal(AnswerAction::Cancel, format!("the client's answer has no {missing}"))
    })
}

/// None if a result is not of the form that answers such a question.
pub(crate) fn clear_answer(kind: QuestionKind, result: &Value) -> Option<QuestionAnswer> {
    match (kind, result["action"].as_str()) {
        (QuestionKind::Human, Some("accept")) => {
            Some(QuestionAnswer::accept(result["content"].clone()))
        }
        (QuestionKind::Human, Some("decline")) => {
            Some(QuestionAnswer::new(AnswerAction::Decline, result["content"].clone()))
        }
        (QuestionKind::Human, Some("cancel")) => {
            Some(QuestionAnswer::new(AnswerAction::Cancel, Value::Null))
        }
        (QuestionKind::Human, _) => None,
        (QuestionKind::Model, _) => {
            result.get("content").is_some().then(|| QuestionAnswer::accept(result.clone()))
        }
        (QuestionKind::Roots, _) => {
            result["roots"].is_array().then(|| QuestionAnswer::accept(result.clone()))
        }
    }
}

/// How a person is asked all the same.
const OTHER_WAY: &str = "start the agent with run_agent, and let a person answer with `shikiri runs \
    answer`, over REST, or in a client that can be asked";

/// For a client that cannot be asked at all.
pub(crate) fn unsupported(kind: QuestionKind) -> QuestionAnswer {
    let reason = format!("the calling client does not support {}", capability(kind));
    let reason = match kind {
        QuestionKind::Human => format!("{reason}: {OTHER_WAY}"),
        QuestionKind::Model | QuestionKind::Roots => reason,
    };
    refusal(AnswerAction::Cancel, reason)
}

/// What a client declares that can be asked.
pub(crate) fn capability(kind: QuestionKind) -> &'static str {
    match kind {
        QuestionKind::Human => "elicitation",
        QuestionKind::Model => "sampling",
        QuestionKind::Roots => "roots",
    }
}

pub(crate) fn refusal(action: AnswerAction, reason: String) -> QuestionAnswer {
    QuestionAnswer { action, content: Value::Null, reason: Some(reason).filter(|r| !r.is_empty()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_clear_yes_is_a_yes() {
        let human = |result: Value| answer_of(QuestionKind::Human, &Ok(result)).action;
        assert_eq!(human(json!({ "action": "accept", "content": {} })), AnswerAction::Accept);
        assert_eq!(human(json!({ "action": "decline" })), AnswerAction::Decline);
        assert_eq!(human(json!({ "action": "cancel" })), AnswerAction::Cancel);
        for odd in [json!({}), json!(null), json!({ "action": "ACCEPT" }), json!({ "action": 1 })] {
            assert_eq!(human(odd.clone()), AnswerAction::Cancel, "{odd}");
        }
        let failed = answer_of(QuestionKind::Human, &Err(json!({ "message": "壊れた" })));
        assert_eq!(failed.action, AnswerAction::Cancel);
        assert!(failed.reason.unwrap().contains("壊れた"));
        let empty = answer_of(QuestionKind::Model, &Ok(json!({ "model": "m" })));
        assert_eq!(empty.action, AnswerAction::Cancel);
        let folders = |result| answer_of(QuestionKind::Roots, &Ok(result)).action;
        assert_eq!(folders(json!({ "roots": [] })), AnswerAction::Accept);
        assert_eq!(folders(json!({ "roots": "/" })), AnswerAction::Cancel);
    }

    #[test]
    fn questions_are_keyed_by_names_that_tell_them_apart_and_else_by_their_ids() {
        let open: Vec<RunQuestion> =
            [("q_1", Some("who")), ("q_2", Some("ok")), ("q_3", Some("ok")), ("q_4", None)]
                .map(|(id, name)| RunQuestion {
                    id: id.parse().unwrap(),
                    index: 0,
                    name: name.map(str::to_owned),
                    kind: QuestionKind::Human,
                    message: String::new(),
                    schema: Value::Null,
                    expires_at: None,
                })
                .into();
        let keys: Vec<_> = keyed(&open).into_iter().map(|(k, q)| (k, q.id.as_str())).collect();
        assert_eq!(keys, [("q_2", "q_2"), ("q_3", "q_3"), ("q_4", "q_4"), ("who", "q_1")]);
    }

    #[test]
    fn a_request_id_names_run_and_question() {
        let (run, question): (RunId, QuestionId) =
            ("run_1".parse().unwrap(), "q_2".parse().unwrap());
        let id = request_id(&run, &question);
        assert!(id.starts_with("q_"));
        assert_eq!(parse_request_id(&id), Some((run, question)));
        for other in ["", "0", "q_2", "run_1.q_2", "q_2.", "q_2.run 1", "x.y"] {
            assert_eq!(parse_request_id(other), None, "{other:?}");
        }
    }
}
