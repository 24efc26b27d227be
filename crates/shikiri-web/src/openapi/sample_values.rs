//! Values in the samples of the OpenAPI document: for the parameters of paths, and for bodies.

use serde_json::{Map, Value, json};

/// A value for a parameter of a path. Words in capitals are for the reader to replace.
pub(super) fn path_value(name: &str) -> String {
    let value = match name {
        // The tenant that each server has.
        "t" => "local",
        "c" => "CONVERSATION_ID",
        "e" => "EXECUTION_ID",
        "m" => "MODEL_ID",
        "p" => "PROJECT_ID",
        "r" => "RUN_ID",
        "s" => "SERVER_ID",
        "name" => "SKILL_NAME",
        "path" => SAMPLE_FILE,
        other => return format!("{}_ID", other.to_uppercase()),
    };
    value.to_owned()
}

/// The file that is put into a workspace, and taken out.
pub(super) const SAMPLE_FILE: &str = "notes.md";

/// A body by the name of its schema. A schema that is not listed gets its required properties.
fn known_body(schema: &str) -> Option<Value> {
    Some(match schema {
        "NewTenant" => json!({ "id": "acme", "name": "Acme" }),
        "TenantChange" => json!({ "name": "Acme Ltd" }),
        "NewKey" => json!({ "name": "app" }),
        "NewModel" => json!({ "id": "fast", "engine": "offline" }),
        "ModelChange" => json!({ "status": "inactive" }),
        "NewServer" => {
            json!({ "name": "search", "type": "http", "url": "https://example.com/mcp" })
        }
        "ServerChange" => json!({ "status": "inactive" }),
        "CheckServer" => json!({ "accept_changes": false }),
        "NewSkill" => json!({ "name": "haiku", "content": "Answer with a haiku." }),
        "WholeSkill" => json!({ "content": "Answer with a haiku." }),
        "NewConversation" | "ConversationChange" => json!({ "title": "A day in Kyoto" }),
        "Execute" => {
            json!({ "executor": { "user_id": "ann" }, "user_input": "Plan a day in Kyoto." })
        }
        "StartRun" => json!({ "agent": "long_running_agent", "input": { "steps": 3 } }),
        "AnswerQuestion" => {
            json!({ "question_id": "QUESTION_ID", "action": "accept", "answer": { "confirm": true } })
        }
        "UpdateRun" => json!({ "input": { "steps": 5 } }),
        "NewProject" => json!({ "id": "website", "name": "Website" }),
        "NewTeamAgent" => json!({ "id": "writer", "name": "Writer" }),
        "TeamAgentChange" => json!({ "spawn": "auto" }),
        "NewTask" => json!({ "title": "Write the start page", "assignee": "writer" }),
        "TaskChange" => json!({ "status": "done" }),
        "NewTeamMessage" => {
            json!({ "from_agent_id": "ann", "to_agent_id": "writer", "content": "Begin with the title." })
        }
        "HookPayload" => json!({ "session_id": "SESSION_ID", "hook_event_name": "Notification" }),
        _ => return None,
    })
}

/// A body of this schema of the document, given by reference.
pub(super) fn body(document: &Value, schema: &Value) -> Value {
    let name = schema["$ref"].as_str().and_then(|place| place.rsplit('/').next());
    name.and_then(known_body).unwrap_or_else(|| value_of(document, schema, "value", 0))
}

/// Deeper than any schema here: bounds one that contains itself.
const DEEPEST: usize = 8;

/// A value of a schema: for an object its required properties.
fn value_of(document: &Value, schema: &Value, property: &str, depth: usize) -> Value {
    if depth > DEEPEST {
        return Value::Null;
    }
    if let Some(place) = schema["$ref"].as_str().and_then(|place| place.strip_prefix('#')) {
        let named = document.pointer(place).unwrap_or(&Value::Null);
        return value_of(document, named, property, depth + 1);
    }
    if let Some(first) = schema["enum"].as_array().and_then(|values| values.first()) {
        return first.clone();
    }
    if let Some(first) = schema["oneOf"].as_array().and_then(|schemas| schemas.last()) {
        return value_of(document, first, property, depth + 1);
    }
    match schema["type"].as_str() {
        Some("integer" | "number") => json!(1),
        Some("boolean") => json!(true),
        Some("array") => json!([]),
        Some("string") => json!(property.to_uppercase()),
        _ => {
            let required = schema["required"].as_array().into_iter().flatten();
            let properties = required.filter_map(Value::as_str).map(|name| {
                let value = value_of(document, &schema["properties"][name], name, depth + 1);
                (name.to_owned(), value)
            });
            Value::Object(properties.collect::<Map<_, _>>())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schema_that_is_not_listed_gets_its_required_properties() {
        let document = json!({ "components": { "schemas": {
            "New": { "type": "object", "required": ["name", "kind", "count", "inner"], "properties": {
                "name": { "type": "string" }, "kind": { "$ref": "#/components/schemas/Kind" },
                "count": { "type": "integer" }, "note": { "type": "string" },
                "inner": { "oneOf": [{ "type": "null" }, { "$ref": "#/components/schemas/Kind" }] },
            } },
            "Kind": { "type": "string", "enum": ["a", "b"] },
            "Loop": { "type": "object", "required": ["next"],
                "properties": { "next": { "$ref": "#/components/schemas/Loop" } } },
        } } });
        let made = |name: &str| {
            body(&document, &json!({ "$ref": format!("#/components/schemas/{name}") }))
        };
        assert_eq!(made("New"), json!({ "name": "NAME", "kind": "a", "count": 1, "inner": "a" }));
        assert!(made("Loop").is_object(), "it ends");
    }
}
