//! Arguments of the team tools. A tool declares them once, with `tool_arguments!`: that gives the
//! struct its call receives, the schema models read and the check of what a model sent.

use std::time::Duration;

use rmcp::model::JsonObject;
use serde_json::Value;
use shikiri_model::team::{RefusalCode, SessionPurpose, TeamRefusal};

use super::tool_schema::{ToolField, ToolFieldKind};

/// The longest that a call waits; a caller that wants to wait longer calls again.
const MAX_WAIT_SECONDS: f64 = 30.0;

/// A type that an argument can have.
pub(super) trait ArgumentType: Sized {
    const KIND: ToolFieldKind;
    const IS_REQUIRED: bool = true;

    /// None if the value is of another kind. An argument that is missing is read as null.
    fn from_value(value: &Value) -> Option<Self>;
}

/// An argument: what its schema says, and which values it takes.
pub(super) struct ArgumentField {
    pub(super) field: ToolField,
    accepts: fn(&Value) -> bool,
}

impl ArgumentField {
    pub(super) const fn new<T: ArgumentType>(
        name: &'static str,
        description: &'static str,
    ) -> Self {
        let field = ToolField { name, kind: T::KIND, is_required: T::IS_REQUIRED, description };
        Self { field, accepts: |value| T::from_value(value).is_some() }
    }
}

/// The arguments of one tool.
pub(super) trait ToolArguments: Sized {
    const FIELDS: &'static [ArgumentField];

    /// Of arguments whose names and kinds were checked.
    fn from_checked(arguments: &JsonObject) -> Result<Self, TeamRefusal>;
}

/// `name: type = "description for the model"` for each argument.
macro_rules! tool_arguments {
    ($vis:vis struct $name:ident { $($field:ident: $type:ty = $description:expr,)* }) => {
        $vis struct $name { $($field: $type,)* }

        impl $crate::tools::team::tool_arguments::ToolArguments for $name {
            const FIELDS: &'static [$crate::tools::team::tool_arguments::ArgumentField] = &[
                $($crate::tools::team::tool_arguments::ArgumentField::new::<$type>(
                    stringify!($field),
                    $description,
                ),)*
            ];

            fn from_checked(
                _arguments: &rmcp::model::JsonObject,
            ) -> Result<Self, shikiri_model::team::TeamRefusal> {
                Ok(Self {
                    $($field: $crate::tools::team::tool_arguments::argument(
                        _arguments,
                        stringify!($field),
                    )?,)*
                })
            }
        }
    };
}
pub(super) use tool_arguments;

/// One argument, for what `tool_arguments!` makes.
pub(super) fn argument<T: ArgumentType>(
    arguments: &JsonObject,
    name: &str,
) -> Result<T, TeamRefusal> {
    T::from_value(arguments.get(name).unwrap_or(&Value::Null))
        .ok_or_else(|| invalid_argument(format!("{name}: is missing")))
}

/// Refuses unknown arguments, which are most likely misspelt ones. Null counts as not given.
pub(super) fn read_arguments<T: ToolArguments>(
    fields: &[&ArgumentField],
    arguments: &JsonObject,
) -> Result<T, TeamRefusal> {
    for (name, value) in arguments.iter().filter(|(_, value)| !value.is_null()) {
        let Some(known) = fields.iter().find(|known| known.field.name == name) else {
            let known: Vec<_> = fields.iter().map(|known| known.field.name).collect();
            let start: String = name.chars().take(40).collect();
            let known = known.join(", ");
            return Err(invalid_argument(format!("{start}: is no argument; there are {known}")));
        };
        if !(known.accepts)(value) {
            return Err(invalid_argument(format!("{name}: must be {}", known.field.kind.noun())));
        }
    }
    T::from_checked(arguments)
}

pub(super) fn invalid_argument(message: impl Into<String>) -> TeamRefusal {
    RefusalCode::InvalidArgument.because(message)
}

impl ArgumentType for String {
    const KIND: ToolFieldKind = ToolFieldKind::Text;

