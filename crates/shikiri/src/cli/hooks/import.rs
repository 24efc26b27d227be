//! `shikiri hooks import`: claude-nagger's YAML files as conventions.

use std::path::{Path, PathBuf};

use clap::{Args, ValueHint};
use serde_json::{Map, Value};
use shikiri_hook::conventions_file;
use shikiri_openapi::read_yaml;
use toml::Table;

use super::problems::problems;
use crate::exit::{Exit, Failure};
use crate::output::{Output, note};
use crate::text::one_line;

/// A convention file is written by hand.
const MOST_BYTES: u64 = 1024 * 1024;

#[derive(Args)]
pub(super) struct Import {
    /// Its config.yaml, file_conventions.yaml, command_conventions.yaml …
    #[arg(required = true, value_hint = ValueHint::FilePath)]
    files: Vec<PathBuf>,
}

/// What the files say, in the form of our own.
#[derive(Default)]
struct Imported {
    conventions: Table,
    rules: Vec<toml::Value>,
    /// What has no counterpart.
    left_out: Vec<String>,
}

impl Import {
    /// Prints the conventions, for a person to read before they become a file.
    pub(super) fn run(&self) -> Result<(), Failure> {
        let mut imported = Imported::default();
        for file in &self.files {
            let document = read(file)?;
            imported.take(&document, &file_name(file));
        }
        let Imported { mut conventions, rules, left_out } = imported;
        if !rules.is_empty() {
            conventions.insert("rules".to_owned(), toml::Value::Array(rules));
        }
        let text = toml::to_string_pretty(&conventions)
            .map_err(|error| Failure::new(Exit::Failed, error.to_string(), "report this"))?;
        Output::stdout().line(text.trim_end())?;
        for line in left_out {
            note(&format!("left out: {}", one_line(&line)));
        }
        let parsed = conventions_file::parse(&text)
            .map_err(|error| Failure::new(Exit::Failed, error.to_string(), "report this"))?;
        for problem in problems(&text, &parsed) {
            note(&format!("to be mended: {}", one_line(&problem.problem)));
        }
        Ok(())
    }
}

