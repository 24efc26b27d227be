//! What holds when the rules cannot all be evaluated: the conventions file is broken, or the store
//! cannot be used. A broken file is reported to the person, and nothing is switched off in silence.

use super::conventions::OnError;
use super::decide::{EvaluationResult, HookEvaluation};
use super::glob_pattern::matches_glob;
use super::hook_evidence::{EvidenceRequest, PromptRole};
use super::hook_rows::hash;
use super::tool_rules::RuleSubject;

/// Seen from the project.
const FILE: &str = ".shikiri/conventions.toml";
/// What hooks read instead of the file while it has not changed.
const COPY: &str = ".shikiri/conventions.copy";

/// Claude Code's tools that write, and the words by which those of other servers are known.
const WRITERS: [&str; 4] = ["Write", "Edit", "MultiEdit", "NotebookEdit"];
const WRITING_WORDS: [&str; 10] = [
    "write", "edit", "create", "delete", "remove", "move", "rename", "update", "replace", "append",
];

impl HookEvaluation<'_> {
    pub(super) fn has_rows(&self) -> bool {
        self.evidence.store_problem.is_none()
    }

    /// Tells the person that the conventions are broken: with every prompt, and at a tool call once
    /// per session.
    pub(super) fn report_problem(&mut self) -> EvaluationResult {
        let Some(problem) = &self.conventions.problem else { return Ok(()) };
        // A new problem is told again.
        let mark = format!("conventions_problem:{}", hash(problem));
        match self.payload.event.as_str() {
            "SessionStart" | "UserPromptSubmit" => {}
            "PreToolUse" if !self.has_rows() => {}
            "PreToolUse" if self.due(&mark, None)?.is_some() => {}
            _ => return Ok(()),
        }
        if self.has_rows() {
            self.claim_mark(&mark, 0);
        }
        let effect = match self.conventions.on_error {
            OnError::Allow => "No rule and no text of it holds until that is mended",
            OnError::Deny => "All tool calls are denied until that is mended",
        };
        self.done.answer.system = Some(format!(
            "Shikiri cannot read its conventions: {problem}. {effect}: `shikiri hooks check`."
        ));
        self.detail("problem", problem.as_str());
        Ok(())
    }

    /// Why every call is denied, if the file says so for errors.
    pub(super) fn refusal_on_error(&self) -> Option<String> {
        let is_meant = self.conventions.on_error == OnError::Deny;
        let problem = self.conventions.problem.as_ref().or(self.evidence.store_problem.as_ref());
        problem.filter(|_| is_meant).map(|problem| {
            format!(
                "The rules of this project cannot be evaluated, and `on_error = \"deny\"` in {FILE} \
                 denies tool calls then: {problem}"
            )
        })
    }

    /// Why this call is denied that would change the conventions.
    pub(super) fn refusal_to_change_conventions(&self) -> Option<String> {
        if !self.conventions.protect_conventions {
            return None;
        }
        let tool = self.payload.tool_name.as_deref().unwrap_or_default();
        let is_mcp_writer = tool.starts_with("mcp__")
            && WRITING_WORDS.iter().any(|word| tool.to_lowercase().contains(word));
        let writes = WRITERS.contains(&tool) || is_mcp_writer;
        let is_protected =
            |name: &String, removes| [FILE, COPY].iter().any(|file| covers(name, file, removes));
        let found = self.targets().iter().any(|target| {
            (writes || target.is_shell_write)
                && self
                    .names(&target.path)
                    .iter()
                    .flat_map(|names| names.iter().skip(1))
                    .any(|name| is_protected(name, target.removes))
        });
        found.then(|| {
            format!(
                "{FILE} holds the rules for agents, so agents do not change it. Tell the person \
                 what should be changed. `protect_conventions = false` in the file allows it."
            )
        })
    }

    /// Applies the rules that need no rows. Nothing is recorded, and no text is delivered.
    pub(super) fn decide_without_rows(&mut self) -> EvaluationResult {
        if self.payload.event == "PreToolUse" {
            let who = self.subject_without_rows()?;
            if !self.is_refused(&who)? {
                self.say_rules(&who)?;
            }
        }
        self.report_problem()
    }

    /// The calling agent, as far as the event and its prompt tell.
    fn subject_without_rows(&self) -> Result<RuleSubject, EvidenceRequest> {
        let agent_id = self.payload.agent_id.clone();
        let kind = self.payload.agent_type.as_deref().unwrap_or_default();
        if agent_id.is_none() && kind.is_empty() {
            return Ok(RuleSubject::main());
        }
        let by_type = self.conventions.role_named(kind).map(str::to_owned);
        let need_roles = self.conventions.rules.iter().any(|rule| !rule.roles.is_empty());
        let role = match (&by_type, &self.evidence.prompt_role) {
            (None, None) if need_roles => return Err(EvidenceRequest::PromptRole { agent_id }),
            (None, Some(PromptRole::Named(role))) => Some(role.clone()),
            _ => by_type,
        };
        Ok(RuleSubject::session(role, kind))
    }
}

/// Whether a path of a shell line is this file, or with `removes` a folder around it. A star stands
/// for no dot at the start of a name.
fn covers(path: &str, file: &str, removes: bool) -> bool {
    let (mut names, mut found) = (path.split('/').filter(|name| *name != "."), file.split('/'));
    let fits = names.by_ref().all(|name| {
        found.next().is_some_and(|part| {
            let is_hidden = part.starts_with('.') && name.starts_with(['*', '?']);
            !is_hidden && matches_glob(name, part)
        })
    });
    fits && (removes || found.next().is_none())
}
