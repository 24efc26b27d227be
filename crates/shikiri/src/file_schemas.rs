//! JSON Schemas of the files that people write, made from the types that read them, for editors.

use clap::ValueEnum;
use schemars::Schema;
use serde_json::{Value, json};
use shikiri_model::hook::Conventions;
use shikiri_model::host::plan::HostPlan;

use crate::config::Settings;
use crate::config::table::{ProjectRule, Setting};

/// A file with a schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum FileSchema {
    Config,
    Conventions,
    Providers,
    Plan,
}

impl FileSchema {
    pub fn name(self) -> &'static str {
        match self {
            Self::Config => "config",
            Self::Conventions => "conventions",
            Self::Providers => "providers",
            Self::Plan => "plan",
        }
    }

    /// The files that it describes.
    pub fn files(self) -> &'static str {
        match self {
            Self::Config => "shikiri.toml, and shikiri/config.toml in ~/.config",
            Self::Conventions => ".shikiri/conventions.toml: the rules of Claude Code's agents",
            Self::Providers => ".shikiri/providers.toml: the pages of ChatGPT and Gemini",
            Self::Plan => "a plan of tool calls, for `shikiri host run`",
        }
    }

    /// The schema, in JSON.
    pub fn document(self) -> Value {
        let schema = match self {
            Self::Config => described_settings(),
            Self::Conventions => schemars::schema_for!(Conventions),
            Self::Providers => shikiri_browser::provider_file_schema(),
            Self::Plan => schemars::schema_for!(HostPlan),
        };
        let mut document = Value::from(schema);
        remove_null(&mut document);
        document["title"] = json!(self.files());
        document
    }
}

/// The settings with the texts of their table.
fn described_settings() -> Schema {
    let mut schema = schemars::schema_for!(Settings);
    let properties = schema.get_mut("properties").and_then(Value::as_object_mut);
    for (key, property) in properties.into_iter().flatten() {
        let Some(setting) = Setting::all().find(|setting| setting.key == key) else { continue };
        property["description"] = json!(description(setting));
    }
    schema
}

fn description(setting: &Setting) -> String {
    let mut lines = vec![setting.about()];
    lines.extend(setting.details.iter().map(|line| line.trim().to_owned()));
    if matches!(setting.project, ProjectRule::Never) {
        lines.push("It never counts in a project's own file.".to_owned());
    }
    lines.join("\n")
}

/// TOML has no null: what is optional is left out.
fn remove_null(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            if fields.get("default").is_some_and(Value::is_null) {
                fields.remove("default");
            }
            if let Some(Value::Array(types)) = fields.get_mut("type") {
                types.retain(|name| name != "null");
                if let [only] = types.as_slice() {
                    let only = only.clone();
                    fields.insert("type".to_owned(), only);
                }
            }
            if let Some(Value::Array(choices)) = fields.get_mut("anyOf") {
                choices.retain(|choice| *choice != json!({ "type": "null" }));
            }
            fields.values_mut().for_each(remove_null);
        }
        Value::Array(items) => items.iter_mut().for_each(remove_null),
        _ => {}
    }
}
