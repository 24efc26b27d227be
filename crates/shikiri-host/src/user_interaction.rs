//! Shows calls to the user and answers questions: a person at a terminal, or a script's settings.

use async_trait::async_trait;
use serde_json::Value;
use shikiri_model::host::{ElicitationForm, FormAnswer, HostCall};
use shikiri_model::tool::ToolChange;

/// A change of a call to show. It is already stored.
#[derive(Clone, Debug, PartialEq)]
pub struct CallUpdate {
    /// `sent`, `progress`, `log`, `asked`, `answered`, `task`, `run`, `ended`.
    pub kind: &'static str,
    pub data: Value,
}

/// Whether a model may be asked on behalf of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SamplingConsent {
    Given,
    /// The user said no.
    Refused,
    /// There is no user to ask.
    NoUser,
}

#[async_trait]
pub trait UserInteraction: Send + Sync {
    fn show(&self, call: &HostCall, shown: &CallUpdate);

    /// Reports new or changed tools other than the called one.
    fn tell_changes(&self, server: &str, changes: &[ToolChange]) {
        let _ = (server, changes);
    }

    /// Whether a tool may be called although its definition changed. The default is no.
    async fn accepts_change(&self, server: &str, change: &ToolChange) -> bool {
        let _ = (server, change);
        false
    }

    async fn ask(&self, call: &HostCall, form: &ElicitationForm) -> FormAnswer;

    /// Asks the user to visit a page.
    async fn visit(&self, call: &HostCall, message: &str, url: &str) -> FormAnswer;

    /// Whether the configured model may answer a server's request. By default there is no user to
    /// consent.
    async fn may_ask_model(&self, call: &HostCall, model: &str, prompt: &str) -> SamplingConsent {
        let _ = (call, model, prompt);
        SamplingConsent::NoUser
    }

    /// Answers `sampling/createMessage` when no model is used: parameters in, result out.
    async fn sample(&self, call: &HostCall, params: &Value) -> Result<Value, String>;
}
