//! A question to a provider, from its start to its end. The history consists of these records.
//!
//! The record is written three times: at the start, right before the question is sent, and at the
//! end. A process that finds an unfinished record can tell whether the provider may have the
//! question, so no question is sent twice.

use serde::{Deserialize, Serialize};

use super::{CallerIdentity, Lane};
use crate::ids::{InquiryId, LaneId, RunId, TenantId};
use crate::macros::{document, text_enum};
use crate::record::RecordColumns;
use crate::time::Timestamp;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProviderQuestion {
    pub id: InquiryId,
    pub tenant: TenantId,
    pub lane: LaneId,
    /// The name of the lane at that time.
    pub lane_name: String,
    pub agent: String,
    pub instance: String,
    #[serde(default)]
    pub subagent: Option<String>,
    /// The agent's session, else Claude Code's session, else the connection.
    #[serde(default)]
    pub session: Option<String>,
    /// The run that asked.
    pub execution: RunId,
    /// The project folder's name, for histories of several projects.
    #[serde(default)]
    pub project: String,
    pub provider: String,
    pub question: String,
    pub state: ProviderQuestionState,
    pub sent: SendStatus,
    #[serde(default)]
    pub answer: Option<String>,
    /// The address of the chat.
    #[serde(default)]
    pub url: Option<String>,
    #[serde(default)]
    pub error: Option<ProviderQuestionError>,
    #[serde(default)]
    pub timings: AskTimings,
    pub asked_at: Timestamp,
    #[serde(default)]
    pub ended_at: Option<Timestamp>,
}

text_enum! {
    pub enum ProviderQuestionState {
        Asking = "asking",
        Answered = "answered",
        Failed = "failed",
    }
}

text_enum! {
    /// Whether the provider has the question. Only after `No` is it safe to ask again.
    pub enum SendStatus {
        No = "no",
        Yes = "yes",
        /// It was about to be sent, and the outcome is unknown.
        Unknown = "unknown",
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProviderQuestionError {
    pub code: String,
    pub message: String,
}

/// Durations of the steps, in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AskTimings {
    pub connect_ms: u64,
    pub wait_input_ms: u64,
    pub input_ms: u64,
    pub send_ms: u64,
    pub wait_response_ms: u64,
    pub total_ms: u64,
}

impl ProviderQuestion {
    /// The id for a run and provider: one run asks a provider once, however often the run is
    /// executed.
    pub fn id_of(run: &RunId, provider: &str) -> Option<InquiryId> {
        let run = run.as_str();
        let bare = run.strip_prefix(RunId::PREFIX).unwrap_or(run);
        format!("{}{bare}-{provider}", InquiryId::PREFIX).parse().ok()
    }

    pub fn begin(
        id: InquiryId,
        lane: &Lane,
        who: &CallerIdentity,
        execution: &RunId,
        provider: &str,
        question: &str,
        now: Timestamp,
    ) -> Self {
        Self {
            id,
            tenant: lane.tenant.clone(),
            lane: lane.id.clone(),
            lane_name: lane.name.clone(),
            agent: who.agent.clone(),
            instance: who.instance.clone(),
            subagent: who.subagent.clone(),
            session: None,
            execution: execution.clone(),
            project: String::new(),
            provider: provider.to_owned(),
            question: question.to_owned(),
            state: ProviderQuestionState::Asking,
            sent: SendStatus::No,
            answer: None,
            url: lane.url(provider).map(str::to_owned),
            error: None,
            timings: AskTimings::default(),
            asked_at: now,
            ended_at: None,
        }
    }

    pub fn is_over(&self) -> bool {
        self.state != ProviderQuestionState::Asking
    }

    pub fn mark_answered(
        &mut self,
        answer: String,
        url: Option<&str>,
        timings: AskTimings,
        at: Timestamp,
    ) {
        (self.state, self.sent) = (ProviderQuestionState::Answered, SendStatus::Yes);
        (self.answer, self.timings) = (Some(answer), timings);
        self.stand(url, at);
    }

    pub fn mark_failed(
        &mut self,
        error: ProviderQuestionError,
        sent: SendStatus,
        url: Option<&str>,
        at: Timestamp,
    ) {
        (self.state, self.error) = (ProviderQuestionState::Failed, Some(error));
        self.sent = sent;
        self.stand(url, at);
    }

    fn stand(&mut self, url: Option<&str>, at: Timestamp) {
        if let Some(url) = url.filter(|url| super::is_chat_url(url)) {
            self.url = Some(url.to_owned());
        }
        self.ended_at = Some(at);
    }
}

document!(ProviderQuestion, "inquiry", tenant, id, |question| RecordColumns {
    state: question.state.as_str().to_owned(),
    parent: Some(question.agent.clone()),
    owner: Some(question.provider.clone()),
    ..RecordColumns::default()
});
