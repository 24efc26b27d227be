//! An API's operations as tools.

use async_trait::async_trait;
use serde_json::Value;
use shikiri_model::server::Transport;

use super::answer::of_reply;
use crate::execution::{Answer, Server, Tool, ToolBox};
use crate::servers::openapi::OpenApi;

pub(crate) struct ApiTools {
    api: OpenApi,
    tools: Vec<Tool>,
}

impl ApiTools {
    pub(super) async fn open(server: &Server) -> Result<Self, String> {
        let Transport::Openapi { spec, url } = &server.transport else {
            return Err("is described by no document".to_owned());
        };
        let headers = server.headers.clone();
        let api = OpenApi::open(spec, url.as_deref(), headers, server.allow_private).await?;
        let tools = api.api.operations.iter().map(|operation| Tool {
            name: operation.name.clone(),
            description: operation.description.clone(),
            input_schema: operation.input_schema.clone(),
            is_repeatable: operation.is_read(),
        });
        Ok(Self { tools: tools.collect(), api })
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
            Ok(reply) => of_reply(reply),
            Err(why) => Answer::error(why),
        }
    }
}
