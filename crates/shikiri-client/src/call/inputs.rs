//! What a server asks in the middle of a call: a person, a model, or where we work.

use futures_util::future::join_all;
use serde_json::{Map, Value, json};
use shikiri_model::host::{Answer, Form, News, Question, Round, Way};

use super::{Following, Next, Stop};
use crate::error::ClientError;
use crate::wire::{INVALID_PARAMS, INVALID_REQUEST};

/// What a result may ask for at once.
const MAX_INPUTS: usize = 16;
/// The server's own memory is kept with the call, so it has a bound.
const MAX_STATE: usize = 1024 * 1024;

pub(super) type Answered = Result<Value, (i64, String)>;

impl Following<'_> {
    /// The answer to a question, by whoever can give it. None if we offer nothing of the kind.
    pub(super) async fn answer_to(&self, question: &Question) -> Option<Answered> {
        match question.method.as_str() {
            "ping" => Some(Ok(json!({}))),
            "elicitation/create" if self.server.offers_people() => {
                Some(self.elicit(&question.params).await)
            }
            "sampling/createMessage" if self.server.offers_models() => {
                let said = self.witness.sample(&question.params).await;
                Some(said.map_err(|reason| (INVALID_REQUEST, reason)))
            }
            _ => None,
        }
    }

    async fn elicit(&self, params: &Value) -> Answered {
        let message = params.get("message").and_then(Value::as_str).unwrap_or_default();
        if params.get("mode").and_then(Value::as_str) == Some("url") {
            let url = params.get("url").and_then(Value::as_str).unwrap_or_default();
            if !url.starts_with("https://") && !url.starts_with("http://") {
                return Err((INVALID_PARAMS, "only pages of the web can be visited".to_owned()));
            }
            return Ok(self.witness.visit(message, url).await.to_result());
        }
        let schema = params.get("requestedSchema").unwrap_or(&Value::Null);
        match Form::parse(message, schema) {
            Ok(form) => Ok(self.witness.ask(&form).await.to_result()),
            Err(error) => Err((INVALID_PARAMS, error.to_string())),
        }
    }

    /// Answers everything that a result asks for, and leads to the next round.
    pub(super) async fn next_round(
        &self,
        result: &Map<String, Value>,
        before: &Round,
    ) -> Result<Next, Stop> {
        let state = result.get("requestState").and_then(Value::as_str).map(str::to_owned);
        let requests = result.get("inputRequests").and_then(Value::as_object);
        let empty = Map::new();
        let requests = requests.unwrap_or(&empty);
        if requests.is_empty() && state == before.state && state.is_none() {
            let said = "it asks for input without saying which";
            return Err(ClientError::Garbled(said.to_owned()).into());
        }
        if state.as_ref().is_some_and(|state| state.len() > MAX_STATE) {
            let said = "its requestState is larger than 1 MiB";
            return Err(ClientError::Garbled(said.to_owned()).into());
        }
        let responses = self.answer_inputs(requests).await?;
        if self.is_cancelled() {
            return Ok(Next::Over(shikiri_model::host::Outcome::Cancelled));
        }
        let round = Round { state, responses };
        // In one go: what is answered and not sent would be asked again.
        let mut news = answered(&round.responses);
        news.push(News::Round(round.clone()));
        self.note(news).await?;
        Ok(Next::Way(Way::Send(Some(round))))
    }

    /// The answers to a map of requests, by their keys. What cannot be answered is declined. That
    /// they are answered is noted by whoever sends them.
    pub(super) async fn answer_inputs(
        &self,
        requests: &Map<String, Value>,
    ) -> Result<Map<String, Value>, Stop> {
        if requests.len() > MAX_INPUTS {
            let said = format!("it asks {} things at once", requests.len());
            return Err(ClientError::Garbled(said).into());
        }
        let questions: Vec<_> = requests
            .iter()
            .map(|(key, request)| Question {
                key: key.clone(),
                method: request["method"].as_str().unwrap_or_default().to_owned(),
                params: request.get("params").cloned().unwrap_or(Value::Null),
            })
            .collect();
        self.note(questions.iter().cloned().map(News::Asked).collect()).await?;
        let answering = join_all(questions.iter().map(|question| self.answer_to(question)));
        let answers = tokio::select! {
            answers = answering => answers,
            () = self.stop.cancelled() => return Ok(Map::new()),
        };
        let mut responses = Map::new();
        for (question, answer) in questions.iter().zip(answers) {
            let response = match answer {
                Some(Ok(response)) => response,
                // There is no form for an error here: not answered is not agreed.
                _ => Answer::Decline(Map::new()).to_result(),
            };
            responses.insert(question.key.clone(), response);
        }
        Ok(responses)
    }
}

pub(super) fn answered(responses: &Map<String, Value>) -> Vec<News> {
    responses.keys().map(|key| News::Answered { key: key.clone() }).collect()
}
