//! Rules about tools: messages and refusals for tool calls.

use serde_json::Value;

use super::conventions::{LONGEST_TEXT, RuleSeverity, ToolRule};
use super::decide::HookEvaluation;
use super::glob_pattern::{matches_glob, matches_path_glob};
use super::hook_evidence::EvidenceRequest;
use super::hook_rows::{SUBAGENTS_MARK, SubagentRecord};
use super::role_source::without_number;
use super::shell_commands::ShellCommand;

/// The agent that is about to use a tool.
pub(super) struct RuleSubject {
    /// Names that a rule may select it by.
    names: Vec<String>,
    /// Separates the marks of different agents of a session.
    prefix: String,
}

impl RuleSubject {
    pub(super) fn main() -> Self {
        Self { names: vec!["main".to_owned()], prefix: String::new() }
    }

    pub(super) fn session(role: Option<String>, kind: &str) -> Self {
        let names = role.into_iter().chain((!kind.is_empty()).then(|| kind.to_owned())).collect();
        Self { names, prefix: String::new() }
    }

    pub(super) fn subagent(agent: &SubagentRecord) -> Self {
        let mut who = Self::session(agent.role.clone(), &agent.agent_type);
        who.prefix = format!("{SUBAGENTS_MARK}{}:", agent.agent_id);
        who
    }

    /// The name of its own mark.
    pub(super) fn mark(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    fn is_meant_by(&self, rule: &ToolRule) -> bool {
        rule.roles.is_empty()
            || self.names.iter().any(|name| {
                let bare = name.rsplit(':').next().unwrap_or(name);
                let names = [name.as_str(), bare, without_number(bare)];
                rule.roles.iter().any(|role| names.contains(&role.as_str()))
            })
    }
}

/// A shell command that writes a file counts as a call of this tool, too.
const SHELL_WRITE: &str = "Write";

impl HookEvaluation<'_> {
    /// Applies blocking rules, and rules that deny a first call. Returns true if the call is denied.
    pub(super) fn is_refused(&mut self, who: &RuleSubject) -> Result<bool, EvidenceRequest> {
        let (mut names, mut reasons) = (Vec::new(), Vec::new());
        reasons.extend(self.refusal_on_error());
        if let Some(reason) = self.refusal_to_change_conventions() {
            names.push("conventions file".to_owned());
            reasons.push(reason);
        }
        for rule in self.matching(who, RuleSeverity::Block) {
            names.push(rule.name.clone());
            reasons.push(rule.message.trim().to_owned());
        }
        if reasons.is_empty() {
            (names, reasons) = self.first_refusals(who)?;
        }
        if reasons.is_empty() {
            return Ok(false);
        }
        if !names.is_empty() {
            self.detail("rules", names);
        }
        self.deny(&reasons.join("\n\n"));
        Ok(true)
    }

    /// The names and messages of rules that deny an agent's first call.
    fn first_refusals(
        &mut self,
        who: &RuleSubject,
    ) -> Result<(Vec<String>, Vec<String>), EvidenceRequest> {
        let mut refusals = (Vec::new(), Vec::new());
        if !self.has_rows() {
            return Ok(refusals);
        }
        let rules: Vec<ToolRule> = self.matching(who, RuleSeverity::Once).cloned().collect();
        for rule in rules {
            let mark = who.mark(&format!("rule:{}", rule.name));
            let Some(tokens) = self.due(&mark, rule.token_threshold)? else { continue };
            self.claim_mark(&mark, tokens);
            refusals.1.push(rule.message.trim().to_owned());
            refusals.0.push(rule.name);
        }
        Ok(refusals)
    }

