//! Problems of a conventions file, with the line where it is known.

use serde::Serialize;
use shikiri_model::hook::Conventions;
use shikiri_model::hook::conventions::ToolRule;
use toml::de::{DeTable, DeValue};

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Problem {
    pub(super) line: Option<usize>,
    pub(super) problem: String,
}

/// Faults of a readable file, and patterns that do not mean what they seem to.
pub(super) fn problems(text: &str, conventions: &Conventions) -> Vec<Problem> {
    let lines = Lines::of(text);
    let patterns = (1..).zip(&conventions.rules).flat_map(|(number, rule)| {
        let label = format!("rule {number} ({:?})", rule.name);
        unreadable(rule).into_iter().map(move |what| format!("{label}: {what}"))
    });
    let faults = conventions.validation_errors().into_iter().chain(patterns);
    faults.map(|problem| Problem { line: lines.line_of(&problem), problem }).collect()
}

/// Rules that are valid but possibly not intended: for roles that are named nowhere else.
pub(super) fn doubts(conventions: &Conventions) -> Vec<String> {
    let known = |role: &str| {
        role == "main"
            || conventions.role_named(role).is_some()
            || conventions.agent_types.contains_key(role)
    };
    let rules = conventions.rules.iter();
    let doubtful = rules.flat_map(|rule| {
        let unknown = rule.roles.iter().filter(|role| !known(role));
        unknown.map(move |role| {
            format!("rule {:?} is for {role:?}, which has no text of its own", rule.name)
        })
    });
    doubtful.collect()
}

fn unreadable(rule: &ToolRule) -> Vec<String> {
    let mut found = Vec::new();
    let lists = [
        ("tools", &rule.tools),
        ("paths", &rule.paths),
        ("exclude_paths", &rule.exclude_paths),
        ("commands", &rule.commands),
        ("roles", &rule.roles),
    ];
    for (field, patterns) in lists {
        for pattern in patterns {
            if let Some(why) = misread(field, pattern) {
                found.push(format!("{field}: {pattern:?} {why}"));
            }
        }
    }
    for (field, pattern) in &rule.fields {
        if let Some(why) = misread("match", pattern) {
            found.push(format!("match: {field} = {pattern:?} {why}"));
        }
    }
    if rule.paths.is_empty() && !rule.exclude_paths.is_empty() {
        found.push("exclude_paths takes nothing away where there are no paths".to_owned());
    }
    found
}

/// Why a pattern does not mean what its author seems to expect.
fn misread(field: &str, pattern: &str) -> Option<&'static str> {
    let has = |signs: &[char]| pattern.contains(signs);
    match field {
        _ if pattern.trim().is_empty() => Some("is empty and fits nothing"),
        "tools" if has(&['|', ',']) => Some("fits no tool: write each name on its own"),
        "tools" if has(&['(']) => Some("fits no tool: put the command under `commands`"),
        "tools" if has(&[' ', '^', '$', '[', '{', '+', '\\']) || pattern.contains(".*") => {
            Some("fits no tool: only * and ? are patterns")
        }
        "paths" if pattern.starts_with('!') => {
            Some("fits no file: put what is let through under `exclude_paths`")
        }
        "exclude_paths" if pattern.starts_with('!') => Some("fits no file: leave out the !"),
        "paths" | "exclude_paths" if has(&['{']) && has(&[',']) => {
            Some("stands for itself: only *, ** and ? are patterns")
        }
        "paths" | "exclude_paths" if pattern.starts_with('~') => {
            Some("fits no file: write the path from the project's folder, or from /")
        }
        "commands" | "match" if pattern.starts_with('^') || pattern.ends_with('$') => {
            Some("fits nothing: only * and ? are patterns")
        }
        "commands" if pattern.contains("&&") || has(&['|', ';']) => {
            Some("fits no command: a line is taken apart at &&, | and ;")
        }
        "roles" if has(&['*', '?']) => Some("fits no role: roles are names, not patterns"),
        _ => None,
    }
}

/// The lines on which the parts of a file start.
struct Lines {
    /// The prefix of faults about a part, and the part's line.
    parts: Vec<(String, usize)>,
}

impl Lines {
    fn of(text: &str) -> Self {
        let mut parts = Vec::new();
        let mut add = |name: String, at: usize| {
            parts.push((name, text[..at].matches('\n').count() + 1));
        };
        let Ok(table) = DeTable::parse(text) else { return Self { parts } };
        for (key, value) in table.get_ref() {
            match value.get_ref() {
                DeValue::Array(rules) => {
                    for (number, rule) in (1..).zip(rules.iter()) {
                        add(format!("rule {number} ("), rule.span().start);
                    }
                }
                DeValue::Table(named) if matches!(&**key.get_ref(), "roles" | "agent_types") => {
                    for name in named.keys() {
                        add(format!("[{}.{}] ", key.get_ref(), name.get_ref()), name.span().start);
                    }
                }
                _ => add(format!("[{}] ", key.get_ref()), key.span().start),
            }
        }
        Self { parts }
    }

    fn line_of(&self, fault: &str) -> Option<usize> {
        self.parts.iter().find(|(begin, _)| fault.starts_with(begin)).map(|(_, line)| *line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn problems_are_told_with_their_lines() {
        let text = r#"
[default]
text = ""

[roles.tester]
text = "x"

[roles."a b"]

[[rules]]
name = "good"
message = "m"
tools = ["mcp__*__delete_?"]
paths = ["app/[id]/**"]

[[rules]]
name = "bad"
message = "m"
tools = ["Write|Edit", "Bash(git push*)", "mcp__.*", ""]
exclude_paths = ["!src"]
roles = ["test*", "tset"]
"#;
        let conventions = shikiri_hook::conventions_file::parse(text).unwrap();
        let problems = problems(text, &conventions);
        let lines = problems.iter().map(|p| format!("{}: {}", p.line.unwrap_or(0), p.problem));
        insta::assert_snapshot!(lines.collect::<Vec<_>>().join("\n"), @r#"
        2: [default] has no text: write one, or `enabled = false`
        8: [roles.a b] has no text: write one, or `enabled = false`
        16: rule 2 ("bad"): tools: "Write|Edit" fits no tool: write each name on its own
        16: rule 2 ("bad"): tools: "Bash(git push*)" fits no tool: put the command under `commands`
        16: rule 2 ("bad"): tools: "mcp__.*" fits no tool: only * and ? are patterns
        16: rule 2 ("bad"): tools: "" is empty and fits nothing
        16: rule 2 ("bad"): exclude_paths: "!src" fits no file: leave out the !
        16: rule 2 ("bad"): roles: "test*" fits no role: roles are names, not patterns
        16: rule 2 ("bad"): exclude_paths takes nothing away where there are no paths
        "#);
        assert_eq!(
            doubts(&conventions),
            [
                r#"rule "bad" is for "test*", which has no text of its own"#,
                r#"rule "bad" is for "tset", which has no text of its own"#
            ]
        );
    }
}
