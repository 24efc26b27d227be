//! What models read about the arguments and answers of the team tools, as JSON schemas.

use rmcp::model::JsonObject;
use serde_json::{Value, json};

/// One argument of a tool, or one part of its answer.
pub(super) struct ToolField {
    pub(super) name: &'static str,
    pub(super) kind: ToolFieldKind,
    pub(super) is_required: bool,
    pub(super) description: &'static str,
}

#[derive(Clone, Copy)]
pub(super) enum ToolFieldKind {
    Text,
    /// One of these texts.
    Choice(&'static [&'static str]),
    Whole,
    Number,
    Flag,
    List,
    Object,
    Any,
}

pub(super) const fn required(
    name: &'static str,
    kind: ToolFieldKind,
    description: &'static str,
) -> ToolField {
    ToolField { name, kind, is_required: true, description }
}

pub(super) const fn optional(
    name: &'static str,
    kind: ToolFieldKind,
    description: &'static str,
) -> ToolField {
    ToolField { name, kind, is_required: false, description }
}

impl ToolFieldKind {
    fn schema(self) -> Value {
        let name = match self {
            Self::Text => "string",
            Self::Choice(values) => return json!({ "type": "string", "enum": values }),
            Self::Whole => "integer",
            Self::Number => "number",
            Self::Flag => "boolean",
            Self::List => "array",
            Self::Object => "object",
            Self::Any => return json!({}),
        };
        json!({ "type": name })
    }

    /// How a refusal calls a value of this kind.
    pub(super) fn noun(self) -> String {
        match self {
            Self::Text => "a string".to_owned(),
            Self::Choice(values) => format!("one of {}", values.join(", ")),
            Self::Whole => "a whole number".to_owned(),
            Self::Number => "a number".to_owned(),
            Self::Flag => "true or false".to_owned(),
            Self::List => "a list".to_owned(),
            Self::Object => "an object".to_owned(),
            Self::Any => "any value".to_owned(),
        }
    }
}

/// The schema of an object with these fields.
pub(super) fn object_schema<'a>(fields: impl Iterator<Item = &'a ToolField>) -> JsonObject {
    let (mut properties, mut required) = (JsonObject::new(), Vec::new());
    for field in fields {
        let mut schema = field.kind.schema();
        if !field.description.is_empty() {
            schema["description"] = json!(field.description);
        }
        properties.insert(field.name.to_owned(), schema);
        if field.is_required {
            required.push(field.name);
        }
    }
    let mut object = JsonObject::new();
    object.insert("type".to_owned(), json!("object"));
    object.insert("properties".to_owned(), Value::Object(properties));
    object.insert("required".to_owned(), json!(required));
    object
}