    /// Adds the messages of rules to the answer, and leaves the call to a person where a rule says
    /// so.
    pub(super) fn say_rules(&mut self, who: &RuleSubject) -> Result<(), EvidenceRequest> {
        if self.done.answer.deny.is_some() {
            return Ok(());
        }
        let asks: Vec<ToolRule> = self.matching(who, RuleSeverity::Ask).cloned().collect();
        let warnings =
            self.matching(who, RuleSeverity::Warn).chain(self.matching(who, RuleSeverity::Info));
        let rules: Vec<ToolRule> = warnings.cloned().collect();
        let mut said = Vec::new();
        for rule in rules {
            let always = rule.severity == RuleSeverity::Warn && rule.token_threshold.is_none();
            if !always && !self.has_rows() {
                continue;
            }
            let mark = who.mark(&format!("rule:{}", rule.name));
            let due = if always { Some(0) } else { self.due(&mark, rule.token_threshold)? };
            // A message that does not fit is given with a later call.
            let (Some(tokens), true) = (due, self.has_room_for(&rule.message)) else { continue };
            if !always {
                self.claim_mark(&mark, tokens);
            }
            self.say(rule.message.trim());
            said.push(rule.name);
        }
        if !asks.is_empty() {
            let reasons: Vec<_> = asks.iter().map(|rule| rule.message.trim()).collect();
            self.done.answer.ask = Some(reasons.join("\n\n"));
            self.done.log.result = "asked";
            said.extend(asks.into_iter().map(|rule| rule.name));
        }
        if !said.is_empty() {
            self.detail("rules", said);
        }
        Ok(())
    }

    fn matching<'a>(
        &'a self,
        who: &'a RuleSubject,
        severity: RuleSeverity,
    ) -> impl Iterator<Item = &'a ToolRule> {
        let rules = self.conventions.rules.iter();
        rules.filter(move |rule| {
            rule.severity == severity && who.is_meant_by(rule) && self.is_about(rule)
        })
    }

    /// Whether the rule applies to this call.
    fn is_about(&self, rule: &ToolRule) -> bool {
        let tool = self.payload.tool_name.as_deref().unwrap_or_default();
        let names = |tool: &str| {
            rule.tools.is_empty() || rule.tools.iter().any(|pattern| matches_glob(pattern, tool))
        };
        if !rule.fields.iter().all(|(field, pattern)| self.has_field(field, pattern)) {
            return false;
        }
        if !rule.paths.is_empty() {
            return self.targets().iter().any(|target| {
                (names(tool) || (target.is_shell_write && names(SHELL_WRITE)))
                    && self.is_about_path(rule, &target.path)
            });
        }
        if !names(tool) {
            return false;
        }
        if !rule.commands.is_empty() {
            let is_meant = |command: &ShellCommand| {
                rule.commands.iter().any(|pattern| command.is_meant_by(pattern))
            };
            return self.shell_line().commands.iter().any(is_meant);
        }
        true
    }

    /// A path and the file that it leads to are judged apart, so that a link in an excluded folder
    /// opens no other.
    fn is_about_path(&self, rule: &ToolRule, path: &str) -> bool {
        self.names(path).iter().any(|names| {
            let any = |patterns: &[String]| {
                patterns.iter().any(|p| names.iter().any(|name| matches_path_glob(p, name)))
            };
            any(&rule.paths) && !any(&rule.exclude_paths)
        })
    }

    /// Whether a field of the tool's input matches. `a.b` is the field `b` of the object `a`.
    fn has_field(&self, field: &str, pattern: &str) -> bool {
        let input = &self.payload.tool_input;
        if let Some(value) = input.get(field) {
            return has_text(value, &[], pattern);
        }
        let parts: Vec<&str> = field.split('.').collect();
        let first = parts.first().and_then(|name| input.get(*name));
        first.is_some_and(|value| has_text(value, &parts[1..], pattern))
    }

    pub(super) fn say(&mut self, text: &str) {
        let context = self.done.answer.context.get_or_insert_default();
        if !context.is_empty() {
            context.push_str("\n\n");
        }
        context.push_str(text);
        self.done.log.result = "injected";
    }

    pub(super) fn deny(&mut self, reason: &str) {
        self.done.answer.deny = Some(reason.to_owned());
        self.done.log.result = "blocked";
    }

    fn has_room_for(&self, text: &str) -> bool {
        let taken = self.done.answer.context.as_ref().map_or(0, |context| context.chars().count());
        taken + text.chars().count() + 2 < LONGEST_TEXT
    }
}
/// Whether the value at these fields matches, or one of several in lists.
fn has_text(value: &Value, fields: &[&str], pattern: &str) -> bool {
    match (value, fields) {
        (Value::Array(items), _) => items.iter().any(|item| has_text(item, fields, pattern)),
        (Value::Object(object), [first, rest @ ..]) => {
            object.get(*first).is_some_and(|value| has_text(value, rest, pattern))
        }
        (Value::String(text), []) => matches_glob(pattern, text),
        (value, []) => matches_glob(pattern, &value.to_string()),
        _ => false,
    }
}
