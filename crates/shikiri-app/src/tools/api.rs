//! An API's operations as tools.

use async_trait::async_trait;
use serde_json::Value;
use shikiri_model::server::Transport;
use shikiri_model::tool::{Definition, ToolDefinition};

use super::answer::{of_reply, of_stranger};
use crate::execution::{Answer, Server, Tool, ToolBox};
use crate::servers::openapi::OpenApi;

pub(crate) struct ApiTools {
    api: OpenApi,
    tools: Vec<Tool>,
    definitions: Vec<ToolDefinition>,
}

impl ApiTools {
    pub(super) async fn open(server: &Server) -> Result<Self, String> {
        let Transport::Openapi { spec, url } = &server.transport else {
            return Err("is described by no document".to_owned());
        };
        let headers = server.headers.clone();
        let api = OpenApi::open(spec, url.as_deref(), headers, server.allow_private).await?;
        let definitions = definitions(&api);
        let tools = definitions.iter().filter_map(|definition| {
            let operations = &api.api.operations;
            let operation = operations.iter().find(|it| it.name == definition.name)?;
            Some(Tool {
                name: definition.name.clone(),
                description: definition.shown.description.clone(),
                input_schema: definition.shown.input_schema.clone(),
                is_repeatable: operation.is_read(),
            })
        });
        Ok(Self { tools: tools.collect(), definitions, api })
    }

    /// What its document says of each.
    pub(super) fn definitions(&self) -> &[ToolDefinition] {
        &self.definitions
    }

    /// Whether anything is at its address that may be called.
    pub(super) async fn is_in_reach(&self) -> Result<(), String> {
        self.api.is_in_reach().await
    }
}

#[async_trait]
impl ToolBox for ApiTools {
    fn tools(&self) -> &[Tool] {
        &self.tools
    }

    async fn call(&self, name: &str, input: &Value) -> Answer {
        let found = self.api.api.operations.iter().find(|operation| operation.name == name);
        let Some(operation) = found else {
            return Answer::error(format!("there is no tool {name}"));
        };
        match self.api.call(operation, input).await {
            Ok(reply) => of_stranger(of_reply(reply)),
            Err(why) => Answer::error(why),
        }
    }
}

/// What a document says of its operations. One that holds what cannot be seen, where it cannot be
/// taken out, is left out.
pub(crate) fn definitions(api: &OpenApi) -> Vec<ToolDefinition> {
    let definition = |operation: &shikiri_openapi::Operation| {
        let said = Definition {
            title: None,
            description: operation.description.clone(),
            input_schema: operation.input_schema.clone(),
            annotations: Value::Null,
        };
        let read = ToolDefinition::new(&operation.name, said);
        read.inspect_err(|why| tracing::warn!("an operation of an API: {why}")).ok()
    };
    api.api.operations.iter().filter_map(definition).collect()
}
