//! How the suite's tools are written down: a plain one is a function of its arguments, a lively
//! one is an agent, whose calls are runs like all others.

use std::sync::Arc;

use async_trait::async_trait;
use futures_util::future::BoxFuture;
use serde_json::{Value, json};
use shikiri_mcp::model::{JsonObject, Tool};
use shikiri_mcp::{BuiltinTool, McpCaller, RpcError};
use shikiri_model::run::{QuestionKind, fill_form_defaults};
use shikiri_runtime::run::{AgentError, CallerWaitPolicy, DurableAgent, RunContext};

/// A tool that answers at once.
pub(super) struct Plain {
    pub(super) name: &'static str,
    pub(super) description: &'static str,
    pub(super) input: Value,
    pub(super) answer: Box<dyn Fn(&JsonObject) -> Value + Send + Sync>,
}

#[async_trait]
impl BuiltinTool for Plain {
    fn definition(&self) -> Tool {
        let Value::Object(input) = self.input.clone() else {
            panic!("{} is no schema", self.input)
        };
        Tool::new(self.name, self.description, Arc::new(input))
    }

    async fn call(&self, _: &McpCaller, arguments: &JsonObject) -> Result<Value, RpcError> {
        Ok((self.answer)(arguments))
    }
}

type Work = fn(RunContext, Value) -> BoxFuture<'static, Result<Value, AgentError>>;

/// A tool that is an agent.
pub(super) struct Lively {
    pub(super) name: &'static str,
    pub(super) description: &'static str,
    pub(super) input: Value,
    pub(super) attendance: CallerWaitPolicy,
    pub(super) insists_on: &'static [QuestionKind],
    pub(super) work: Work,
}

impl Lively {
    pub(super) fn new(name: &'static str, description: &'static str, work: Work) -> Self {
        Self {
            name,
            description,
            input: no_arguments(),
            attendance: CallerWaitPolicy::MayLeave,
            insists_on: &[],
            work,
        }
    }
}

#[async_trait]
impl DurableAgent for Lively {
    fn name(&self) -> &'static str {
        self.name
    }

    fn description(&self) -> &'static str {
        self.description
    }

    fn input_schema(&self) -> Value {
        self.input.clone()
    }

    fn caller_wait_policy(&self) -> CallerWaitPolicy {
        self.attendance
    }

    fn required_questions(&self) -> &'static [QuestionKind] {
        self.insists_on
    }

    fn check(&self, input: &Value) -> Result<(), String> {
        fill_form_defaults(&self.input, input).map(drop)
    }

    async fn run(&self, context: RunContext, input: Value) -> Result<Value, AgentError> {
        (self.work)(context, input).await
    }
}

pub(super) fn no_arguments() -> Value {
    json!({ "type": "object", "properties": {} })
}

/// The schema of an object of which everything is required.
pub(super) fn object(properties: Value) -> Value {
    let names: Vec<_> = properties.as_object().unwrap().keys().cloned().collect();
    json!({ "type": "object", "properties": properties, "required": names })
}

pub(super) fn text(text: impl Into<String>) -> Value {
    json!({ "type": "text", "text": text.into() })
}
