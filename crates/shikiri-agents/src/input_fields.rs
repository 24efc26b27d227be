//! The input fields of the sample agents: how they are read, and their JSON Schema.

use serde::de::{DeserializeOwned, Error};
use serde::{Deserialize, Deserializer};
use serde_json::{Number, Value, json};

const MAX_STEP_MS: u64 = 3_600_000;
const DEFAULT_STEP_MS: u64 = 2_000;
const MAX_TEXT: usize = 1_000;

/// How long a sample's step takes, in milliseconds, so that tests need not wait.
#[derive(Clone, Copy, Deserialize)]
#[serde(transparent)]
pub(super) struct StepDuration(#[serde(deserialize_with = "whole")] u64);

impl Default for StepDuration {
    fn default() -> Self {
        Self(DEFAULT_STEP_MS)
    }
}

impl StepDuration {
    pub(super) fn millis(self) -> u64 {
        self.0
    }

    pub(super) fn check(self) -> Result<(), String> {
        if self.0 > MAX_STEP_MS {
            return Err(format!("step_ms must be at most {MAX_STEP_MS}"));
        }
        Ok(())
    }

    pub(super) fn schema() -> Value {
        json!({
            "type": "integer",
            "description": "How long each step takes, in milliseconds",
            "default": DEFAULT_STEP_MS,
            "minimum": 0,
            "maximum": MAX_STEP_MS,
        })
    }
}

/// Reads an input, which is an object. Null counts as an empty one.
pub(super) fn read<T: DeserializeOwned>(input: &Value) -> Result<T, String> {
    let input = match input {
        Value::Null => json!({}),
        Value::Object(_) => input.clone(),
        // Read as a struct, an array would pass for its fields in order.
        _ => return Err("must be an object".to_owned()),
    };
    serde_json::from_value(input).map_err(|error| error.to_string())
}

/// Reads a whole number, also when it is written 3.0: to JSON Schema that is the same.
pub(super) fn whole<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    const LARGEST: f64 = u32::MAX as f64;
    let number = Number::deserialize(deserializer)?;
    let read = number.as_u64().or_else(|| {
        let float = number.as_f64()?;
        ((0.0..=LARGEST).contains(&float) && float.fract() == 0.0).then_some(float as u64)
    });
    read.ok_or_else(|| D::Error::custom(format!("{number} is not a whole number from 0")))
}

pub(super) fn check_text(field: &str, text: &str) -> Result<(), String> {
    if text.trim().is_empty() || text.chars().count() > MAX_TEXT {
        return Err(format!("{field} must have 1 to {MAX_TEXT} characters"));
    }
    Ok(())
}

/// The JSON Schema of the texts that `check_text` accepts.
pub(super) fn text_schema(description: &str) -> Value {
    json!({
        "type": "string",
        "description": description,
        "minLength": 1,
        "maxLength": MAX_TEXT,
        "pattern": "\\S",
    })
}

pub(super) fn with_default(mut schema: Value, default: Value) -> Value {
    schema["default"] = default;
    schema
}

/// An object with these properties and no others.
pub(super) fn object_schema(properties: Value, required: &[&str]) -> Value {
    json!({
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": false,
    })
}
