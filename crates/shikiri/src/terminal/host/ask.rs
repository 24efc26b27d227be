//! Forms at a terminal, field by field.

use std::sync::Arc;

use serde_json::{Map, Value};
use shikiri_model::host::{
    ElicitationForm, FormAnswer, FormField, FormFieldKind, sanitize_line, sanitize_text,
};

use super::editor::Typed;
use super::screen::{Keyboard, Screen};
use crate::output::{Output, Style};

pub(super) enum Said {
    Yes,
    No,
    /// The person left the question.
    Nothing,
}

/// The result of one field.
enum Filled {
    Value(Option<Value>),
    Answer(FormAnswer),
}

/// Shows a form to the person who has the keyboard.
pub(super) async fn fill_in(
    screen: &Arc<Screen>,
    keyboard: &Keyboard,
    who: &str,
    form: &ElicitationForm,
) -> FormAnswer {
    let output = Output::stderr();
    let message = sanitize_text(&form.message);
    screen.say(&format!(
        "{} {}",
        output.paint(Style::Bold, &format!("{who} asks:")),
        message.trim()
    ));
    if form.is_confirmation() {
        return match yes_or_no(screen, keyboard, "Yes or no? (y/n) ").await {
            Said::Yes => form.confirmation_answer(true),
            Said::No => form.confirmation_answer(false),
            Said::Nothing => FormAnswer::Cancel,
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
    FormAnswer::Accept(content)
}

async fn one(screen: &Arc<Screen>, keyboard: &Keyboard, field: &FormField) -> Filled {
    explain(field).iter().for_each(|line| screen.say(line));
    let label = label(field);
    loop {
        let typed = match screen.read_answer(keyboard, &label).await {
            Typed::Line(typed) => typed,
            Typed::Interrupt => {
                screen.interrupt();
                return Filled::Answer(FormAnswer::Cancel);
            }
            Typed::End | Typed::Broken(_) => return Filled::Answer(FormAnswer::Cancel),
        };
        match typed.trim() {
            "!cancel" => return Filled::Answer(FormAnswer::Cancel),
            "!decline" => return Filled::Answer(FormAnswer::Decline(Map::new())),
            typed => match field.read(typed) {
                Ok(value) => return Filled::Value(value),
                Err(why) => screen.say(&wrong(&why)),
            },
        }
    }
}

/// Only a clear yes counts; everything else is no.
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
    Output::stderr().paint(Style::Bad, &format!("  {}", sanitize_line(why)))
}

/// The lines above a field: its hint and its options.
fn explain(field: &FormField) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(hint) = &field.hint {
        lines.push(Output::stderr().paint(Style::Dim, &format!("  {}", sanitize_line(hint))));
    }
    let options = match &field.kind {
        FormFieldKind::Choice(options) | FormFieldKind::Choices { options, .. } => {
            options.as_slice()
        }
        _ => &[],
    };
    for (at, (value, label)) in options.iter().enumerate() {
        let (value, label) = (sanitize_line(value), sanitize_line(label));
        let told = if value == label { label } else { format!("{label} ({value})") };
        lines.push(format!("  {}. {told}", at + 1));
    }
    lines
}

fn label(field: &FormField) -> String {
    let kind = match &field.kind {
        FormFieldKind::Text { format, .. } => {
            format.as_deref().map_or_else(|| "text".to_owned(), sanitize_line)
        }
        FormFieldKind::Number { whole: true, .. } => "whole number".to_owned(),
        FormFieldKind::Number { whole: false, .. } => "number".to_owned(),
        FormFieldKind::YesNo => "y/n".to_owned(),
        FormFieldKind::Choice(_) => "one of them".to_owned(),
        FormFieldKind::Choices { .. } => "some, with commas".to_owned(),
    };
    let must = if field.required || field.default.is_some() { "" } else { ", may be empty" };
    let default = field.default.as_ref().map(|value| format!(" [{}]", shown(value)));
    format!("{} ({kind}{must}){}: ", sanitize_line(&field.label), default.unwrap_or_default())
}

fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => sanitize_line(text),
        Value::Bool(true) => "y".to_owned(),
        Value::Bool(false) => "n".to_owned(),
        Value::Array(all) => all.iter().map(shown).collect::<Vec<_>>().join(","),
        other => sanitize_line(&other.to_string()),
    }
}

/// An argument that is no field of a form: JSON or text.
pub(super) async fn free(
    screen: &Arc<Screen>,
    keyboard: &Keyboard,
    name: &str,
    required: bool,
) -> Option<Option<Value>> {
    let must = if required { "" } else { ", may be empty" };
    let label = format!("{} (JSON{must}): ", sanitize_line(name));
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
    /// Asks for a tool's arguments one by one. None if the person cancels.
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
            let value = match ElicitationForm::parse("", &schema)
                .ok()
                .and_then(|form| form.fields.into_iter().next())
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

    fn field(schema: Value, required: &[&str]) -> FormField {
        let schema = json!({ "properties": { "x": schema }, "required": required });
        ElicitationForm::parse("?", &schema).unwrap().fields.remove(0)
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
