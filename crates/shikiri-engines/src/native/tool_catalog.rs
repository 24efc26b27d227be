//! The tools that the model may call, and the validation of its calls.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use jsonschema::Validator;
use serde_json::{Value, json};
use shikiri_executions::execution::ToolSpec;
use shikiri_model::native::TASK;

/// Errors of one call that the model sees.
const MOST_COMPLAINTS: usize = 3;
/// Characters of each.
const MAX_COMPLAINT: usize = 300;
/// The longest name that the API takes.
const MAX_NAME: usize = 128;

pub(super) struct NativeToolCatalog {
    /// The definitions for the API.
    plain: Vec<Value>,
    /// The definitions with `Task`.
    all: Vec<Value>,
    known: BTreeMap<String, CatalogTool>,
    /// Tools that the API would refuse, with the reason.
    pub(super) left_out: Vec<(String, &'static str)>,
}

/// Why a call was not made.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum ToolInputError {
    #[error("There is no tool {0:?}.")]
    UnknownTool(String),
    #[error("The tool was not called: its input does not fit its schema. {0}")]
    Mismatch(String),
}

struct CatalogTool {
    schema: Value,
    validator: OnceLock<Option<Validator>>,
    is_repeatable: bool,
}

impl NativeToolCatalog {
    pub(super) fn new(tools: &[ToolSpec]) -> Self {
        let (mut plain, mut known, mut left_out) = (Vec::new(), BTreeMap::new(), Vec::new());
        for tool in tools {
            if let Some(why) = objection(tool, &known) {
                left_out.push((tool.name.clone(), why));
                continue;
            }
            let (name, schema) = (&tool.name, &tool.input_schema);
            let description = &tool.description;
            plain.push(json!({ "name": name, "description": description, "input_schema": schema }));
            let new = CatalogTool {
                schema: schema.clone(),
                validator: OnceLock::new(),
                is_repeatable: tool.is_repeatable,
            };
            known.insert(name.clone(), new);
        }
        let all = plain.iter().cloned().chain([task()]).collect();
        Self { plain, all, known, left_out }
    }

    /// The tools of a thread. `with_task` allows subagents.
    pub(super) fn definitions(&self, with_task: bool) -> &[Value] {
        if with_task { &self.all } else { &self.plain }
    }

    /// Whether a call whose outcome is unknown may be made again.
    pub(super) fn is_repeatable(&self, name: &str) -> bool {
        self.known.get(name).is_some_and(|known| known.is_repeatable)
    }

    /// Validates a call. The error is a text for the model.
    pub(super) fn check(&self, name: &str, input: &Value) -> Result<(), ToolInputError> {
        let Some(known) = self.known.get(name) else {
            return Err(ToolInputError::UnknownTool(name.to_owned()));
        };
        let validator =
            known.validator.get_or_init(|| jsonschema::validator_for(&known.schema).ok());
        let Some(validator) = validator else { return Ok(()) };
        let complaint = |error: jsonschema::ValidationError<'_>| {
            let place = error.instance_path().to_string();
            let place = if place.is_empty() { "the input".to_owned() } else { place };
            let text: String = error.to_string().chars().take(MAX_COMPLAINT).collect();
            format!("{place}: {text}")
        };
        let found = validator.iter_errors(input).take(MOST_COMPLAINTS).map(complaint);
        let found: Vec<_> = found.collect();
        if found.is_empty() {
            return Ok(());
        }
        Err(ToolInputError::Mismatch(found.join("; ")))
    }
}

fn objection(tool: &ToolSpec, known: &BTreeMap<String, CatalogTool>) -> Option<&'static str> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if tool.name.is_empty() || tool.name.len() > MAX_NAME || !tool.name.chars().all(is_plain) {
        return Some("its name is not one that the model API takes");
    }
    if tool.name == TASK || known.contains_key(&tool.name) {
        return Some("another tool has its name");
    }
    (tool.input_schema["type"] != "object").then_some("its input is not an object")
}

fn task() -> Value {
    json!({
        "name": TASK,
        "description": "Has a subagent do a piece of the work in a conversation of its own, and \
            gives back what it answers at its end. It knows nothing but its prompt, so say all that \
            it needs to know and what it should answer with. Several calls in one reply are done at \
            the same time.",
        "input_schema": {
            "type": "object",
            "properties": {
                "description": { "type": "string", "description": "The work in a few words" },
                "prompt": { "type": "string", "description": "What the subagent should do" },
                "subagent_type": { "type": "string", "description": "A name for its role" },
                "model": {
                    "type": "string",
                    "description": "haiku, sonnet or opus; without it, the one for subagents",
                },
            },
            "required": ["description", "prompt"],
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tool(name: &str, schema: Value) -> ToolSpec {
        let (name, description) = (name.to_owned(), "道具".to_owned());
        let is_repeatable = schema["title"] == "again";
        ToolSpec { name, description, input_schema: schema, is_repeatable }
    }

    #[test]
    fn what_the_api_would_refuse_is_left_out() {
        let object = json!({ "type": "object" });
        let offered = NativeToolCatalog::new(&[
            tool("good", json!({ "type": "object", "title": "again" })),
            tool("good", object.clone()),
            tool("Task", object.clone()),
            tool("a.b", object.clone()),
            tool("", object.clone()),
            tool(&"x".repeat(129), object),
            tool("list", json!({ "type": "array" })),
        ]);
        assert_eq!(offered.left_out.len(), 6, "{:?}", offered.left_out);
        let names = |with_task| {
            let all = offered.definitions(with_task).iter();
            all.map(|tool| tool["name"].as_str().unwrap()).collect::<Vec<_>>()
        };
        assert_eq!((names(false), names(true)), (vec!["good"], vec!["good", "Task"]));
        assert!(offered.is_repeatable("good") && !offered.is_repeatable("Task"));
    }

    #[test]
    fn the_model_is_told_what_is_wrong_with_its_call() {
        let schema = json!({
            "type": "object", "required": ["path"],
            "properties": { "path": { "type": "string" }, "lines": { "maximum": 9 } },
        });
        let offered = NativeToolCatalog::new(&[
            tool("read", schema),
            tool("odd", json!({ "type": "object", "properties": { "x": { "type": 7 } } })),
        ]);
        assert_eq!(offered.check("read", &json!({ "path": "木" })), Ok(()));
        let wrong =
            offered.check("read", &json!({ "path": 7, "lines": 10 })).unwrap_err().to_string();
        assert!(wrong.contains("/path") && wrong.contains("/lines"), "{wrong}");
        assert!(offered.check("read", &json!({})).unwrap_err().to_string().contains("path"));
        assert!(
            offered
                .check("write", &json!({}))
                .unwrap_err()
                .to_string()
                .contains("no tool \"write\"")
        );
        assert_eq!(
            offered.check("odd", &json!({ "x": 1 })),
            Ok(()),
            "its schema is not the call's fault"
        );
    }
}
