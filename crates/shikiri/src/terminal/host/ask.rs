//! Forms at a terminal: one field after the other.

use std::sync::Arc;

use serde_json::{Map, Value};
use shikiri_model::host::{Answer, Field, FieldKind, Form, clean, clean_line};

use super::editor::Typed;
use super::screen::{Keyboard, Screen};
use crate::output::{Output, Style};

pub(super) enum Said {
    Yes,
    No,
    /// Neither: the question was left.
    Nothing,
}

/// What came of one field.
enum Filled {
    Value(Option<Value>),
    Answer(Answer),
}

/// Puts a form before the person who has the keyboard.
pub(super) async fn fill_in(
    screen: &Arc<Screen>,
    keyboard: &Keyboard,
    who: &str,
    form: &Form,
) -> Answer {
    let output = Output::stderr();
    let message = clean(&form.message);
    screen.say(&format!(
        "{} {}",
        output.paint(Style::Bold, &format!("{who} asks:")),
        message.trim()
    ));
    if form.is_confirmation() {
        return match yes_or_no(screen, keyboard, "Yes or no? (y/n) ").await {
            Said::Yes => form.confirmed(true),
            Said::No => form.confirmed(false),
            Said::Nothing => Answer::Cancel,
        };
    }
    let help = "An empty line takes what is in brackets; !decline declines, !cancel cancels.";
    screen.say(&output.paint(Style::Dim, help));
    let mut content = Map::new();
    for field in &form.fields {
        match one(screen, keyboard, field).await {
            Filled::Value(Some(value)) => drop(content.insert(field.name.clone(), value)),
            Filled::Value(None) => {}
            Filled::Answer(answer) => return answer,
        }
    }
    Answer::Accept(content)
}

async fn one(screen: &Arc<Screen>, keyboard: &Keyboard, field: &Field) -> Filled {
    explain(field).iter().for_each(|line| screen.say(line));
    let label = label(field);
    loop {
        let typed = match screen.read_answer(keyboard, &label).await {
            Typed::Line(typed) => typed,
            Typed::Interrupt => {
                screen.interrupt();
                return Filled::Answer(Answer::Cancel);
            }
            Typed::End | Typed::Broken(_) => return Filled::Answer(Answer::Cancel),
        };
        match typed.trim() {
            "!cancel" => return Filled::Answer(Answer::Cancel),
            "!decline" => return Filled::Answer(Answer::Decline(Map::new())),
            typed => match field.read(typed) {
                Ok(value) => return Filled::Value(value),
                Err(why) => screen.say(&wrong(&why)),
            },
        }
    }
}

/// Only a clear yes is one: whatever else is typed is no.
pub(super) async fn yes_or_no(screen: &Arc<Screen>, keyboard: &Keyboard, label: &str) -> Said {
    let typed = match screen.read_answer(keyboard, label).await {
        Typed::Line(typed) => typed,
        Typed::Interrupt => {
            screen.interrupt();
            return Said::Nothing;
        }
        Typed::End | Typed::Broken(_) => return Said::Nothing,
    };
    match typed.trim().to_lowercase().as_str() {
        "y" | "yes" => Said::Yes,
        "!cancel" => Said::Nothing,
        _ => Said::No,
    }
}

fn wrong(why: &str) -> String {
    Output::stderr().paint(Style::Bad, &format!("  {}", clean_line(why)))
}

/// What stands above a field: its hint and its options.
fn explain(field: &Field) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(hint) = &field.hint {
        lines.push(Output::stderr().paint(Style::Dim, &format!("  {}", clean_line(hint))));
    }
    let options = match &field.kind {
        FieldKind::Choice(options) | FieldKind::Choices { options, .. } => options.as_slice(),
        _ => &[],
    };
    for (at, (value, label)) in options.iter().enumerate() {
        let (value, label) = (clean_line(value), clean_line(label));
        let told = if value == label { label } else { format!("{label} ({value})") };
        lines.push(format!("  {}. {told}", at + 1));
    }
    lines
}

