//! Questions of a server in the middle of a call, to the user or to a model.

use futures_util::future::join_all;
use serde_json::{Map, Value, json};
use shikiri_model::host::{
    CallEvent, CallQuestion, ElicitationForm, FormAnswer, InputRound, ResumeMethod,
};

use super::{CallFollower, FollowError, FollowStep};
use crate::error::ClientError;
use crate::rpc_messages::{INVALID_PARAMS, INVALID_REQUEST};

/// The number of inputs that one result may ask for.
const MAX_INPUTS: usize = 16;
/// The largest request state. It is stored with the call, so it is bounded.
const MAX_STATE: usize = 1024 * 1024;

pub(super) type InputReply = Result<Value, (i64, String)>;

impl CallFollower<'_> {
    /// Has a question answered. None if we do not support it.
    pub(super) async fn answer_question(&self, question: &CallQuestion) -> Option<InputReply> {
        match question.method.as_str() {
            "ping" => Some(Ok(json!({}))),
            "elicitation/create" if self.server.offers_elicitation() => {
                Some(self.elicit(&question.params).await)
            }
            "sampling/createMessage" if self.server.offers_sampling() => {
                let said = self.handler.sample(&question.params).await;
                Some(said.map_err(|reason| (INVALID_REQUEST, reason)))
            }
            _ => None,
        }
    }

    async fn elicit(&self, params: &Value) -> InputReply {
        let message = params.get("message").and_then(Value::as_str).unwrap_or_default();
        if params.get("mode").and_then(Value::as_str) == Some("url") {
            let url = params.get("url").and_then(Value::as_str).unwrap_or_default();
            if !url.starts_with("https://") && !url.starts_with("http://") {
                return Err((INVALID_PARAMS, "only pages of the web can be visited".to_owned()));
            }
            return Ok(self.handler.visit(message, url).await.to_result());
        }
        let schema = params.get("requestedSchema").unwrap_or(&Value::Null);
        match ElicitationForm::parse(message, schema) {
            Ok(form) => Ok(self.handler.ask(&form).await.to_result()),
            Err(error) => Err((INVALID_PARAMS, error.to_string())),
        }
    }

    /// Answers everything that a result asks for, and returns the next round.
    pub(super) async fn next_round(
        &self,
        result: &Map<String, Value>,
        before: &InputRound,
    ) -> Result<FollowStep, FollowError> {
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
            return Ok(FollowStep::Over(shikiri_model::host::CallOutcome::Cancelled));
        }
        let round = InputRound { state, responses };
        // In one commit: an input that is answered but not sent would be asked again.
        let mut events = answered(&round.responses);
        events.push(CallEvent::Round(round.clone()));
        self.record_events(events).await?;
        Ok(FollowStep::Continue(ResumeMethod::Send(Some(round))))
    }

    /// The answers to a map of requests, by their keys. A request that cannot be answered is
    /// declined. The caller records that they are answered when it sends them.
    pub(super) async fn answer_inputs(
        &self,
        requests: &Map<String, Value>,
    ) -> Result<Map<String, Value>, FollowError> {
        if requests.len() > MAX_INPUTS {
            let said = format!("it asks {} things at once", requests.len());
            return Err(ClientError::Garbled(said).into());
        }
        let questions: Vec<_> = requests
            .iter()
            .map(|(key, request)| CallQuestion {
                key: key.clone(),
                method: request["method"].as_str().unwrap_or_default().to_owned(),
                params: request.get("params").cloned().unwrap_or(Value::Null),
            })
            .collect();
        self.record_events(questions.iter().cloned().map(CallEvent::Asked).collect()).await?;
        let answering = join_all(questions.iter().map(|question| self.answer_question(question)));
        let answers = tokio::select! {
            answers = answering => answers,
            () = self.stop.cancelled() => return Ok(Map::new()),
        };
        let mut responses = Map::new();
        for (question, answer) in questions.iter().zip(answers) {
            let response = match answer {
                Some(Ok(response)) => response,
                // An error cannot be expressed here, so the request is declined.
                _ => FormAnswer::Decline(Map::new()).to_result(),
            };
            responses.insert(question.key.clone(), response);
        }
        Ok(responses)
    }
}

pub(super) fn answered(responses: &Map<String, Value>) -> Vec<CallEvent> {
    responses.keys().map(|key| CallEvent::Answered { key: key.clone() }).collect()
}
