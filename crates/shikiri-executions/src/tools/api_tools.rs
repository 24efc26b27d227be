//! An API's operations as tools.

use async_trait::async_trait;
use serde_json::Value;
use shikiri_model::server::McpServerTransport;
use shikiri_model::tool::{ToolDefinition, ToolDescription};

use super::tool_results::{from_api_reply, strip_invisible_text};
use crate::execution::{ResolvedServer, ToolBox, ToolCallResult, ToolSpec};
use crate::servers::openapi_client::OpenApiClient;

pub(crate) struct ApiTools {
    api: OpenApiClient,
    tools: Vec<ToolSpec>,
    definitions: Vec<ToolDefinition>,
}

impl ApiTools {
    pub(super) async fn open(server: &ResolvedServer) -> Result<Self, String> {
        let McpServerTransport::Openapi { spec, url } = &server.transport else {
            return Err("is described by no document".to_owned());
        };
        let headers = server.headers.clone();
        let api = OpenApiClient::open(spec, url.as_deref(), headers, server.allow_private).await?;
        let definitions = definitions(&api);
        let tools = definitions.iter().filter_map(|definition| {
            let operations = &api.api.operations;
            let operation = operations.iter().find(|it| it.name == definition.name)?;
            Some(ToolSpec {
                name: definition.name.clone(),
                description: definition.shown.description.clone(),
                input_schema: definition.shown.input_schema.clone(),
                is_repeatable: operation.is_read(),
            })
        });
        Ok(Self { tools: tools.collect(), definitions, api })
    }

    /// The definition of each tool, from the document.
    pub(super) fn definitions(&self) -> &[ToolDefinition] {
        &self.definitions
    }

    /// Checks that its address may be called.
    pub(super) async fn is_in_reach(&self) -> Result<(), String> {
        self.api.is_in_reach().await
    }
}

#[async_trait]
impl ToolBox for ApiTools {
    fn tools(&self) -> &[ToolSpec] {
        &self.tools
    }

    async fn call(&self, name: &str, input: &Value) -> ToolCallResult {
        let found = self.api.api.operations.iter().find(|operation| operation.name == name);
        let Some(operation) = found else {
            return ToolCallResult::error(format!("there is no tool {name}"));
        };
        match self.api.call(operation, input).await {
            Ok(reply) => strip_invisible_text(from_api_reply(reply)),
            Err(why) => ToolCallResult::error(why),
        }
    }
}

/// The definitions of a document's operations. An operation with invisible characters that cannot
/// be removed is left out.
pub(crate) fn definitions(api: &OpenApiClient) -> Vec<ToolDefinition> {
    let definition = |operation: &shikiri_openapi::ApiOperation| {
        let said = ToolDescription {
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
