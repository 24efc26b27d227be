//! `.shikiri/conventions.toml`: the texts for each kind of agent, and the rules for its tools.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::role_source::without_number;

/// Claude Code shows a model at most about 10,000 characters of context from a hook, and writes
/// longer texts to a file.
pub const LONGEST_TEXT: usize = 9_000;

#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Conventions {
    /// For the main agent.
    pub main: Option<ConventionText>,
    /// For agents whose role is unknown.
    pub default: Option<ConventionText>,
    pub roles: BTreeMap<String, ConventionText>,
    pub agent_types: BTreeMap<String, ConventionText>,
    pub rules: Vec<ToolRule>,
    /// What becomes of tool calls while the rules cannot be evaluated.
    pub on_error: OnError,
    /// Deny agents to change this file.
    #[serde(default = "yes")]
    pub protect_conventions: bool,
    /// Why the file could not be read. Then only `on_error` and `protect_conventions` hold.
    #[serde(skip)]
    pub problem: Option<String>,
}

/// Files are protected unless they say otherwise. Without a file there is nothing to protect.
fn yes() -> bool {
    true
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnError {
    /// They go on.
    #[default]
    Allow,
    /// They are denied, with the reason.
    Deny,
}

/// A text and the way it is delivered.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ConventionText {
    pub text: String,
    /// If false, the agent is recorded and gets no text.
    pub enabled: bool,
    pub delivery: ConventionDelivery,
    /// Repeat the text after this many more tokens.
    pub token_threshold: Option<u64>,
}

impl Default for ConventionText {
    fn default() -> Self {
        Self {
            text: String::new(),
            enabled: true,
            delivery: ConventionDelivery::Context,
            token_threshold: None,
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ConventionDelivery {
    /// As context, at the agent's start or with its first tool call. In the prompt if the agent
    /// starts beside others of its type that get another text.
    #[default]
    Context,
    /// The first tool call is denied, with the text as the reason.
    Block,
    /// Written before the prompt of the call that spawns the agent.
    Prompt,
}

/// A rule that comments on a tool call or refuses it.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ToolRule {
    pub name: String,
    /// Patterns of tool names. Empty: every tool.
    pub tools: Vec<String>,
    /// Patterns of files. One of them must match the tool's file.
    pub paths: Vec<String>,
    /// Patterns of files that the rule does not apply to.
    pub exclude_paths: Vec<String>,
    /// Patterns of commands. One of them must match a command that the tool runs.
    pub commands: Vec<String>,
    /// Patterns of fields of the tool's input, by name; `a.b` is a field of an object. All of them
    /// must match.
    #[serde(rename = "match")]
    pub fields: BTreeMap<String, String>,
    /// Roles that the rule applies to. Empty: all. `main` is the main agent.
    pub roles: Vec<String>,
    pub severity: RuleSeverity,
    pub message: String,
    /// Repeat the message only after this many more tokens.
    pub token_threshold: Option<u64>,
}

#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum RuleSeverity {
    /// Given to each agent once.
    #[default]
    Info,
    /// Given every time.
    Warn,
    /// An agent's first call is denied, with the message as the reason.
    Once,
    /// A person is asked before each call.
    Ask,
    /// The call is denied.
    Block,
}

/// The part of the file that applies to an agent. It is recorded, so that no text is delivered
/// twice.
#[derive(Clone, Debug, PartialEq)]
pub struct SelectedConvention<'a> {
    pub key: String,
    pub convention: &'a ConventionText,
}

impl Conventions {
    /// Errors that deserialising does not find, each with its place in the file.
    pub fn validation_errors(&self) -> Vec<String> {
        let mut faults = Vec::new();
        let named = self.roles.iter().map(|(name, c)| (format!("roles.{name}"), c));
        let typed = self.agent_types.iter().map(|(name, c)| (format!("agent_types.{name}"), c));
        let single = [("main", &self.main), ("default", &self.default)];
        let single =
            single.into_iter().filter_map(|(name, c)| Some((name.to_owned(), c.as_ref()?)));
        for (place, convention) in single.chain(named).chain(typed) {
            let length = convention.text.chars().count();
            if length >= LONGEST_TEXT {
                faults.push(format!(
                    "[{place}] text has {length} characters: at most {} reach the model whole",
                    LONGEST_TEXT - 1
                ));
            }
            if convention.enabled && convention.text.trim().is_empty() {
                faults.push(format!("[{place}] has no text: write one, or `enabled = false`"));
            }
        }
        for (number, rule) in self.rules.iter().enumerate() {
            let place = format!("rule {} ({:?})", number + 1, rule.name);
            if rule.message.trim().is_empty() {
                faults.push(format!("{place} has no message"));
            }
            if rule.message.chars().count() >= LONGEST_TEXT {
                faults.push(format!("{place}: the message is longer than reaches the model whole"));
            }
            if rule.name.trim().is_empty() {
                faults.push(format!("{place} has no name"));
            }
            if rule.fields.keys().any(|field| field.trim().is_empty()) {
                faults.push(format!("{place} matches a field without a name"));
            }
            if !rule.paths.is_empty() && !rule.commands.is_empty() {
                faults.push(format!("{place} has paths and commands: make two rules of it"));
            }
        }
        faults
    }