    fn from_value(value: &Value) -> Option<Self> {
        value.as_str().map(str::to_owned)
    }
}

/// A number too large for the type stands for the largest.
impl ArgumentType for i64 {
    const KIND: ToolFieldKind = ToolFieldKind::Whole;

    fn from_value(value: &Value) -> Option<Self> {
        value.as_i64().or_else(|| value.is_u64().then_some(Self::MAX))
    }
}

impl ArgumentType for Value {
    const KIND: ToolFieldKind = ToolFieldKind::Any;

    fn from_value(value: &Value) -> Option<Self> {
        (!value.is_null()).then(|| value.clone())
    }
}

impl ArgumentType for SessionPurpose {
    const KIND: ToolFieldKind = ToolFieldKind::Choice(&["task", "chat"]);

    fn from_value(value: &Value) -> Option<Self> {
        match value.as_str()? {
            "task" => Some(Self::Task),
            "chat" => Some(Self::Chat),
            _ => None,
        }
    }
}

impl<T: ArgumentType> ArgumentType for Option<T> {
    const KIND: ToolFieldKind = T::KIND;
    const IS_REQUIRED: bool = false;

    fn from_value(value: &Value) -> Option<Self> {
        if value.is_null() { Some(None) } else { T::from_value(value).map(Some) }
    }
}

/// How long a call waits for something to happen.
pub(super) struct WaitSeconds(f64);

impl WaitSeconds {
    pub(super) const DESCRIPTION: &str = "If there is nothing yet, wait so long for something \
        (0 to 30). Give 30: you are woken at once";

    /// More than the longest wait is the longest; a negative one is a mistake.
    pub(super) fn duration(wait: Option<Self>) -> Result<Duration, TeamRefusal> {
        let seconds = wait.map_or(0.0, |Self(seconds)| seconds);
        if seconds < 0.0 {
            return Err(invalid_argument("wait_seconds: must not be negative"));
        }
        Ok(Duration::from_secs_f64(seconds.min(MAX_WAIT_SECONDS)))
    }
}

impl ArgumentType for WaitSeconds {
    const KIND: ToolFieldKind = ToolFieldKind::Number;

    fn from_value(value: &Value) -> Option<Self> {
        value.as_f64().map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::team::tool_schema::object_schema;
    use serde_json::json;

    tool_arguments! {
        struct SampleArguments {
            id: String = "",
            turns: Option<i64> = "How many",
            purpose: Option<SessionPurpose> = "",
        }
    }

    fn read(arguments: &Value) -> Result<(String, Option<i64>, Option<SessionPurpose>), String> {
        let fields: Vec<_> = SampleArguments::FIELDS.iter().collect();
        let arguments = arguments.as_object().unwrap();
        read_arguments::<SampleArguments>(&fields, arguments)
            .map(|read| (read.id, read.turns, read.purpose))
            .map_err(|refusal| refusal.message)
    }

    #[test]
    fn arguments_have_the_declared_names_and_kinds() {
        for (arguments, expected) in [
            (
                json!({ "id": "a", "turns": null, "purpose": "chat" }),
                ("a".to_owned(), None, Some(SessionPurpose::Chat)),
            ),
            (json!({ "id": "a", "turns": u64::MAX }), ("a".to_owned(), Some(i64::MAX), None)),
        ] {
            assert_eq!(read(&arguments), Ok(expected));
        }
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
        let fields = SampleArguments::FIELDS.iter().map(|known| &known.field);
        assert_eq!(Value::Object(object_schema(fields)), expected);
    }

    #[test]
    fn waits_are_bounded() {
        for (seconds, expected) in [(None, 0), (Some(2.0), 2), (Some(1e300), 30)] {
            let wait = WaitSeconds::duration(seconds.map(WaitSeconds)).unwrap();
            assert_eq!(wait, Duration::from_secs(expected), "{seconds:?}");
        }
        assert!(WaitSeconds::duration(Some(WaitSeconds(-0.5))).is_err());
    }
}
