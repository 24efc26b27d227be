//! A server's question to a person: a flat form. The schema is not trusted, so it is parsed into
//! the few kinds of fields that the protocol has, and everything else is refused.

use serde_json::{Map, Number, Value, json};

use super::terminal_text::sanitize_line;

/// The most fields of a form.
const MAX_FIELDS: usize = 50;
const MAX_OPTIONS: usize = 500;
/// The most characters in one field.
const MAX_TEXT: usize = 100_000;
/// The field of a server's yes/no question, and the field of a note with it.
const CONFIRM: &str = "confirm";
const NOTES: &str = "notes";

#[derive(Clone, Debug, PartialEq)]
pub struct ElicitationForm {
    pub message: String,
    pub fields: Vec<FormField>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct FormField {
    /// The server's name for the field.
    pub name: String,
    /// The label for people.
    pub label: String,
    pub hint: Option<String>,
    pub kind: FormFieldKind,
    pub default: Option<Value>,
    pub required: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub enum FormFieldKind {
    Text {
        min: u64,
        max: Option<u64>,
        format: Option<String>,
    },
    Number {
        whole: bool,
        min: Option<f64>,
        max: Option<f64>,
    },
    YesNo,
    /// One of these options: value and label.
    Choice(Vec<(String, String)>),
    /// Several options.
    Choices {
        options: Vec<(String, String)>,
        min: u64,
        max: Option<u64>,
    },
}

/// A person's answer to a form.
#[derive(Clone, Debug, PartialEq)]
pub enum FormAnswer {
    Accept(Map<String, Value>),
    Decline(Map<String, Value>),
    Cancel,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the form cannot be shown: {0}")]
pub struct FormError(String);

impl FormAnswer {
    /// The answer in the protocol's format.
    pub fn to_result(&self) -> Value {
        match self {
            Self::Accept(content) => json!({ "action": "accept", "content": content }),
            Self::Decline(content) if content.is_empty() => json!({ "action": "decline" }),
            Self::Decline(content) => json!({ "action": "decline", "content": content }),
            Self::Cancel => json!({ "action": "cancel" }),
        }
    }
}

impl ElicitationForm {
    pub fn parse(message: &str, schema: &Value) -> Result<Self, FormError> {
        let wrong = |what: &str| Err(FormError(what.to_owned()));
        let empty = Map::new();
        let properties = match schema.get("properties") {
            Some(Value::Object(properties)) => properties,
            None => &empty,
            Some(_) => return wrong("its properties are no object"),
        };
        if properties.len() > MAX_FIELDS {
            return wrong("it has more than 50 fields");
        }
        let required = |name: &str| {
            let names = schema.get("required").and_then(Value::as_array);
            names.is_some_and(|names| names.iter().any(|known| known == name))
        };
        let fields = properties
            .iter()
            .map(|(name, schema)| FormField::parse(name, schema, required(name)))
            .collect::<Result<Vec<_>, _>>()?;
        Ok(Self { message: message.to_owned(), fields })
    }

    /// Whether the form asks only for yes or no, with a note at most.
    pub fn is_confirmation(&self) -> bool {
        let fits = |field: &FormField| match field.kind {
            FormFieldKind::YesNo => field.name == CONFIRM,
            FormFieldKind::Text { .. } => field.name == NOTES,
            _ => false,
        };
        self.fields.iter().any(|field| field.name == CONFIRM) && self.fields.iter().all(fits)
    }

    /// The answer to a confirmation.
    pub fn confirmation_answer(&self, yes: bool) -> FormAnswer {
        let mut content = Map::from_iter([(CONFIRM.to_owned(), json!(yes))]);
        if self.fields.iter().any(|field| field.name == NOTES) {
            let note = if yes { "Confirmed by user" } else { "Declined by user" };
            content.insert(NOTES.to_owned(), json!(note));
        }
        if yes { FormAnswer::Accept(content) } else { FormAnswer::Decline(content) }
    }

    /// The answer for a person who accepted in advance: every field has its default, and a yes/no
    /// field is yes. If a required field has no default, the form is declined.
    pub fn default_answer(&self) -> FormAnswer {
        if self.is_confirmation() {
            return self.confirmation_answer(true);
        }
        let mut content = Map::new();
        for field in &self.fields {
            match (&field.default, &field.kind) {
                (Some(default), _) => content.insert(field.name.clone(), default.clone()),
                (None, FormFieldKind::YesNo) => content.insert(field.name.clone(), json!(true)),
                (None, _) if field.required => return FormAnswer::Decline(Map::new()),
                (None, _) => None,
            };
        }
        FormAnswer::Accept(content)
    }
}

impl FormField {
    fn parse(name: &str, schema: &Value, required: bool) -> Result<Self, FormError> {
        let text = |key: &str| schema.get(key).and_then(Value::as_str);
        let number = |key: &str| schema.get(key).and_then(Value::as_u64);
        let kind = match text("type") {
            Some("boolean") => FormFieldKind::YesNo,
            Some(kind @ ("number" | "integer")) => FormFieldKind::Number {
                whole: kind == "integer",
                min: schema.get("minimum").and_then(Value::as_f64),
                max: schema.get("maximum").and_then(Value::as_f64),
            },
            Some("string") | None if options(schema)?.is_some() => {
                FormFieldKind::Choice(options(schema)?.unwrap_or_default())
            }
            Some("string") => FormFieldKind::Text {
                min: number("minLength").unwrap_or(0),
                max: number("maxLength"),
                format: text("format").map(sanitize_line),
            },
            Some("array") => FormFieldKind::Choices {
                options: schema.get("items").map(options).transpose()?.flatten().ok_or_else(
                    || FormError(format!("the field {:?} has no options", sanitize_line(name))),
                )?,
                min: number("minItems").unwrap_or(0),
                max: number("maxItems"),
            },
            _ => {
                let name = sanitize_line(name);
                return Err(FormError(format!("the field {name:?} is of no kind that is known")));
            }
        };
        let label = text("title").map_or_else(|| sanitize_line(name), sanitize_line);
        let hint = text("description").map(sanitize_line).filter(|hint| !hint.is_empty());
        let mut field = Self { name: name.to_owned(), label, hint, kind, default: None, required };
        // A default that its own field refuses is ignored.
        field.default = schema.get("default").filter(|value| field.check(value).is_ok()).cloned();
        Ok(field)
    }

    /// Parses what a person typed for this field. None leaves it out.
    pub fn read(&self, typed: &str) -> Result<Option<Value>, String> {
        let typed = typed.trim();
        if typed.is_empty() {
            return match (&self.default, self.required) {
                (Some(default), _) => Ok(Some(default.clone())),
                (None, false) => Ok(None),
                // An empty text is a valid text.
                (None, true) if matches!(self.kind, FormFieldKind::Text { min: 0, .. }) => {
                    Ok(Some(json!("")))
                }
                (None, true) => Err("this must be filled in".to_owned()),
            };
        }
        let value = match &self.kind {
            FormFieldKind::Text { .. } => json!(typed),
            FormFieldKind::Number { whole: true, .. } => {
                json!(typed.parse::<i64>().map_err(|_| "a whole number is wanted".to_owned())?)
            }
            FormFieldKind::Number { whole: false, .. } => {
                let number = typed.parse::<f64>().ok().and_then(Number::from_f64);
                Value::Number(number.ok_or("a number is wanted")?)
            }
            FormFieldKind::YesNo => json!(yes_or_no(typed).ok_or("y or n is wanted")?),
            FormFieldKind::Choice(options) => json!(pick(options, typed)?),
            FormFieldKind::Choices { options, .. } => {
                let picked = typed.split(',').map(|one| pick(options, one.trim()));
                json!(picked.collect::<Result<Vec<_>, _>>()?)
            }
        };
        self.check(&value)?;
        Ok(Some(value))
    }

    /// Whether the server accepts this value.
    fn check(&self, value: &Value) -> Result<(), String> {
        match &self.kind {
            FormFieldKind::Text { min, max, .. } => {
                let length = value.as_str().ok_or("a text is wanted")?.chars().count();
                let max = max.map_or(MAX_TEXT, |max| usize::try_from(max).unwrap_or(MAX_TEXT));
                within(length as f64, Some(*min as f64), Some(max as f64), "characters")
            }
            FormFieldKind::Number { whole, min, max } => {
                let number = value.as_f64().ok_or("a number is wanted")?;
                if *whole && number.fract() != 0.0 {
                    return Err("a whole number is wanted".to_owned());
                }
                within(number, *min, *max, "")
            }
            FormFieldKind::YesNo => value.as_bool().map(drop).ok_or("y or n is wanted".to_owned()),
            FormFieldKind::Choice(options) => {
                let value = value.as_str().ok_or("one of the options is wanted")?;
                known(options, value)
            }
            FormFieldKind::Choices { options, min, max } => {
                let picked = value.as_array().ok_or("some of the options are wanted")?;
                for one in picked {
                    known(options, one.as_str().ok_or("options are texts")?)?;
                }
                let max = max.map(|max| max as f64);
                within(picked.len() as f64, Some(*min as f64), max, "options")
            }
        }
    }
}

/// y, yes, n, no, in any case.
fn yes_or_no(typed: &str) -> Option<bool> {
    match typed.to_lowercase().as_str() {
        "y" | "yes" | "true" => Some(true),
        "n" | "no" | "false" => Some(false),
        _ => None,
    }
}

fn known(options: &[(String, String)], value: &str) -> Result<(), String> {
    let is_known = options.iter().any(|(known, _)| known == value);
    if is_known { Ok(()) } else { Err("that is none of the options".to_owned()) }
}

/// Finds an option by number, value or label.
fn pick(options: &[(String, String)], typed: &str) -> Result<String, String> {
    let by_name = options.iter().find(|(value, label)| value == typed || label == typed);
    let by_number = || options.get(typed.parse::<usize>().ok()?.checked_sub(1)?);
    let picked = by_name.or_else(by_number);
    picked
        .map(|(value, _)| value.clone())
        .ok_or_else(|| format!("{typed:?} is none of the options"))
}

fn within(value: f64, min: Option<f64>, max: Option<f64>, unit: &str) -> Result<(), String> {
    match (min, max) {
        (Some(min), _) if value < min => Err(format!("at least {min} {unit}").trim().to_owned()),
        (_, Some(max)) if value > max => Err(format!("at most {max} {unit}").trim().to_owned()),
        _ => Ok(()),
    }
}

/// The options of a choice, in each notation that the protocol has had.
fn options(schema: &Value) -> Result<Option<Vec<(String, String)>>, FormError> {
    let pairs = |list: &Vec<Value>| -> Option<Vec<(String, String)>> {
        list.iter()
            .map(|one| {
                let value = one.get("const")?.as_str()?;
                let label = one.get("title").and_then(Value::as_str).unwrap_or(value);
                Some((value.to_owned(), sanitize_line(label)))
            })
            .collect()
    };
    let list = |key: &str| schema.get(key).and_then(Value::as_array);
    let found = if let Some(values) = list("enum") {
        let labels = list("enumNames");
        let label = |at: usize| labels.and_then(|labels| labels.get(at)).and_then(Value::as_str);
        let pair = |(at, value): (usize, &Value)| {
            let value = value.as_str()?;
            Some((value.to_owned(), sanitize_line(label(at).unwrap_or(value))))
        };
        values.iter().enumerate().map(pair).collect()
    } else if let Some(choices) = list("oneOf").or_else(|| list("anyOf")) {
        pairs(choices)
    } else {
        return Ok(None);
    };
    let found: Vec<_> = found.ok_or_else(|| FormError("an option is no text".to_owned()))?;
    if found.is_empty() || found.len() > MAX_OPTIONS {
        return Err(FormError(format!("it has {} options", found.len())));
    }
    Ok(Some(found))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn form(properties: Value, required: &[&str]) -> ElicitationForm {
        let schema = json!({ "type": "object", "properties": properties, "required": required });
        ElicitationForm::parse("これでよいですか", &schema).unwrap()
    }

    #[test]
    fn each_kind_of_field_reads_what_is_typed_or_says_what_it_wants() {
        let form = form(
            json!({
                "name": { "type": "string", "minLength": 2, "maxLength": 5 },
                "count": { "type": "integer", "minimum": 1, "maximum": 9, "default": 3 },
                "rate": { "type": "number" },
                "sure": { "type": "boolean" },
                "class": { "type": "string", "enum": ["eco", "biz"], "enumNames": ["Economy", "Business"], "default": "eco" },
                "seat": { "type": "string", "oneOf": [{ "const": "w", "title": "窓側" }, { "const": "a" }] },
                "meals": { "type": "array", "minItems": 1, "maxItems": 2, "items": { "anyOf": [{ "const": "b" }, { "const": "l" }, { "const": "d" }] } },
            }),
            &["name", "sure"],
        );
        let field = |name: &str| form.fields.iter().find(|field| field.name == name).unwrap();
        for (name, typed, wanted) in [
            ("name", " 太郎 ", Ok(Some(json!("太郎")))),
            ("name", "x", Err("at least 2 characters")),
            ("name", "toolong", Err("at most 5 characters")),
            ("name", "", Err("this must be filled in")),
            ("count", "", Ok(Some(json!(3)))),
            ("count", "9", Ok(Some(json!(9)))),
            ("count", "10", Err("at most 9")),
            ("count", "2.5", Err("a whole number is wanted")),
            ("rate", "2.5", Ok(Some(json!(2.5)))),
            ("rate", "NaN", Err("a number is wanted")),
            ("rate", "", Ok(None)),
            ("sure", "Yes", Ok(Some(json!(true)))),
            ("sure", "n", Ok(Some(json!(false)))),
            ("sure", "maybe", Err("y or n is wanted")),
            ("class", "Business", Ok(Some(json!("biz")))),
            ("class", "2", Ok(Some(json!("biz")))),
            ("class", "", Ok(Some(json!("eco")))),
            ("class", "0", Err("\"0\" is none of the options")),
            ("seat", "窓側", Ok(Some(json!("w")))),
            ("meals", "b, 3", Ok(Some(json!(["b", "d"])))),
            ("meals", "b,l,d", Err("at most 2 options")),
        ] {
            let read = field(name).read(typed);
            assert_eq!(read, wanted.map_err(str::to_owned), "{name} ← {typed:?}");
        }
    }

    #[test]
    fn a_confirmation_is_answered_by_one_word() {
        let asked = form(
            json!({ "confirm": { "type": "boolean" }, "notes": { "type": "string" } }),
            &["confirm", "notes"],
        );
        assert!(asked.is_confirmation());
        assert_eq!(
            asked.confirmation_answer(true).to_result(),
            json!({ "action": "accept", "content": { "confirm": true, "notes": "Confirmed by user" } })
        );
        assert_eq!(
            asked.confirmation_answer(false).to_result(),
            json!({ "action": "decline", "content": { "confirm": false, "notes": "Declined by user" } })
        );
        let more =
            form(json!({ "confirm": { "type": "boolean" }, "n": { "type": "number" } }), &[]);
        assert!(!more.is_confirmation());
    }

    #[test]
    fn a_yes_beforehand_fills_in_defaults_and_invents_nothing() {
        let with = |required: &[&str]| {
            form(
                json!({ "city": { "type": "string" }, "ok": { "type": "boolean" }, "n": { "type": "integer", "default": 2 } }),
                required,
            )
            .default_answer()
        };
        let agreed = json!({ "ok": true, "n": 2 });
        assert_eq!(with(&["ok"]), FormAnswer::Accept(agreed.as_object().unwrap().clone()));
        assert_eq!(with(&["city"]), FormAnswer::Decline(Map::new()));
    }

    #[test]
    fn a_schema_that_cannot_be_a_form_is_refused() {
        for properties in [
            json!([]),
            json!({ "x": { "type": "object" } }),
            json!({ "x": {} }),
            json!({ "x": "string" }),
            json!({ "x": { "type": "array", "items": { "type": "string" } } }),
            json!({ "x": { "type": "string", "enum": [] } }),
            json!({ "x": { "type": "string", "enum": [1] } }),
        ] {
            let schema = json!({ "properties": properties });
            assert!(ElicitationForm::parse("?", &schema).is_err(), "{schema}");
        }
        let many: Map<_, _> =
            (0..51).map(|n| (format!("f{n}"), json!({ "type": "boolean" }))).collect();
        assert!(ElicitationForm::parse("?", &json!({ "properties": many })).is_err());
        // An invalid default is ignored, and labels are sanitised.
        let odd = form(
            json!({ "x": { "type": "integer", "default": "rm", "title": "\u{1b}[2Jx" } }),
            &[],
        );
        assert_eq!((odd.fields[0].default.clone(), odd.fields[0].label.as_str()), (None, "x"));
    }
}
