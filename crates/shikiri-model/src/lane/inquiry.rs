//! A question that was put to a provider, from its beginning to its end: what history is made of.
//!
//! It is written three times: when it begins, right before it is sent, and when there is an answer
//! or none. Whoever finds one that was begun and not ended knows from it whether the provider may
//! have it, so nothing is ever sent twice.

use serde::{Deserialize, Serialize};

use super::{Identity, Lane};
use crate::ids::{InquiryId, LaneId, RunId, TenantId};
use crate::record::{Columns, Document};
use crate::time::Timestamp;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Inquiry {
    pub id: InquiryId,
    pub tenant: TenantId,
    pub lane: LaneId,
    /// What the lane was called then.
    pub lane_name: String,
    pub agent: String,
    pub instance: String,
    #[serde(default)]
    pub subagent: Option<String>,
    /// An agent's session, or else Claude Code's, or else the connection.
    #[serde(default)]
    pub session: Option<String>,
    /// The run that asked.
    pub execution: RunId,
    /// The folder's name, for whoever reads histories of several.
    #[serde(default)]
    pub project: String,
    pub provider: String,
    pub question: String,
    pub state: InquiryState,
    pub sent: Sent,
    #[serde(default)]
    pub answer: Option<String>,
    /// Where the chat is.
    #[serde(default)]
    pub url: Option<String>,
    #[serde(default)]
    pub error: Option<InquiryError>,
    #[serde(default)]
    pub timings: Timings,
    pub asked_at: Timestamp,
    #[serde(default)]
    pub ended_at: Option<Timestamp>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InquiryState {
    Asking,
    Answered,
    Failed,
}

/// Whether the provider has the question. Only `No` may be asked again without a second thought.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Sent {
    No,
    Yes,
    /// It was about to be, and nobody saw whether it was.
    Unknown,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InquiryError {
    pub code: String,
    pub message: String,
}

/// How long each part took, in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timings {
    pub connect_ms: u64,
    pub wait_input_ms: u64,
    pub input_ms: u64,
    pub send_ms: u64,
    pub wait_response_ms: u64,
    pub total_ms: u64,
}

impl Sent {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::No => "no",
            Self::Yes => "yes",
            Self::Unknown => "unknown",
        }
    }
}

impl InquiryState {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Asking => "asking",
            Self::Answered => "answered",
            Self::Failed => "failed",
        }
    }
}

impl Inquiry {
    /// One run asks a provider once: however often it is carried, it finds the same.
    pub fn id_of(run: &RunId, provider: &str) -> Option<InquiryId> {
        let run = run.as_str();
        let bare = run.strip_prefix(RunId::PREFIX).unwrap_or(run);
        format!("{}{bare}-{provider}", InquiryId::PREFIX).parse().ok()
    }

    pub fn begin(
        id: InquiryId,
        lane: &Lane,
        who: &Identity,
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
            state: InquiryState::Asking,
            sent: Sent::No,
            answer: None,
            url: lane.url(provider).map(str::to_owned),
            error: None,
            timings: Timings::default(),
            asked_at: now,
            ended_at: None,
        }
    }

    pub fn is_over(&self) -> bool {
        self.state != InquiryState::Asking
    }

    pub fn answered(&mut self, answer: String, url: Option<&str>, timings: Timings, at: Timestamp) {
        (self.state, self.sent) = (InquiryState::Answered, Sent::Yes);
        (self.answer, self.timings) = (Some(answer), timings);
        self.stand(url, at);
    }

    pub fn failed(&mut self, error: InquiryError, sent: Sent, url: Option<&str>, at: Timestamp) {
        (self.state, self.error) = (InquiryState::Failed, Some(error));
        self.sent = sent;
        self.stand(url, at);
    }

    fn stand(&mut self, url: Option<&str>, at: Timestamp) {
        if let Some(url) = url.filter(|url| super::is_conversation(url)) {
            self.url = Some(url.to_owned());
        }
        self.ended_at = Some(at);
    }
}

impl Document for Inquiry {
    const KIND: &'static str = "inquiry";

    fn tenant(&self) -> TenantId {
        self.tenant.clone()
    }

    fn id(&self) -> &str {
        self.id.as_str()
    }

    fn columns(&self) -> Columns {
        Columns {
            state: self.state.as_str().to_owned(),
            parent: Some(self.agent.clone()),
            owner: Some(self.provider.clone()),
            ..Columns::default()
        }
    }
}