    /// The name under which a role is configured: as given, without a plugin's prefix, or without a
    /// number at the end.
    pub fn role_named(&self, name: &str) -> Option<&str> {
        key_of(&self.roles, name)
    }

    /// The text for a subagent: by its role, else by its type, else the default.
    pub fn for_subagent(
        &self,
        role: Option<&str>,
        agent_type: &str,
    ) -> Option<SelectedConvention<'_>> {
        let by_role = role.and_then(|role| self.role_named(role));
        if let Some(name) = by_role {
            return Some(SelectedConvention {
                key: format!("roles.{name}"),
                convention: &self.roles[name],
            });
        }
        if let Some(name) = key_of(&self.agent_types, agent_type) {
            let convention = &self.agent_types[name];
            return Some(SelectedConvention { key: format!("agent_types.{name}"), convention });
        }
        let convention = self.default.as_ref()?;
        Some(SelectedConvention { key: "default".to_owned(), convention })
    }

    pub fn for_main(&self) -> Option<SelectedConvention<'_>> {
        let convention = self.main.as_ref()?;
        Some(SelectedConvention { key: "main".to_owned(), convention })
    }
}

impl SelectedConvention<'_> {
    /// Whether the file has any text.
    pub fn has_text(&self) -> bool {
        self.convention.enabled && !self.convention.text.trim().is_empty()
    }
}

fn key_of<'a>(table: &'a BTreeMap<String, ConventionText>, name: &str) -> Option<&'a str> {
    let bare = name.rsplit(':').next().unwrap_or(name);
    [name, bare, without_number(name), without_number(bare)]
        .into_iter()
        .find_map(|name| table.get_key_value(name))
        .map(|(key, _)| key.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn convention(text: &str) -> ConventionText {
        ConventionText { text: text.to_owned(), ..ConventionText::default() }
    }

    fn table(names: &[&str]) -> BTreeMap<String, ConventionText> {
        names.iter().map(|name| ((*name).to_owned(), convention(name))).collect()
    }

    #[test]
    fn a_role_goes_before_a_type_and_a_type_before_the_default() {
        let conventions = Conventions {
            roles: table(&["tester", "coder"]),
            agent_types: table(&["Explore", "tester"]),
            default: Some(convention("その他")),
            ..Conventions::default()
        };
        let chosen = |role, kind| conventions.for_subagent(role, kind).unwrap().key;
        assert_eq!(chosen(Some("tester"), "Explore"), "roles.tester");
        assert_eq!(chosen(Some("coder-2"), "x"), "roles.coder");
        assert_eq!(chosen(Some("shikiri:coder"), "x"), "roles.coder");
        assert_eq!(chosen(Some("unknown"), "Explore"), "agent_types.Explore");
        assert_eq!(chosen(None, "tester"), "agent_types.tester");
        assert_eq!(chosen(None, "general-purpose"), "default");
        assert_eq!(Conventions::default().for_subagent(None, "x"), None);
    }

    #[test]
    fn faults_are_named_with_their_place() {
        let conventions = Conventions {
            main: Some(convention(" ")),
            roles: [("long".to_owned(), convention(&"長".repeat(9_000)))].into(),
            rules: vec![ToolRule {
                paths: vec!["a".to_owned()],
                commands: vec!["b".to_owned()],
                ..ToolRule::default()
            }],
            ..Conventions::default()
        };
        insta::assert_snapshot!(conventions.validation_errors().join("\n"), @r#"
        [main] has no text: write one, or `enabled = false`
        [roles.long] text has 9000 characters: at most 8999 reach the model whole
        rule 1 ("") has no message
        rule 1 ("") has no name
        rule 1 ("") has paths and commands: make two rules of it
        "#);
    }
}
