//! Who makes a call: keeps what happens, and answers what the server asks.

use async_trait::async_trait;
use serde_json::Value;
use shikiri_model::host::{Answer, Form, News};

/// That the call is no longer ours to follow: it was taken up by another process, or what happens
/// cannot be kept.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct LetGo(pub String);

#[async_trait]
pub trait Witness: Send + Sync {
    /// Keeps what happened, in this order, all of it or nothing. Only then does the call go on.
    async fn note(&self, news: Vec<News>) -> Result<(), LetGo>;

    /// Puts a form before a person.
    async fn ask(&self, form: &Form) -> Answer;

    /// Sends a person to a page. Whether they agreed to go.
    async fn visit(&self, message: &str, url: &str) -> Answer;

    /// Has a model say something: the parameters and the result of `sampling/createMessage`.
    async fn sample(&self, params: &Value) -> Result<Value, String>;
}
