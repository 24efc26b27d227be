//! Rules about tools: messages and refusals for tool calls.

use super::conventions::{LONGEST_TEXT, RuleSeverity, ToolRule};
use super::decide::HookEvaluation;
use super::glob_pattern::{matches_glob, matches_path_glob};
use super::hook_evidence::EvidenceRequest;
use super::hook_rows::{SUBAGENTS_MARK, SubagentRecord};
use super::role_source::without_number;
use super::shell_commands::commands;

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

impl HookEvaluation<'_> {
    /// Applies blocking rules. Returns true if the call is denied.
    pub(super) fn is_refused(&mut self, who: &RuleSubject) -> Result<bool, EvidenceRequest> {
        let refusals: Vec<_> = self.matching(who, RuleSeverity::Block).collect();
        let names: Vec<_> = refusals.iter().map(|rule| rule.name.clone()).collect();
        let reasons: Vec<_> = refusals.iter().map(|rule| rule.message.trim().to_owned()).collect();
        if reasons.is_empty() {
            return Ok(false);
        }
        self.detail("rules", names);
        self.deny(&reasons.join("\n\n"));
        Ok(true)
    }

    /// Adds the messages of rules to the answer.
    pub(super) fn say_rules(&mut self, who: &RuleSubject) -> Result<(), EvidenceRequest> {
        if self.done.answer.deny.is_some() {
            return Ok(());
        }
        let warnings =
            self.matching(who, RuleSeverity::Warn).chain(self.matching(who, RuleSeverity::Info));
        let rules: Vec<ToolRule> = warnings.cloned().collect();
        let mut said = Vec::new();
        for rule in rules {
            let always = rule.severity == RuleSeverity::Warn && rule.token_threshold.is_none();
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
        if !rule.tools.is_empty() && !rule.tools.iter().any(|pattern| matches_glob(pattern, tool)) {
            return false;
        }
        if !rule.paths.is_empty() {
            let Some(path) = self.path() else { return false };
            let any = |patterns: &[String]| {
                patterns.iter().any(|p| path.iter().any(|t| matches_path_glob(p, t)))
            };
            return any(&rule.paths) && !any(&rule.exclude_paths);
        }
        if !rule.commands.is_empty() {
            let Some(command) = self.payload.input("command") else { return false };
            let commands = self.commands.get_or_init(|| commands(command));
            let is_meant =
                |command: &String| rule.commands.iter().any(|p| matches_glob(p, command));
            return commands.iter().any(is_meant);
        }
        true
    }

    /// The tool's file: relative to the project, and absolute.
    fn path(&self) -> Option<Vec<String>> {
        let told = ["file_path", "notebook_path", "path"];
        let told = told.into_iter().find_map(|field| self.payload.input(field))?;
        let cwd = self.payload.cwd.as_deref().unwrap_or("/");
        let whole = if told.starts_with('/') { told.to_owned() } else { format!("{cwd}/{told}") };
        let whole = without_dots(&whole);
        let project = self.evidence.project.as_deref().or(self.payload.cwd.as_deref());
        let inside = project
            .and_then(|project| whole.strip_prefix(without_dots(project).as_str()))
            .and_then(|rest| rest.strip_prefix('/'))
            .map(str::to_owned);
        Some(inside.into_iter().chain([whole]).collect())
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

/// The path without `.` and `..`, computed from its text.
fn without_dots(path: &str) -> String {
    let mut parts = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    format!("/{}", parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dots_do_not_hide_a_path() {
        assert_eq!(without_dots("/p/docs/../src/./a.rs"), "/p/src/a.rs");
        assert_eq!(without_dots("/../../x"), "/x");
    }
}
