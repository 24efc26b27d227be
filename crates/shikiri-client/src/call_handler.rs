//! The caller's side of a call: stores its events, and answers the server's questions.

use async_trait::async_trait;
use serde_json::Value;
use shikiri_model::host::{CallEvent, ElicitationForm, FormAnswer};

/// This process may no longer follow the call: another process has taken it over, or its events
/// cannot be stored.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct CallOwnershipLost(pub String);

#[async_trait]
pub trait CallHandler: Send + Sync {
    /// Stores the events in this order, all or none. The call continues only after that.
    async fn record_events(&self, events: Vec<CallEvent>) -> Result<(), CallOwnershipLost>;

    /// Asks the user to fill in a form.
    async fn ask(&self, form: &ElicitationForm) -> FormAnswer;

    /// Asks the user to visit a page. The answer says whether they agreed.
    async fn visit(&self, message: &str, url: &str) -> FormAnswer;

    /// Answers `sampling/createMessage` with a model: parameters in, result out.
    async fn sample(&self, params: &Value) -> Result<Value, String>;
}
