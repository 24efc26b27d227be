//! Names of tools and of arguments, as the models' APIs accept them.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};
use shikiri_openapi::argument_name;

/// The longest name that the Messages API accepts.
const MAX_NAME: usize = 64;
/// Length of the suffix that keeps names unique after they are cut.
const MARK: usize = 8;
/// Keywords that the API refuses at the top level of a schema.
const CHOICES: [&str; 3] = ["oneOf", "anyOf", "allOf"];

/// Replaces the characters that a tool's name must not contain.
pub(super) fn sanitize_name(name: &str) -> String {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    name.chars().map(|c| if fits(c) { c } else { '_' }).collect()
}

/// Names that are in use.
#[derive(Default)]
pub(super) struct ToolNames(BTreeSet<String>);

impl ToolNames {
    pub(super) fn insert(&mut self, name: &str) {
        self.0.insert(name.to_owned());
    }

    /// `mcp__server__tool`. A name that is too long or taken is cut and gets a suffix.
    pub(super) fn claim_name(&mut self, server: &str, tool: &str) -> String {
        let full = format!("mcp__{}__{}", sanitize_name(server), sanitize_name(tool));
        let name = match full.len() <= MAX_NAME && !self.0.contains(&full) {
            true => full,
            false => {
                let marks = (0..).map(|number| format!("{server}\n{tool}\n{number}"));
                let mut marked = marks.map(|text| {
                    let start = full.get(..MAX_NAME - MARK - 1).unwrap_or(&full);
                    format!("{start}_{}", mark(&text))
                });
                marked.find(|name| !self.0.contains(name)).unwrap_or_default()
            }
        };
        self.0.insert(name.clone());
        name
    }
}

/// The suffix is the same in every process, so that a resumed run finds its tools.
fn mark(text: &str) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, text.as_bytes());
    hex::encode(&digest.as_ref()[..MARK / 2])
}

/// Whether a server's list of allowed tools names this tool, by its own name or by the name that
/// the model uses.
pub(super) fn is_allowed(allowed: Option<&[String]>, server: &str, tool: &str) -> bool {
    let full = format!("mcp__{}__{}", sanitize_name(server), sanitize_name(tool));
    let is_meant =
        |one: &String| one == tool || *one == full || sanitize_name(one) == sanitize_name(tool);
    allowed.is_none_or(|allowed| allowed.iter().any(is_meant))
}

/// Adapts a server's schema to the API. Also returns the original names of renamed arguments.
pub(super) fn fit_schema(schema: &Value) -> (Value, BTreeMap<String, String>) {
    let mut fitted = schema.as_object().cloned().unwrap_or_default();
    fitted.insert("type".to_owned(), json!("object"));
    fitted.remove("$schema");
    for choice in CHOICES {
        fitted.remove(choice);
    }
    let mut renamed = BTreeMap::new();
    let Some(Value::Object(fields)) = fitted.remove("properties") else {
        fitted.insert("properties".to_owned(), json!({}));
        return (Value::Object(fitted), renamed);
    };
    let mut fitting = Map::new();
    // Valid names first, so that no renamed argument takes them.
    let (good, odd): (Vec<_>, Vec<_>) =
        fields.into_iter().partition(|(name, _)| argument_name(name) == *name);
    fitting.extend(good);
    for (name, field) in odd {
        let wish = argument_name(&name);
        let start = wish.get(..MAX_NAME - 4).unwrap_or(&wish);
        let mut wishes = (2..1_000).map(|number| format!("{start}_{number}"));
        let is_free = |key: &String| !fitting.contains_key(key);
        let key = Some(wish.clone()).filter(is_free).or_else(|| wishes.find(is_free));
        let Some(key) = key else { continue };
        fitting.insert(key.clone(), field);
        renamed.insert(key, name);
    }
    if let Some(Value::Array(required)) = fitted.get_mut("required") {
        for name in required {
            let key = renamed.iter().find(|(_, was)| name == was.as_str()).map(|(key, _)| key);
            if let Some(key) = key {
                *name = json!(key);
            }
        }
    }
    fitted.insert("properties".to_owned(), Value::Object(fitting));
    (Value::Object(fitted), renamed)
}

/// Renames arguments back to the server's names.
pub(super) fn restore(
    input: &Map<String, Value>,
    renamed: &BTreeMap<String, String>,
) -> Map<String, Value> {
    let real = |key: &String| renamed.get(key).unwrap_or(key).clone();
    input.iter().map(|(key, value)| (real(key), value.clone())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_short_fit_and_unique() {
        let mut taken = ToolNames::default();
        assert_eq!(taken.claim_name("my docs", "read.file"), "mcp__my_docs__read_file");
        let again = taken.claim_name("my_docs", "read_file");
        assert!(again.starts_with("mcp__my_docs__read_file_"), "{again}");
        let mut seen = BTreeSet::new();
        for number in 0..50 {
            let name = taken.claim_name(&"s".repeat(64), &format!("探{number}"));
            assert!(name.len() <= 64 && seen.insert(name.clone()), "{name}");
            assert!(name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-')));
        }
    }

    #[test]
    fn an_allowed_tool_is_known_by_each_of_its_names() {
        let allowed = ["a.b".to_owned(), "mcp__s__c".to_owned()];
        let is = |tool| is_allowed(Some(&allowed), "s", tool);
        assert!(is("a.b") && is("a_b") && is("c") && !is("d"));
        assert!(is_allowed(None, "s", "d") && !is_allowed(Some(&[]), "s", "d"));
    }

    #[test]
    fn a_schema_is_made_to_fit_and_arguments_find_their_way_back() {
        let schema = json!({
            "$schema": "x", "anyOf": [{}], "required": ["a b", "c"],
            "properties": { "a b": { "type": "string" }, "a_b": {}, "c": {} },
        });
        let (fitted, renamed) = fit_schema(&schema);
        let expected = json!({
            "type": "object", "required": ["a_b_2", "c"],
            "properties": { "a_b_2": { "type": "string" }, "a_b": {}, "c": {} },
        });
        assert_eq!(fitted, expected);
        let input = json!({ "a_b_2": 1, "a_b": 2 });
        let restored = restore(input.as_object().unwrap(), &renamed);
        assert_eq!(Value::Object(restored), json!({ "a b": 1, "a_b": 2 }));
        assert_eq!(fit_schema(&json!(null)).0, json!({ "type": "object", "properties": {} }));
    }
}