fn label(field: &Field) -> String {
    let kind = match &field.kind {
        FieldKind::Text { format, .. } => {
            format.as_deref().map_or_else(|| "text".to_owned(), clean_line)
        }
        FieldKind::Number { whole: true, .. } => "whole number".to_owned(),
        FieldKind::Number { whole: false, .. } => "number".to_owned(),
        FieldKind::YesNo => "y/n".to_owned(),
        FieldKind::Choice(_) => "one of them".to_owned(),
        FieldKind::Choices { .. } => "some, with commas".to_owned(),
    };
    let must = if field.required || field.default.is_some() { "" } else { ", may be empty" };
    let default = field.default.as_ref().map(|value| format!(" [{}]", shown(value)));
    format!("{} ({kind}{must}){}: ", clean_line(&field.label), default.unwrap_or_default())
}

fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => clean_line(text),
        Value::Bool(true) => "y".to_owned(),
        Value::Bool(false) => "n".to_owned(),
        Value::Array(all) => all.iter().map(shown).collect::<Vec<_>>().join(","),
        other => clean_line(&other.to_string()),
    }
}

/// An argument of a tool that is no field of a form: JSON, or a text.
pub(super) async fn free(
    screen: &Arc<Screen>,
    keyboard: &Keyboard,
    name: &str,
    required: bool,
) -> Option<Option<Value>> {
    let must = if required { "" } else { ", may be empty" };
    let label = format!("{} (JSON{must}): ", clean_line(name));
    loop {
        let Typed::Line(typed) = screen.read_answer(keyboard, &label).await else { return None };
        match typed.trim() {
            "!cancel" => return None,
            "" if !required => return Some(None),
            "" => screen.say(&wrong("this must be filled in")),
            typed => {
                let text = || Value::String(typed.to_owned());
                return Some(Some(serde_json::from_str(typed).unwrap_or_else(|_| text())));
            }
        }
    }
}

impl Screen {
    /// The arguments of a tool, asked for one after the other. None if the person thinks better.
    pub(crate) async fn ask_arguments(
        self: &Arc<Self>,
        arguments: &[(&str, &Value, bool)],
    ) -> Option<Map<String, Value>> {
        let keyboard = self.keyboard().await;
        let mut filled = Map::new();
        for (name, schema, required) in arguments {
            let required_names = if *required { vec![*name] } else { Vec::new() };
            let schema = serde_json::json!({
                "properties": { *name: schema },
                "required": required_names,
            });
            let value =
                match Form::parse("", &schema).ok().and_then(|form| form.fields.into_iter().next())
                {
                    Some(field) => match one(self, &keyboard, &field).await {
                        Filled::Value(value) => value,
                        Filled::Answer(_) => return None,
                    },
                    None => free(self, &keyboard, name, *required).await?,
                };
            if let Some(value) = value {
                filled.insert((*name).to_owned(), value);
            }
        }
        Some(filled)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn field(schema: Value, required: &[&str]) -> Field {
        let schema = json!({ "properties": { "x": schema }, "required": required });
        Form::parse("?", &schema).unwrap().fields.remove(0)
    }

    #[test]
    fn a_field_is_told_with_its_kind_and_its_default() {
        for (schema, required, told) in [
            (json!({ "type": "string", "title": "行き先" }), &["x"][..], "行き先 (text): "),
            (json!({ "type": "integer", "default": 3 }), &[], "x (whole number) [3]: "),
            (json!({ "type": "boolean", "default": true }), &[], "x (y/n) [y]: "),
            (json!({ "type": "string", "format": "email" }), &[], "x (email, may be empty): "),
            (
                json!({ "type": "string", "enum": ["a"], "default": "a" }),
                &[],
                "x (one of them) [a]: ",
            ),
            (json!({ "type": "string", "title": "\u{1b}[2Jbad\u{9b}1m" }), &["x"], "bad (text): "),
        ] {
            assert_eq!(label(&field(schema, required)), told);
        }
    }

    #[test]
    fn options_are_numbered_and_clean() {
        let schema = json!({
            "type": "string", "description": "hint\u{7}",
            "enum": ["eco", "b\u{1b}[31miz"], "enumNames": ["Economy"],
        });
        let told = explain(&field(schema, &[]));
        assert_eq!(told, ["  hint", "  1. Economy (eco)", "  2. biz"]);
    }
}
