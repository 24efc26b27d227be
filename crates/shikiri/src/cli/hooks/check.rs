//! `shikiri hooks check`.

use clap::Args;
use serde_json::{Value, json};
use shikiri_hook::conventions_file::{self, ConventionsError};
use shikiri_model::hook::{Conventions, SubagentRecord};

use super::problems::{Problem, doubts, problems};
use super::rehearsal::{Call, Rehearsal, Step, When};
use crate::cli::JsonArgument;
use crate::config::Config;
use crate::exit::{Exit, Failure};
use crate::output::{Output, Style};
use crate::text::{one_line, safe_text};

#[derive(Args)]
pub(super) struct Check {
    /// For a subagent of this type [general-purpose]
    #[arg(long, value_name = "TYPE")]
    agent_type: Option<String>,
    /// … with this role in its prompt
    #[arg(long)]
    role: Option<String>,
    /// … with this prompt
    #[arg(long, value_name = "TEXT")]
    prompt: Option<String>,
    /// For the main agent
    #[arg(long, conflicts_with_all = ["agent_type", "role", "prompt"])]
    main: bool,
    /// The tool that it is about to use [Edit with --path, Bash with --command, else Read]
    #[arg(long, value_name = "NAME")]
    tool: Option<String>,
    /// The file that the tool is about
    #[arg(long)]
    path: Option<String>,
    /// The command that the tool runs
    #[arg(long)]
    command: Option<String>,
    /// The other fields of the tool's input, a JSON object
    #[arg(long, value_name = "JSON")]
    input: Option<String>,
    #[command(flatten)]
    json: JsonArgument,
}

/// The results of the check.
struct Findings {
    file: String,
    problems: Vec<Problem>,
    notes: Vec<String>,
    /// What is in the file, if it can be read.
    content: Option<String>,
    steps: Vec<Step>,
    agent: Option<SubagentRecord>,
}

impl Check {
    pub(super) fn run(&self, config: &Config) -> Result<(), Failure> {
        let path = config.data_folder().join("conventions.toml");
        let file = path.display().to_string();
        if !path.exists() {
            let what = format!("{file} is not there, so nobody is told anything");
            return Err(Failure::new(Exit::NotFound, what, "`shikiri hooks init` writes one"));
        }
        let findings = self.examine(config, file)?;
        if self.json.json {
            Output::stdout().json(&findings.to_json())?;
        } else {
            findings.print(self)?;
        }
        match findings.problems.len() {
            0 => Ok(()),
            1 => Err(Failure::new(Exit::Failed, "1 problem in the conventions", "mend it")),
            count => {
                let what = format!("{count} problems in the conventions");
                Err(Failure::new(Exit::Failed, what, "mend them"))
            }
        }
    }

    fn examine(&self, config: &Config, file: String) -> Result<Findings, Failure> {
        let mut findings = Findings {
            file,
            problems: Vec::new(),
            notes: Vec::new(),
            content: None,
            steps: Vec::new(),
            agent: None,
        };
        let path = config.data_folder().join("conventions.toml");
        let conventions = match conventions_file::load(&path) {
            Ok(conventions) => conventions,
            Err(error) => {
                findings.problems.push(unread(error));
                return Ok(findings);
            }
        };
        // The file was just read as UTF-8, within the size limit.
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        findings.problems = problems(&text, &conventions);
        findings.notes = doubts(&conventions);
        findings.content = Some(content(&conventions));
        if self.asks_for_an_agent() {
            let rehearsed = self.rehearse(&conventions, config);
            (findings.steps, findings.agent) = rehearsed.map_err(|problem| {
                Failure::new(Exit::Failed, problem, "look at what was asked for")
            })?;
        }
        Ok(findings)
    }

    fn asks_for_an_agent(&self) -> bool {
        let texts =
            [&self.agent_type, &self.role, &self.prompt, &self.tool, &self.path, &self.command];
        let texts = texts.into_iter().chain([&self.input]);
        self.main || texts.into_iter().any(Option::is_some)
    }

    fn rehearse(
        &self,
        conventions: &Conventions,
        config: &Config,
    ) -> Result<(Vec<Step>, Option<SubagentRecord>), String> {
        let rehearsal = Rehearsal::new(conventions, &config.root);
        let tool = match (&self.tool, &self.path, &self.command) {
            (Some(tool), _, _) => tool,
            (None, Some(_), _) => "Edit",
            (None, None, Some(_)) => "Bash",
            (None, None, None) => "Read",
        };
        let input = match self.input.as_deref().map(serde_json::from_str) {
            None => json!({}),
            Some(Ok(input @ Value::Object(_))) => input,
            Some(_) => return Err("--input is not a JSON object".to_owned()),
        };
        let (path, command) = (self.path.clone(), self.command.clone());
        let call = Call { tool: tool.to_owned(), path, command, input };
        if self.main {
            return Ok((rehearsal.main_agent(&call)?, None));
        }
        let prompt = self.prompt.clone().unwrap_or_default();
        let prompt = match &self.role {
            Some(role) => format!("[ROLE:{role}] {prompt}"),
            None => prompt,
        };
        rehearsal.subagent(self.agent_type(), &prompt, &call)
    }