fn file_name(file: &Path) -> String {
    file.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn read(file: &Path) -> Result<Value, Failure> {
    let failed = |reason: String| {
        let what = format!("{}: {reason}", file.display());
        Failure::new(Exit::Failed, what, "name a YAML file of claude-nagger")
    };
    let length = std::fs::metadata(file).map_err(|error| failed(error.to_string()))?.len();
    if length > MOST_BYTES {
        return Err(failed("it is larger than 1 MiB".to_owned()));
    }
    let text = std::fs::read_to_string(file).map_err(|error| failed(error.to_string()))?;
    read_yaml(&text).map_err(|error| failed(error.to_string()))
}

impl Imported {
    fn take(&mut self, document: &Value, file: &str) {
        let Some(fields) = document.as_object() else {
            self.left_out.push(format!("{file}: it is no map"));
            return;
        };
        for (key, value) in fields {
            match (key.as_str(), value) {
                ("rules", Value::Array(rules)) => {
                    rules.iter().for_each(|rule| self.take_rule(rule, file));
                }
                ("session_startup", Value::Object(startup)) => self.take_startup(startup, file),
                _ => self.left_out.push(format!("{file}: {key}")),
            }
        }
    }

    fn take_startup(&mut self, startup: &Map<String, Value>, file: &str) {
        if let Some(main) = text_table(startup) {
            self.conventions.insert("main".to_owned(), main.into());
        }
        let overrides = startup.get("overrides");
        let default = overrides.and_then(|it| it.get("subagent_default")?.as_object());
        if let Some(default) = default.and_then(text_table) {
            self.conventions.insert("default".to_owned(), default.into());
        }
        let types = overrides.and_then(|it| it.get("subagent_types")?.as_object());
        for (name, fields) in types.into_iter().flatten() {
            let Some(fields) = fields.as_object() else { continue };
            let is_off = fields.get("enabled") == Some(&Value::Bool(false));
            let (group, table) = match text_table(fields) {
                _ if is_off => {
                    ("agent_types", [("enabled".to_owned(), false.into())].into_iter().collect())
                }
                Some(table) => ("roles", table),
                None => {
                    self.left_out.push(format!("{file}: subagent_types.{name} without a text"));
                    continue;
                }
            };
            let group = self.conventions.entry(group).or_insert_with(|| Table::new().into());
            if let Some(group) = group.as_table_mut() {
                group.insert(name.clone(), table.into());
            }
        }
    }

    fn take_rule(&mut self, rule: &Value, file: &str) {
        let text = |field: &str| rule[field].as_str().map(str::to_owned);
        let name = text("name").unwrap_or_else(|| format!("rule {}", self.rules.len() + 1));
        let mut table = Table::new();
        let mut put = |key: &str, values: Vec<String>| {
            if !values.is_empty() {
                table.insert(key.to_owned(), values.into());
            }
        };
        let patterns = [texts(&rule["patterns"]), texts(&rule["pattern"])].concat();
        if let Some(pattern) = text("tool_pattern") {
            let (tools, odd) = tool_names(&pattern);
            self.left_out.extend(odd.map(|odd| format!("{file}: {name}: tool_pattern {odd}")));
            put("tools", tools);
        } else if file.contains("command") {
            put("tools", vec!["Bash".to_owned()]);
            put("commands", patterns);
        } else {
            put("tools", ["Write", "Edit", "NotebookEdit"].map(str::to_owned).to_vec());
            put("paths", patterns);
            put("exclude_paths", texts(&rule["exclude_patterns"]));
        }
        let role = |role: String| if role == "leader" { "main".to_owned() } else { role };
        put("roles", texts(&rule["scope"]).into_iter().map(role).collect());
        let severity = match text("severity").as_deref() {
            Some("deny") => "block",
            Some("block") => "once",
            Some("info") => "info",
            _ => "warn",
        };
        table.insert("severity".to_owned(), severity.into());
        table.insert("message".to_owned(), text("message").unwrap_or_default().trim().into());
        if let Some(tokens) = rule["token_threshold"].as_i64() {
            table.insert("token_threshold".to_owned(), tokens.into());
        }
        table.insert("name".to_owned(), name.into());
        self.rules.push(table.into());
    }
}

/// The first text of a session or a kind of subagent.
fn text_table(fields: &Map<String, Value>) -> Option<Table> {
    let first = fields.get("messages")?.get("first_time")?;
    let parts = ["title", "main_text"].map(|field| first[field].as_str().unwrap_or("").trim());
    let parts: Vec<&str> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    let mut table = Table::new();
    table.insert("text".to_owned(), parts.join("\n\n").into());
    let is_denied = matches!(first["severity"].as_str(), Some("block" | "deny"));
    if is_denied {
        table.insert("delivery".to_owned(), "block".into());
    }
    (!parts.is_empty()).then_some(table)
}

fn texts(value: &Value) -> Vec<String> {
    match value {
        Value::String(text) => vec![text.clone()],
        Value::Array(items) => items.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
        _ => Vec::new(),
    }
}

/// A regular expression for tools as our patterns, and itself if that cannot be.
fn tool_names(pattern: &str) -> (Vec<String>, Option<String>) {
    let bare = pattern.trim_start_matches('^').trim_end_matches('$');
    let bare = bare.strip_prefix('(').and_then(|rest| rest.strip_suffix(')')).unwrap_or(bare);
    let names = bare.split('|').map(|name| name.replace(".*", "*").replace(".+", "*"));
    let names: Vec<String> = names.collect();
    let is_plain = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '*');
    let is_odd = names.iter().any(|name| !name.chars().all(is_plain));
    (names, is_odd.then(|| pattern.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_and_texts_are_taken_over() {
        let files = [
            (
                "config.yaml",
                "session_startup:\n  enabled: true\n  messages:\n    first_time:\n      \
                 title: Rules\n      main_text: Read them.\n      severity: block\n  \
                 overrides:\n    subagent_types:\n      Explore:\n        enabled: false\n      \
                 tester:\n        messages:\n          first_time: {title: Test}\n\
                 context_management: {}\n",
            ),
            (
                "command_conventions.yaml",
                "rules:\n- name: Git\n  patterns: ['git push*']\n  severity: block\n  \
                 scope: leader\n  token_threshold: 20000\n  message: |\n    Ask first.\n",
            ),
            (
                "mcp.yaml",
                "rules:\n- name: GitHub\n  tool_pattern: '^mcp__github__.*|Edit$'\n  \
                 severity: deny\n  message: no\n",
            ),
        ];
        let mut imported = Imported::default();
        for (file, text) in files {
            imported.take(&read_yaml(text).unwrap(), file);
        }
        imported.conventions.insert("rules".to_owned(), imported.rules.into());
        insta::assert_snapshot!(toml::to_string_pretty(&imported.conventions).unwrap(), @r##"
        [agent_types.Explore]
        enabled = false

        [main]
        delivery = "block"
        text = """
        Rules

        Read them."""

        [roles.tester]
        text = "Test"

        [[rules]]
        commands = ["git push*"]
        message = "Ask first."
        name = "Git"
        roles = ["main"]
        severity = "once"
        token_threshold = 20000
        tools = ["Bash"]

        [[rules]]
        message = "no"
        name = "GitHub"
        severity = "block"
        tools = [
            "mcp__github__*",
            "Edit",
        ]
        "##);
        assert_eq!(imported.left_out, ["config.yaml: context_management"]);
    }
}
