//! What arguments and answers of the team tools are made of: for the schemas that models read, and
//! for reading what a model sent.

use rmcp::model::JsonObject;
use serde_json::{Value, json};
use shikiri_model::team::{Refusal, RefusalCode};

/// One argument of a tool, or one part of its answer.
pub(super) struct Field {
    pub(super) name: &'static str,
    kind: Kind,
    is_required: bool,
    about: &'static str,
}

#[derive(Clone, Copy)]
pub(super) enum Kind {
    Text,
    /// One of these.
    Choice(&'static [&'static str]),
    Whole,
    Number,
    Flag,
    List,
    Object,
    Any,
}

pub(super) const fn must(name: &'static str, kind: Kind, about: &'static str) -> Field {
    Field { name, kind, is_required: true, about }
}

pub(super) const fn may(name: &'static str, kind: Kind, about: &'static str) -> Field {
    Field { name, kind, is_required: false, about }
}

impl Kind {
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

    fn admits(self, value: &Value) -> bool {
        match self {
            Self::Text => value.is_string(),
            Self::Choice(values) => value.as_str().is_some_and(|text| values.contains(&text)),
            Self::Whole => value.is_i64() || value.is_u64(),
            Self::Number => value.is_number(),
            Self::Flag => value.is_boolean(),
            Self::List => value.is_array(),
            Self::Object => value.is_object(),
            Self::Any => true,
        }
    }

    fn wanted(self) -> String {
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
pub(super) fn schema<'a>(fields: impl Iterator<Item = &'a Field>) -> JsonObject {
    let (mut properties, mut required) = (JsonObject::new(), Vec::new());
    for field in fields {
        let mut schema = field.kind.schema();
        if !field.about.is_empty() {
            schema["description"] = json!(field.about);
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

/// Arguments of the declared names and kinds.
pub(super) struct Given<'a>(&'a JsonObject);

impl<'a> Given<'a> {
    /// An unknown argument is most likely a misspelt one, and one that is null is not given.
    pub(super) fn read(fields: &[&Field], arguments: &'a JsonObject) -> Result<Self, Refusal> {
        let bad = |message: String| RefusalCode::InvalidArgument.because(message);
        for (name, value) in arguments.iter().filter(|(_, value)| !value.is_null()) {
            let Some(field) = fields.iter().find(|field| field.name == name) else {
                let known: Vec<_> = fields.iter().map(|field| field.name).collect();
                let start: String = name.chars().take(40).collect();
                return Err(bad(format!(
                    "{start}: is no argument; there are {}",
                    known.join(", ")
                )));
            };
            if !field.kind.admits(value) {
                return Err(bad(format!("{name}: must be {}", field.kind.wanted())));
            }
        }
        let given = Self(arguments);
        match fields.iter().find(|field| field.is_required && given.value(field.name).is_none()) {
            Some(missing) => Err(bad(format!("{}: is missing", missing.name))),
            None => Ok(given),
        }
    }

    pub(super) fn value(&self, name: &str) -> Option<&'a Value> {
        self.0.get(name).filter(|value| !value.is_null())
    }

    pub(super) fn optional(&self, name: &str) -> Option<&'a str> {
        self.value(name).and_then(Value::as_str)
    }

    /// Of an argument that is required, and so is there.
    pub(super) fn text(&self, name: &str) -> &'a str {
        self.optional(name).unwrap_or_default()
    }

    pub(super) fn owned(&self, name: &str) -> Option<String> {
        self.optional(name).map(str::to_owned)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIELDS: [Field; 3] = [
        must("id", Kind::Text, ""),
        may("turns", Kind::Whole, "How many"),
        may("purpose", Kind::Choice(&["task", "chat"]), ""),
    ];

    fn read(arguments: &Value) -> Result<(), String> {
        let fields: Vec<&Field> = FIELDS.iter().collect();
        let arguments = arguments.as_object().unwrap();
        Given::read(&fields, arguments).map(|_| ()).map_err(|refusal| refusal.message)
    }

    #[test]
    fn arguments_have_the_declared_names_and_kinds() {
        assert_eq!(read(&json!({ "id": "a", "turns": null, "purpose": "chat" })), Ok(()));
        for (arguments, said) in [
            (json!({}), "id: is missing"),
            (json!({ "id": null }), "id: is missing"),
            (json!({ "id": 7 }), "id: must be a string"),
            (json!({ "id": "a", "turns": 2.5 }), "turns: must be a whole number"),
            (json!({ "id": "a", "turns": "2" }), "turns: must be a whole number"),
            (json!({ "id": "a", "purpose": "x" }), "purpose: must be one of task, chat"),
            (json!({ "id": "a", "Id": "b" }), "Id: is no argument; there are id, turns, purpose"),
        ] {
            assert_eq!(read(&arguments), Err(said.to_owned()), "{arguments}");
        }
    }

    #[test]
    fn the_schema_says_what_is_read() {
        let expected = json!({
            "type": "object",
            "properties": {
                "id": { "type": "string" },
                "turns": { "type": "integer", "description": "How many" },
                "purpose": { "type": "string", "enum": ["task", "chat"] },
            },
            "required": ["id"],
        });
        assert_eq!(Value::Object(schema(FIELDS.iter())), expected);
    }
}
