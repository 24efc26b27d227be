//! `shikiri host call SERVER TOOL`.

use std::time::Duration;

use clap::Args;
use serde_json::{Map, Value, json};
use shikiri_client::ServerTool;
use shikiri_host::{CallFollowResult, Host, NewToolCall};
use shikiri_model::host::{HostCall, HostCallState};
use shikiri_model::record::StoredDocument;
use tokio_util::sync::CancellationToken;

use super::plain::{Beforehand, CallOutput, Plain};
use super::seat::CallDisplay;
use crate::exit::{Exit, Failure};
use crate::output::{Output, note};
use crate::spinner::show_waiting;
use crate::terminal::host::{has_person, result_lines};

/// The default time limit of a call.
pub(super) const TIME_LIMIT: Duration = Duration::from_secs(86_400);

#[derive(Args)]
pub(super) struct Arguments {
    /// The server and the tool; with --url the tool alone will do
    #[arg(required = true, num_args = 1..=2, value_names = ["SERVER", "TOOL"])]
    words: Vec<String>,
    /// An argument of the tool; VALUE is JSON, or else a text
    #[arg(long = "arg", value_name = "NAME=VALUE")]
    arg: Vec<String>,
    /// All arguments as one JSON object
    #[arg(long, value_name = "JSON")]
    args: Option<String>,
    /// Take up the last call of this tool that was left, instead of making a new one
    #[arg(long)]
    resume: bool,
    #[command(flatten)]
    following: Following,
}

/// How a call is followed.
#[derive(Args, Clone)]
pub(super) struct Following {
    /// Answer every question with its defaults, and yes
    #[arg(long, conflicts_with = "no_input")]
    yes: bool,
    /// Decline all questions
    #[arg(long)]
    no_input: bool,
    /// Call a tool though its server says something else of it than before
    #[arg(long)]
    accept_changes: bool,
    /// Give up after so long, in seconds, and tell the server [default: a day after it was called]
    #[arg(long, value_name = "SECONDS")]
    timeout: Option<u64>,
    /// Print the call with its result as JSON
    #[arg(long)]
    json: bool,
    /// Print every event as one line of JSON while it happens
    #[arg(long, conflicts_with = "json")]
    events: bool,
}

pub(super) async fn run(host: &Host, arguments: Arguments) -> Result<(), Failure> {
    let (server, tool) = match arguments.words.as_slice() {
        [server, tool] => (name_of(host, server), tool.clone()),
        [tool] if host.servers().len() == 1 => (host.servers()[0].name.clone(), tool.clone()),
        _ => {
            let what = "which server's tool is meant";
            return Err(Failure::usage(what, "write `shikiri host call SERVER TOOL`"));
        }
    };
    if arguments.resume {
        let left = host.open_calls().await?;
        let last = left.iter().rev().find(|it| it.value.server == server && it.value.tool == tool);
        if let Some(call) = last {
            return take_up(host, call, &arguments.following).await;
        }
        note("shikiri: no call of this tool was left: a new one is made");
    }
    let new = NewToolCall {
        server,
        tool,
        arguments: read_arguments(&arguments.arg, arguments.args.as_deref())?,
        time_limit: arguments.following.time_limit().unwrap_or(TIME_LIMIT),
    };
    // A login comes first, before there is progress to show.
    show_waiting("connecting to the server", host.connect(&new.server)).await?;
    let new =
        if arguments.arg.is_empty() { new } else { fitted(host, new, &arguments.arg).await? };
    let cancel = CancellationToken::new();
    let display = arguments.following.display();
    let called = display.attend(host.call_tool(new, &display, &cancel), &cancel).await?;
    arguments.following.report(called)
}

/// The `--arg` values, parsed for the tool's schema.
async fn fitted(
    host: &Host,
    mut new: NewToolCall,
    each: &[String],
) -> Result<NewToolCall, Failure> {
    let tool = host.tool(&new.server, &new.tool).await?;
    for (name, value) in each.iter().filter_map(|one| argument_of(&tool, one)) {
        new.arguments.insert(name, value);
    }
    Ok(new)
}

/// With --url there is one server, whatever its name.
fn name_of(host: &Host, given: &str) -> String {
    match host.servers() {
        [only] if only.name != given && host.is_by_address() => only.name.clone(),
        _ => given.to_owned(),
    }
}

pub(super) async fn take_up(
    host: &Host,
    call: &StoredDocument<HostCall>,
    following: &Following,
) -> Result<(), Failure> {
    let cancel = CancellationToken::new();
    let display = following.display();
    let resuming = host.resume_call(&call.value.id, following.time_limit(), &display, &cancel);
    let called = display.attend(resuming, &cancel).await?;
    following.report(called)
}

impl Arguments {
    pub(super) fn may_ask(&self) -> bool {
        self.following.may_ask()
    }
}

