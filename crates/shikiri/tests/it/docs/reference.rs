//! `docs/reference/mcp-tools.md`, from what a server lists. The other pages are made by unit tests.

use serde_json::{Value, json};
use shikiri_testkit::{McpClient, TestApp, check_reference_page, table_cell};

use crate::PROGRAM;

const HEAD: &str = "\
# MCP tools

<!-- Made by `cargo xtask reference` from the answer of a server to tools/list. -->

Every tool of `/mcp` and `shikiri mcp`. A client with an agent's session token sees only what that session may use;
the tools for teams say in their first words whose they are. An argument in **bold** is required. How a tool fails:
[errors](errors.md). A call of an agent that lasts is answered after 45 seconds with its run, unless `wait` is true.
";

#[tokio::test(flavor = "multi_thread")]
async fn the_reference_has_every_mcp_tool() {
    let app = TestApp::new(PROGRAM).start().await;
    let tenant = app.tenant("guest").await;
    let client = McpClient::connect(&tenant.client).await;
    let tools = client.result("tools/list", json!({})).await["tools"].clone();
    let templates = client.result("resources/templates/list", json!({})).await;
    let mut page = HEAD.to_owned();
    for tool in tools.as_array().unwrap() {
        describe(tool, &mut page);
    }
    page.push_str("\n## Resources\n\n| address | what it is |\n|---|---|\n");
    for template in templates["resourceTemplates"].as_array().unwrap() {
        let (uri, title) = (text(&template["uriTemplate"]), text(&template["title"]));
        page.push_str(&format!("| `{uri}` | {title} |\n"));
    }
    check_reference_page("mcp-tools.md", &page);
}

fn text(value: &Value) -> String {
    table_cell(value.as_str().unwrap_or_default())
}

fn describe(tool: &Value, page: &mut String) {
    page.push_str(&format!("\n## {}\n\n{}\n", text(&tool["name"]), text(&tool["description"])));
    let input = &tool["inputSchema"];
    let Some(fields) = input["properties"].as_object().filter(|fields| !fields.is_empty()) else {
        return;
    };
    let required = input["required"].as_array().cloned().unwrap_or_default();
    page.push_str("\n| argument | type | meaning |\n|---|---|---|\n");
    for (name, schema) in fields {
        let is_required = required.iter().any(|required| required == name.as_str());
        let bold = if is_required { "**" } else { "" };
        page.push_str(&format!(
            "| {bold}`{name}`{bold} | {} | {} |\n",
            kind(schema),
            about(schema)
        ));
    }
}

/// The types that a value may have.
fn kind(schema: &Value) -> String {
    match &schema["type"] {
        Value::String(name) => name.clone(),
        Value::Array(names) => names.iter().map(text).collect::<Vec<_>>().join(" or "),
        _ => "any".to_owned(),
    }
}

fn about(schema: &Value) -> String {
    let mut sentences: Vec<String> = Vec::new();
    let description = text(&schema["description"]);
    if !description.is_empty() {
        let is_ended = description.ends_with(['.', ')', '!', '?']);
        sentences.push(if is_ended { description } else { format!("{description}.") });
    }
    if let Some(values) = schema["enum"].as_array() {
        let values: Vec<_> = values.iter().map(|value| format!("`{}`", text(value))).collect();
        sentences.push(format!("One of {}.", values.join(", ")));
    }
    if let Some(default) = schema.get("default") {
        sentences.push(format!("Default: `{default}`."));
    }
    for (key, word) in
        [("minimum", "At least"), ("maximum", "At most"), ("maxLength", "Most characters:")]
    {
        if let Some(bound) = schema.get(key) {
            sentences.push(format!("{word} {bound}."));
        }
    }
    sentences.join(" ")
}
