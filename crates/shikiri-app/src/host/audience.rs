//! Who watches calls and answers for them: a person at a terminal, or a script's settings.

use async_trait::async_trait;
use serde_json::Value;
use shikiri_model::host::{Answer, Form, HostCall};
use shikiri_model::tool::ToolChange;

/// What there is to show of a call, kept already.
#[derive(Clone, Debug, PartialEq)]
pub struct Shown {
    /// `sent`, `progress`, `log`, `asked`, `answered`, `task`, `run`, `ended`.
    pub kind: &'static str,
    pub data: Value,
}

/// Whether a model may be asked on behalf of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Consent {
    Given,
    /// A person said no.
    Refused,
    /// Nobody is there who could say so.
    Nobody,
}

#[async_trait]
pub trait Audience: Send + Sync {
    fn show(&self, call: &HostCall, shown: &Shown);

    /// Tools that are new or changed, and not the one that is called.
    fn tell_changes(&self, server: &str, changes: &[ToolChange]) {
        let _ = (server, changes);
    }

    /// Whether a tool may be called though the server says something else of it than before. An
    /// audience that does not say so has agreed to nothing.
    async fn accepts_change(&self, server: &str, change: &ToolChange) -> bool {
        let _ = (server, change);
        false
    }

    async fn ask(&self, call: &HostCall, form: &Form) -> Answer;

    /// Whether the person agreed to visit a page.
    async fn visit(&self, call: &HostCall, message: &str, url: &str) -> Answer;

    /// Whether the configured model may be asked what a server wants to know. An audience that
    /// does not say so has agreed to nothing.
    async fn may_ask_model(&self, call: &HostCall, model: &str, prompt: &str) -> Consent {
        let _ = (call, model, prompt);
        Consent::Nobody
    }

    /// The parameters and the result of `sampling/createMessage`, where no model is asked.
    async fn sample(&self, call: &HostCall, params: &Value) -> Result<Value, String>;
}