    fn agent_type(&self) -> &str {
        self.agent_type.as_deref().unwrap_or("general-purpose")
    }
}

/// A file that cannot be read. The line is separate if the problem names one.
fn unread(error: ConventionsError) -> Problem {
    match error {
        ConventionsError::Invalid { source, .. } => {
            Problem { line: source.line, problem: source.message }
        }
        ConventionsError::Unreadable { source, .. } => {
            Problem { line: None, problem: source.to_string() }
        }
        error => Problem { line: None, problem: error.to_string() },
    }
}

fn content(conventions: &Conventions) -> String {
    let count = |number: usize, thing: &str| match number {
        1 => format!("1 {thing}"),
        number => format!("{number} {thing}s"),
    };
    let single = [("main", &conventions.main), ("default", &conventions.default)];
    let single = single.into_iter().filter(|(_, c)| c.is_some()).map(|(name, _)| name.to_owned());
    let counted = [
        count(conventions.roles.len(), "role"),
        count(conventions.agent_types.len(), "agent type"),
        count(conventions.rules.len(), "rule"),
    ];
    single.chain(counted).collect::<Vec<_>>().join(", ")
}

impl Findings {
    fn to_json(&self) -> Value {
        let agent = self.agent.as_ref().map(|agent| {
            json!({
                "agent_type": agent.agent_type,
                "role": agent.role,
                "role_source": agent.role_source,
                "confidence": agent.confidence,
            })
        });
        json!({
            "file": self.file,
            "problems": self.problems,
            "notes": self.notes,
            "agent": agent,
            "steps": self.steps.iter().map(step_json).collect::<Vec<_>>(),
        })
    }

    fn print(&self, asked: &Check) -> Result<(), Failure> {
        let output = Output::stdout();
        for Problem { line, problem } in &self.problems {
            let label = line.map(|line| format!("line {line}: ")).unwrap_or_default();
            let fail = output.paint(Style::Bad, "fail");
            output.line(&format!("{fail}  {label}{}", one_line(problem)))?;
        }
        for note in &self.notes {
            output.line(&format!("{}  {}", output.paint(Style::Dim, "note"), one_line(note)))?;
        }
        if let (Some(content), true) = (&self.content, self.problems.is_empty()) {
            let ok = output.paint(Style::Good, "ok  ");
            output.line(&format!("{ok}  {}: {content}", self.file))?;
        }
        if self.steps.is_empty() {
            return Ok(());
        }
        output.line("")?;
        output.line(&output.paint(Style::Bold, &self.who(asked)))?;
        self.steps.iter().try_for_each(|step| print_step(output, step))
    }

    fn who(&self, asked: &Check) -> String {
        let Some(agent) = &self.agent else { return "the main agent".to_owned() };
        let kind = one_line(asked.agent_type());
        match (&agent.role, agent.role_source) {
            (Some(role), Some(source)) => {
                format!("a subagent {kind}, role {} (by {})", one_line(role), source.as_str())
            }
            _ => format!("a subagent {kind}, without a role"),
        }
    }
}

fn step_json(step: &Step) -> Value {
    let answer = &step.decision.answer;
    let details = step.decision.log.details.clone().unwrap_or_default();
    json!({
        "event": if step.when == When::Start { "SubagentStart" } else { "PreToolUse" },
        "tool": step.tool,
        "result": step.decision.log.result,
        "convention": details.get("convention").or(details.get("spawn_convention")),
        "rules": details.get("rules").cloned().unwrap_or(json!([])),
        "context": answer.context,
        "deny": answer.deny,
        "ask": answer.ask,
        "prompt": answer.input.as_ref().and_then(|input| input.get("prompt")),
    })
}

fn print_step(output: Output, step: &Step) -> Result<(), Failure> {
    let view = step_json(step);
    let text = |field: &str| view[field].as_str();
    let denied = text("deny").map(|reason| ("denied by", reason));
    let asked = text("ask").map(|reason| ("a person is asked by", reason));
    let (what, said) = match (denied.or(asked), text("context"), text("prompt")) {
        (Some(refused), _, _) => refused,
        (None, Some(context), _) => ("told by", context),
        (None, None, Some(prompt)) => ("prompt changed by", prompt),
        // The call that spawns rarely gets a message.
        (None, None, None) if step.when == When::Spawn => return Ok(()),
        (None, None, None) => return output.line(&format!("{}: nothing is said", when(step))),
    };
    let rules = view["rules"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let convention = text("convention").map(|key| format!("[{key}]")).into_iter();
    let by: Vec<_> = convention.chain(rules.map(|rule| format!("rule {rule:?}"))).collect();
    output.line(&format!("{}: {what} {}", when(step), one_line(&by.join(", "))))?;
    safe_text(said).lines().try_for_each(|line| output.line(format!("    {line}").trim_end()))
}

fn when(step: &Step) -> String {
    let tool = one_line(step.tool.as_deref().unwrap_or_default());
    match step.when {
        When::Spawn => "when it is spawned".to_owned(),
        When::Start => "when it starts".to_owned(),
        When::Call => format!("before {tool}"),
        When::CallAgain => format!("before {tool}, again"),
    }
}
