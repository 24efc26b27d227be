//! What MCP clients list in both protocol eras: tools with their schemas, prompts, resources and
//! templates, and what the server says of itself.

use serde_json::{Value, json};
use shikiri_testkit::{McpClient, ModernClient, TestApp};

use super::json_shape::pretty;
use crate::PROGRAM;

const LISTS: [(&str, &str); 4] = [
    ("tools/list", "tools"),
    ("prompts/list", "prompts"),
    ("resources/list", "resources"),
    ("resources/templates/list", "resourceTemplates"),
];

#[tokio::test(flavor = "multi_thread")]
async fn lists_of_both_protocol_eras() {
    let app = TestApp::new(PROGRAM).start().await;
    let tenant = app.tenant("guest").await;
    let legacy = McpClient::connect(&tenant.client).await;
    let modern = ModernClient::new(&tenant.client);
    let (mut older, mut newer) = (json!({}), json!({}));
    for (method, name) in LISTS {
        older[method] = legacy.result(method, json!({})).await[name].clone();
        newer[method] = modern.result(method, json!({})).await[name].clone();
    }
    insta::assert_snapshot!("mcp_lists", pretty(&older));
    // Said once: the newer era is told by what differs.
    insta::assert_snapshot!(
        "mcp_lists_that_differ_in_the_newer_era",
        pretty(&difference(&older, &newer))
    );
}

/// The parts of the second that are not the same in the first, by place.
fn difference(one: &Value, other: &Value) -> Value {
    match (one, other) {
        (one, other) if one == other => Value::Null,
        (Value::Object(first), Value::Object(second)) => {
            let names: std::collections::BTreeSet<_> = first.keys().chain(second.keys()).collect();
            let parts = names.into_iter().filter_map(|name| {
                let part = difference(&first.get(name).cloned()?, second.get(name)?);
                (!part.is_null()).then(|| (name.clone(), part))
            });
            let missing = first.keys().filter(|name| !second.contains_key(*name));
            let missing = missing.map(|name| (name.clone(), json!("missing")));
            let added = second.iter().filter(|(name, _)| !first.contains_key(*name));
            let added = added.map(|(name, value)| (name.clone(), value.clone()));
            parts.chain(missing).chain(added).collect()
        }
        (Value::Array(first), Value::Array(second)) if first.len() == second.len() => {
            let parts = first.iter().zip(second).map(|(one, other)| difference(one, other));
            parts.filter(|part| !part.is_null()).collect()
        }
        (_, other) => other.clone(),
    }
}
