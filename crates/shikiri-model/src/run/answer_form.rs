//! Validates an answer against the form of its question.
//!
//! A form is the small part of JSON Schema that clients can show: an object whose properties are
//! text, numbers, booleans and choices. Missing values are filled in from the defaults.

use serde_json::{Map, Value};

/// The content with its defaults, or an error text. A question without a form accepts anything.
pub fn fill_form_defaults(schema: &Value, content: &Value) -> Result<Value, String> {
    let Some(properties) = schema["properties"].as_object() else { return Ok(content.clone()) };
    let mut filled = match content {
        Value::Object(content) => content.clone(),
        Value::Null => Map::new(),
        _ => return Err("must be an object".to_owned()),
    };
    let required =
        |name: &str| schema["required"].as_array().is_some_and(|all| all.iter().any(|r| r == name));
    // Some clients send empty fields as null.
    filled.retain(|name, value| !value.is_null() || required(name));
    for (name, property) in properties {
        match (filled.get(name), property.get("default")) {
            (Some(value), _) => check(property, value).map_err(|why| format!("{name} {why}"))?,
            (None, Some(default)) => {
                filled.insert(name.clone(), default.clone());
            }
            (None, None) => {}
        }
    }
    let all = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
    match all.into_iter().find(|name| !filled.contains_key(*name)) {
        Some(missing) => Err(format!("{missing} is missing")),
        None => Ok(Value::Object(filled)),
    }
}

fn check(property: &Value, value: &Value) -> Result<(), String> {
    let kind = property["type"].as_str().unwrap_or_default();
    let fits = match kind {
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64() || value.as_f64().is_some_and(is_whole),
        "number" => value.is_number(),
        "array" => value.is_array(),
        _ => true,
    };
    if !fits {
        return Err(format!("must be of type {kind}"));
    }
    check_choice(property, value)?;
    check_size(property, value)?;
    match value {
        Value::Array(items) => items.iter().try_for_each(|item| check(&property["items"], item)),
        _ => Ok(()),
    }
}

fn is_whole(number: f64) -> bool {
    number.fract() == 0.0
}

/// `enum`, or titled choices as `oneOf` / `anyOf` of constants.
fn check_choice(property: &Value, value: &Value) -> Result<(), String> {
    let plain = property["enum"].as_array().into_iter().flatten();
    let titled = ["oneOf", "anyOf"].into_iter().filter_map(|name| property[name].as_array());
    let titled = titled.flatten().filter_map(|choice| choice.get("const"));
    let choices: Vec<&Value> = plain.chain(titled).collect();
    if choices.is_empty() || choices.contains(&value) {
        return Ok(());
    }
    let shown: Vec<String> = choices.iter().take(20).map(ToString::to_string).collect();
    Err(format!("must be one of {}", shown.join(", ")))
}

fn check_size(property: &Value, value: &Value) -> Result<(), String> {
    let bound = |name: &str| property.get(name).and_then(Value::as_f64);
    let (size, least, most, unit) = match value {
        Value::String(text) => {
            (text.chars().count() as f64, "minLength", "maxLength", "characters")
        }
        Value::Array(items) => (items.len() as f64, "minItems", "maxItems", "choices"),
        Value::Number(number) => (number.as_f64().unwrap_or_default(), "minimum", "maximum", ""),
        _ => return Ok(()),
    };
    if let Some(least) = bound(least).filter(|least| size < *least) {
        return Err(format!("must be at least {least} {unit}").trim_end().to_owned());
    }
    if let Some(most) = bound(most).filter(|most| size > *most) {
        return Err(format!("must be at most {most} {unit}").trim_end().to_owned());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn schema() -> Value {
        json!({
            "type": "object",
            "properties": {
                "confirm": { "type": "boolean" },
                "notes": { "type": "string", "maxLength": 3, "default": "なし" },
                "seats": { "type": "integer", "minimum": 1, "maximum": 4 },
                "class": { "type": "string", "oneOf": [
                    { "const": "a", "title": "First" }, { "const": "b", "title": "Second" }
                ]},
                "days": { "type": "array", "minItems": 1, "items": { "enum": ["mon", "tue"] } },
            },
            "required": ["confirm"],
        })
    }

    #[test]
    fn what_was_left_out_is_filled_in_from_the_defaults() {
        let filled = fill_form_defaults(&schema(), &json!({ "confirm": true })).unwrap();
        assert_eq!(filled, json!({ "confirm": true, "notes": "なし" }));
        let empty = json!({ "confirm": true, "notes": null, "seats": null });
        assert_eq!(fill_form_defaults(&schema(), &empty), Ok(filled));
        let whole = json!({
            "confirm": false, "notes": "一二三", "seats": 4, "class": "b", "days": ["tue"], "more": 1
        });
        assert_eq!(fill_form_defaults(&schema(), &whole), Ok(whole));
    }

    #[test]
    fn what_does_not_fit_is_told_by_its_name() {
        for (content, named) in [
            (json!({}), "confirm is missing"),
            (json!(null), "confirm is missing"),
            (json!([]), "object"),
            (json!({ "confirm": null }), "confirm must be of type boolean"),
            (json!({ "confirm": "yes" }), "confirm must be of type boolean"),
            (json!({ "confirm": true, "notes": "long" }), "notes must be at most 3"),
            (json!({ "confirm": true, "seats": 0 }), "seats must be at least 1"),
            (json!({ "confirm": true, "seats": 1.5 }), "seats must be of type integer"),
            (json!({ "confirm": true, "class": "c" }), "class must be one of"),
            (json!({ "confirm": true, "days": [] }), "days must be at least 1"),
            (json!({ "confirm": true, "days": ["wed"] }), "days must be one of"),
        ] {
            let refused = fill_form_defaults(&schema(), &content).unwrap_err();
            assert!(refused.contains(named), "{content}: {refused}");
        }
    }

    #[test]
    fn a_question_without_a_form_takes_anything() {
        for schema in [json!(null), json!({}), json!({ "messages": [] })] {
            assert_eq!(fill_form_defaults(&schema, &json!("text")), Ok(json!("text")));
        }
    }
}
