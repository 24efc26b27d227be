//! The suite's prompts; one of them is made by an agent, because it asks.

use std::sync::Arc;

use async_trait::async_trait;
use serde_json::{Value, json};
use shikiri_mcp::model::{JsonObject, Prompt, PromptArgument};
use shikiri_mcp::{McpCaller, PromptSource, RpcError};

use super::asking::CONTEXT_AGENT;
use super::content::PNG;
use super::fixture::text;

struct Fixed {
    name: &'static str,
    description: &'static str,
    /// All of them required.
    arguments: &'static [&'static str],
    /// The contents of the user's messages.
    contents: fn(&[&str]) -> Vec<Value>,
    agent: Option<&'static str>,
}

pub(super) fn prompts() -> Vec<Arc<dyn PromptSource>> {
    let fixed = |name, description, arguments, contents| Fixed {
        name,
        description,
        arguments,
        contents,
        agent: None,
    };
    let all = [
        fixed("test_simple_prompt", "Has no arguments", &[], |_| {
            vec![text("This is a simple prompt for testing.")]
        }),
        fixed("test_prompt_with_arguments", "Has two arguments", &["arg1", "arg2"], |given| {
            vec![text(format!("Prompt with arguments: arg1='{}', arg2='{}'", given[0], given[1]))]
        }),
        fixed(
            "test_prompt_with_embedded_resource",
            "Brings a resource along",
            &["resourceUri"],
            embedded,
        ),
        fixed("test_prompt_with_image", "Brings an image along", &[], |_| {
            let image = json!({ "type": "image", "data": PNG, "mimeType": "image/png" });
            vec![image, text("Please analyze the image above.")]
        }),
        Fixed {
            agent: Some(CONTEXT_AGENT),
            ..fixed("test_input_required_result_prompt", "Asks for its context", &[], |_| vec![])
        },
    ];
    all.into_iter().map(|prompt| Arc::new(prompt) as _).collect()
}

fn embedded(given: &[&str]) -> Vec<Value> {
    let resource = json!({
        "uri": given[0],
        "mimeType": "text/plain",
        "text": "Embedded resource content for testing.",
    });
    let resource = json!({ "type": "resource", "resource": resource });
    vec![resource, text("Please process the embedded resource above.")]
}

/// A prompt whose messages are the user's.
pub(super) fn of_user(contents: Vec<Value>) -> Value {
    let messages =
        contents.into_iter().map(|content| json!({ "role": "user", "content": content }));
    json!({ "messages": messages.collect::<Vec<_>>() })
}

#[async_trait]
impl PromptSource for Fixed {
    fn definition(&self) -> Prompt {
        let arguments = self.arguments.iter();
        let arguments = arguments.map(|name| PromptArgument::new(*name).with_required(true));
        Prompt::new(self.name, Some(self.description), Some(arguments.collect()))
    }

    async fn get(&self, _: &McpCaller, arguments: &JsonObject) -> Result<Value, RpcError> {
        let given = self.arguments.iter().map(|name| {
            let value = arguments.get(*name).and_then(Value::as_str);
            value.ok_or_else(|| RpcError::params(format!("{name}: is missing")))
        });
        Ok(of_user((self.contents)(&given.collect::<Result<Vec<_>, _>>()?)))
    }

    fn agent(&self) -> Option<&'static str> {
        self.agent
    }

    async fn complete(&self, _: &McpCaller, _: &str, start: &str) -> Vec<String> {
        let known = ["testValue1", "testValue2", "other"];
        known.into_iter().filter(|k| k.starts_with(start)).map(str::to_owned).collect()
    }
}