impl Following {
    fn time_limit(&self) -> Option<Duration> {
        self.timeout.map(|seconds| Duration::from_secs(seconds.clamp(1, 30 * 86_400)))
    }

    /// Whether a person can be asked.
    pub(super) fn may_ask(&self) -> bool {
        !self.no_input
    }

    /// Shows the call to a person, unless a program reads the output or all answers were given in
    /// advance.
    fn display(&self) -> CallDisplay {
        let is_said = self.yes || self.no_input || self.json || self.events;
        if !is_said && has_person() {
            CallDisplay::at_terminal(self.accept_changes)
        } else {
            CallDisplay::Plain(self.plain_output())
        }
    }

    fn plain_output(&self) -> Plain {
        let output = match (self.events, self.json) {
            (true, _) => CallOutput::Events,
            (false, true) => CallOutput::Silent,
            (false, false) => CallOutput::Lines,
        };
        let beforehand = if self.yes { Beforehand::Yes } else { Beforehand::No };
        Plain { beforehand, accepts_changes: self.accept_changes, output }
    }

    pub(super) fn report(&self, called: CallFollowResult) -> Result<(), Failure> {
        let call = match called {
            CallFollowResult::Ended(call) => call.value,
            CallFollowResult::LetGo { call, why } => {
                let what = format!("call {} is not followed any more ({why})", call.value.id);
                return Err(Failure::new(
                    Exit::Refused,
                    what,
                    "look at it with `shikiri host tokens list`",
                ));
            }
        };
        if self.json {
            Output::stdout().json(&described(&call))?;
        } else if !self.events {
            print_result(&call)?;
        }
        verdict(&call)
    }
}

pub(super) fn described(call: &HostCall) -> Value {
    json!({
        "call_id": call.id,
        "server": call.server,
        "tool": call.tool,
        "arguments": call.arguments,
        "state": call.state,
        "is_error": call.is_tool_error(),
        "result": call.result,
        "reason": call.reason,
    })
}

fn print_result(call: &HostCall) -> Result<(), Failure> {
    result_lines(call).iter().try_for_each(|line| Output::stdout().line(line))
}

pub(super) fn verdict(call: &HostCall) -> Result<(), Failure> {
    let reason = call.reason.clone().unwrap_or_default();
    let name = format!("{} {}", call.server, call.tool);
    match call.state {
        HostCallState::Completed if call.is_tool_error() => {
            Err(Failure::told(Exit::Failed, format!("{name}: the tool reports an error")))
        }
        HostCallState::Completed => Ok(()),
        HostCallState::Cancelled => Err(Failure::told(Exit::Failed, format!("{name}: cancelled"))),
        HostCallState::Failed => Err(Failure::told(Exit::Failed, format!("{name}: {reason}"))),
        HostCallState::Lost => {
            let what = format!("{name}: {reason}");
            Err(Failure::new(Exit::Failed, what, "look at the server before you call it again"))
        }
        HostCallState::Open => Err(Failure::told(Exit::Failed, format!("{name}: it goes on"))),
    }
}

/// `--args` first, then each `--arg` over it.
fn read_arguments(each: &[String], all: Option<&str>) -> Result<Map<String, Value>, Failure> {
    let mut arguments = match all {
        None => Map::new(),
        Some(text) => match serde_json::from_str(text) {
            Ok(Value::Object(all)) => all,
            Ok(_) => {
                return Err(Failure::usage("--args is no JSON object", "write '{\"name\": 1}'"));
            }
            Err(error) => {
                let what = format!("--args is no JSON ({error})");
                return Err(Failure::usage(what, "write '{\"name\": 1}'"));
            }
        },
    };
    for one in each {
        let Some((name, value)) = argument(one) else {
            return Err(Failure::usage(
                format!("--arg {one:?} has no ="),
                "write --arg name=value",
            ));
        };
        arguments.insert(name, value);
    }
    Ok(arguments)
}

/// NAME=VALUE for this tool: a text that looks like a number stays one where a text is wanted.
pub(super) fn argument_of(tool: &ServerTool, given: &str) -> Option<(String, Value)> {
    let (name, value) = argument(given)?;
    let schema = tool.arguments().into_iter().find(|(known, ..)| *known == name);
    let wants_text = schema.is_some_and(|(_, schema, _)| schema["type"] == "string");
    let text = given.split_once('=').map(|(_, text)| text).unwrap_or_default();
    let value =
        if wants_text && !value.is_string() { Value::String(text.to_owned()) } else { value };
    Some((name, value))
}

/// NAME=VALUE, where the value is JSON or else a text.
fn argument(given: &str) -> Option<(String, Value)> {
    let (name, value) = given.split_once('=').filter(|(name, _)| !name.is_empty())?;
    let value = serde_json::from_str(value).unwrap_or_else(|_| Value::String(value.to_owned()));
    Some((name.to_owned(), value))
}
