//! Tools that answer at once: each kind of content, and what the lists are looked at for.

use std::sync::{Arc, OnceLock, Weak};

use serde_json::{Value, json};
use shikiri_mcp::{BuiltinTool, ListChange, McpService, tool_error};

use super::fixture::{Plain, no_arguments, object, text};

/// One red pixel.
pub(super) const PNG: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg==";
/// One silent sample.
const WAV: &str = "UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAA=";

/// The server, once it is there: some tools make it announce something.
pub(super) type Announcer = Arc<OnceLock<Weak<McpService>>>;

pub(super) fn tools(announcer: &Announcer) -> Vec<Arc<dyn BuiltinTool>> {
    let mut tools = contents();
    tools.extend([
        announcing("test_trigger_tool_change", announcer, ListChange::Tools),
        announcing("test_trigger_prompt_change", announcer, ListChange::Prompts),
        Plain {
            name: "json_schema_2020_12_tool",
            description: "Its schema uses all of JSON Schema 2020-12",
            input: schema_2020_12(),
            answer: Box::new(|arguments| answered(&[text(json!(arguments).to_string())])),
        },
        Plain {
            name: "test_header_parameter",
            description: "Says the region that a header repeats",
            input: object(json!({ "region": { "type": "string", "x-mcp-header": "Region" } })),
            answer: Box::new(|arguments| {
                let region = arguments["region"].as_str().unwrap_or_default();
                answered(&[text(format!("region: {region}"))])
            }),
        },
    ]);
    tools.into_iter().map(|tool| Arc::new(tool) as _).collect()
}

fn contents() -> Vec<Plain> {
    let plain = |name, description, content: Vec<Value>| Plain {
        name,
        description,
        input: no_arguments(),
        answer: Box::new(move |_| answered(&content)),
    };
    let image = || json!({ "type": "image", "data": PNG, "mimeType": "image/png" });
    let resource = |uri: &str, kind: &str, text: &str| json!({ "type": "resource", "resource": { "uri": uri, "mimeType": kind, "text": text } });
    let embedded =
        resource("test://embedded-resource", "text/plain", "This is an embedded resource content.");
    let data = r#"{"test":"data","value":123}"#;
    let mixed = resource("test://mixed-content-resource", "application/json", data);
    let simple = "This is a simple text response for testing.";
    let audio = json!({ "type": "audio", "data": WAV, "mimeType": "audio/wav" });
    vec![
        plain("test_simple_text", "Answers with a text", vec![text(simple)]),
        plain("test_image_content", "Answers with an image", vec![image()]),
        plain("test_audio_content", "Answers with a sound", vec![audio]),
        plain("test_embedded_resource", "Answers with a resource", vec![embedded]),
        plain(
            "test_multiple_content_types",
            "Answers with a text, an image and a resource",
            vec![text("Multiple content types test:"), image(), mixed],
        ),
        Plain {
            name: "test_error_handling",
            description: "Always fails",
            input: no_arguments(),
            answer: Box::new(|_| {
                tool_error("test", "This tool intentionally returns an error for testing")
            }),
        },
    ]
}

fn announcing(name: &'static str, announcer: &Announcer, change: ListChange) -> Plain {
    let announcer = Arc::clone(announcer);
    Plain {
        name,
        description: "Announces that a list has changed, although it has not",
        input: no_arguments(),
        answer: Box::new(move |_| {
            let server = announcer.get().and_then(Weak::upgrade).expect("a server");
            server.announce(change);
            answered(&[text(format!("announced: {change:?}"))])
        }),
    }
}

fn answered(content: &[Value]) -> Value {
    json!({ "content": content, "isError": false })
}

fn schema_2020_12() -> Value {
    let address = json!({
        "$anchor": "addressDef",
        "type": "object",
        "properties": { "street": { "type": "string" }, "city": { "type": "string" } },
    });
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": { "address": address },
        "properties": {
            "name": { "type": "string" },
            "address": { "$ref": "#/$defs/address" },
            "contactMethod": { "type": "string", "enum": ["phone", "email"] },
            "phone": { "type": "string" },
            "email": { "type": "string" },
        },
        "allOf": [{ "anyOf": [{ "required": ["phone"] }, { "required": ["email"] }] }],
        "if": { "properties": { "contactMethod": { "const": "phone" } } },
        "then": { "required": ["phone"] },
        "else": { "required": ["email"] },
        "additionalProperties": false,
    })
}
