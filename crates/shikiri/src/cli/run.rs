//! `shikiri run PROMPT`: one execution, shown as it happens.

use std::io::Read as _;

use clap::{Args, ValueEnum};
use serde_json::Value;
use shikiri_model::execution::Cost;
use shikiri_model::ids::{ConversationId, RunId};
use shikiri_model::models::EngineKind;
use shikiri_model::native::ExecutionLimits;
use shikiri_runtime::AppError;

use super::id_argument::IdArgument;
use super::parts::{pair, word};
use super::{Global, TenantArgument, my_login};
use crate::exit::{Exit, Failure};
use crate::signals::Signals;
use crate::spinner::show_waiting;
use crate::terminal::{Feed, Form, Here, ModelChoice, Place, Teller, There, Wanted};
use crate::trust::ConfigUse;
use crate::{env_vars, wiring};

/// What a person sees while an execution cannot begin.
const STARTING: &str = "starting; a busy conversation is waited for";
/// In bytes.
const MAX_PROMPT: u64 = 1024 * 1024;

#[derive(Args)]
pub(super) struct Arguments {
    /// What to say; - reads it from stdin
    prompt: String,
    /// The conversation to go on with [default: a new one]
    #[arg(long, value_name = "ID")]
    conversation: Option<IdArgument<ConversationId>>,
    /// Use the first active model that runs on this engine
    #[arg(long, conflicts_with = "model", value_parser = word::<EngineKind>())]
    pub(super) engine: Option<EngineKind>,
    /// Use this model [default: the conversation's, else the tenant's]
    #[arg(long, value_name = "ID")]
    pub(super) model: Option<String>,
    /// End it after so many replies of the model
    #[arg(long, value_name = "N")]
    max_turns: Option<u64>,
    /// End it before it uses more tokens than this, in and out and with its subagents
    #[arg(long, value_name = "N")]
    max_tokens: Option<u64>,
    /// End it before it costs more than this
    #[arg(long, value_name = "DOLLARS", value_parser = money)]
    max_cost_usd: Option<Cost>,
    /// End each subagent after so many replies
    #[arg(long, value_name = "N")]
    subagent_max_turns: Option<u64>,
    /// End each subagent before it uses more tokens than this
    #[arg(long, value_name = "N")]
    subagent_max_tokens: Option<u64>,
    /// End each subagent before it costs more than this
    #[arg(long, value_name = "DOLLARS", value_parser = money)]
    subagent_max_cost_usd: Option<Cost>,
    /// A token for the headers of MCP servers, with its value or with that of the environment variable
    /// of this name, which other users do not see; can be given several times
    #[arg(long, value_name = "NAME[=VALUE]", value_parser = pair)]
    token: Vec<(String, String)>,
    /// text: the answer on stdout and all else on stderr. stream-json: one JSON object per event
    /// on stdout, with the fields of its SSE data (seq, at, execution_id, …) and its name as `event`
    #[arg(long, value_name = "FORM", default_value = "text")]
    output: OutputForm,
    /// Have this server carry it, such as http://127.0.0.1:7420 or https://shikiri.example, with the
    /// key in SHIKIRI_KEY or, on this machine, else .shikiri/admin.key [default: this process does]
    #[arg(long, value_name = "URL")]
    server: Option<String>,
    /// Use your own Claude login instead of an API key. It is lent to this run alone and stored
    /// nowhere; the run's commands cannot read it. For Claude Code and the tenant local
    #[arg(long, conflicts_with = "server")]
    my_login: bool,
    #[command(flatten)]
    tenant: TenantArgument,
}

#[derive(Clone, Copy, ValueEnum)]
enum OutputForm {
    Text,
    StreamJson,
}

/// Fails unless the execution completed with a whole answer. Ctrl-C cancels it and waits for its
/// end; a second one does not wait.
pub(super) async fn run(global: &Global, arguments: Arguments) -> Result<(), Failure> {
    let uses: &[ConfigUse] = match &arguments.server {
        Some(_) => &[],
        None => &[ConfigUse::Store, ConfigUse::Engines],
    };
    let config = global.config_for(uses)?;
    let prompt = read_prompt(&arguments.prompt, "user_input")?;
    let mut signals = Signals::catch()?;
    let tenant = arguments.tenant.id.clone();
    let backend = match &arguments.server {
        Some(url) => Place::There(There::open(&config, url, tenant).await?),
        None => {
            let offer = match arguments.my_login {
                true => wiring::offer_with_login(&config, my_login::find(&tenant)?),
                false => wiring::offer(&config),
            };
            Place::Here(Box::new(Here::open(&config, &offer, tenant).await?))
        }
    };
    let started = tokio::select! {
        started = show_waiting(STARTING, start(&backend, &arguments, prompt)) => started,
        signal = signals.next() => Err(Failure::Stopped(signal)),
    };
    let done = match started {
        Ok(execution) => follow(&backend, &execution, arguments.output, &mut signals).await,
        Err(failure) => Err(failure),
    };
    tokio::select! {
        () = backend.close() => {}
        _ = signals.next() => {}
    }
    done
}

async fn start(backend: &Place, arguments: &Arguments, prompt: String) -> Result<RunId, Failure> {
    let conversation = match &arguments.conversation {
        Some(conversation) => Some(resolve_conversation(backend, conversation).await?),
        None => None,
    };
    // Before the conversation is created: an empty one would be useless.
    let model_id = match backend {
        Place::Here(here) if arguments.my_login => {
            Some(my_login::model(here, arguments, conversation.as_ref()).await?)
        }
        _ => model_asked_for(backend, arguments).await?,
    };
    let conversation = match conversation {
        Some(conversation) => conversation,
        None => backend.new_conversation().await?,
    };
    let (limits, tokens) = (arguments.limits(), arguments.token.iter().cloned().collect());
    let user_id = user_id();
    let wanted = Wanted { conversation, user_input: prompt, user_id, model_id, tokens, limits };
    backend.execute(wanted).await
}

async fn resolve_conversation(
    backend: &Place,
    typed: &IdArgument<ConversationId>,
) -> Result<ConversationId, Failure> {
    match backend {
        Place::Here(here) => typed.resolve(here.app(), here.tenant()).await,
        Place::There(there) => {
            typed.resolve_from(async |after| there.conversation_ids(after).await).await
        }
    }
}

async fn model_asked_for(
    backend: &Place,
    arguments: &Arguments,
) -> Result<Option<String>, Failure> {
    Ok(match (arguments.engine, &arguments.model) {
        (Some(engine), _) => Some(first_on(engine, &backend.models().await?)?),
        (None, Some(model)) => Some(active(model, &backend.models().await?)?),
        (None, None) => None,
    })
}

fn money(text: &str) -> Result<Cost, String> {
    let dollars = text.parse().ok().and_then(Cost::from_dollars);
    dollars.ok_or_else(|| "an amount of dollars, such as 0.25".to_owned())
}

impl Arguments {
    fn limits(&self) -> ExecutionLimits {
        let subagent = ExecutionLimits {
            max_turns: self.subagent_max_turns,
            max_tokens: self.subagent_max_tokens,
            max_cost_usd: self.subagent_max_cost_usd,
            subagent: None,
        };
        ExecutionLimits {
            max_turns: self.max_turns,
            max_tokens: self.max_tokens,
            max_cost_usd: self.max_cost_usd,
            subagent: (!subagent.is_none()).then(|| Box::new(subagent)),
        }
    }
}

async fn follow(
    backend: &Place,
    execution: &RunId,
    output: OutputForm,
    signals: &mut Signals,
) -> Result<(), Failure> {
    let mut teller = Teller::new(output.into());
    let mut feed = backend.feed(execution).await?;
    let stopped = tell_all(backend, execution, &mut feed, &mut teller, signals).await?;
    let record = backend.record(execution).await?;
    teller.end(&record)?;
    match stopped {
        // It may have completed before the signal took effect.
        Some(signal) if record["status"] != "completed" => Err(Failure::Stopped(signal)),
        _ => judge(execution, &record),
    }
}

/// Shows all events. Returns the signal that asked to stop, if there was one.
async fn tell_all(
    backend: &Place,
    execution: &RunId,
    feed: &mut Feed,
    teller: &mut Teller,
    signals: &mut Signals,
) -> Result<Option<u8>, Failure> {
    let mut stopped = None;
    loop {
        tokio::select! {
            happening = teller.wait_for(feed.next()) => match happening? {
                Some(happening) => teller.tell(&happening)?,
                None => return Ok(stopped),
            },
            signal = signals.next() => {
                if stopped.is_some() {
                    return Err(Failure::Stopped(signal));
                }
                stopped = Some(signal);
                backend.cancel(execution).await?;
            }
        }
    }
}

fn judge(execution: &RunId, record: &Value) -> Result<(), Failure> {
    let next = format!("`shikiri executions show {execution}` has the rest");
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    match record["status"].as_str() {
        Some("completed") if record["partial"] == true => {
            Err(Failure::new(Exit::Failed, "its time was up: the answer is partial", &next))
        }
        Some("completed") => Ok(()),
        _ => {
            let error = &record["error"];
            let what = format!("{}: {}", text(&error["code"]), text(&error["message"]));
            Err(Failure::new(Exit::Failed, what, &next))
        }
    }
}

pub(super) fn first_on(engine: EngineKind, models: &[ModelChoice]) -> Result<String, Failure> {
    let engine = engine.as_str();
    let mut active = models.iter().filter(|model| model.is_active);
    if let Some(model) = active.clone().find(|model| model.engine == engine) {
        return Ok(model.id.clone());
    }
    let what = format!("no active model runs on {engine}");
    let there: Vec<_> = active.by_ref().map(|m| format!("{} ({})", m.id, m.engine)).collect();
    let there = if there.is_empty() { "none".to_owned() } else { there.join(", ") };
    Err(Failure::new(Exit::NotFound, what, &format!("active models: {there}")))
}

/// The model, if it is active.
pub(super) fn active(id: &str, models: &[ModelChoice]) -> Result<String, Failure> {
    match models.iter().find(|model| model.id == id) {
        None => Err(AppError::not_found("model", id).into()),
        Some(model) if !model.is_active => {
            Err(AppError::Inactive { kind: "model", id: id.to_owned() }.into())
        }
        Some(model) => Ok(model.id.clone()),
    }
}

/// The prompt, or stdin for `-`. A server would refuse the same input, but only after creating a
/// conversation. Errors name `field`.
pub(super) fn read_prompt(argument: &str, field: &'static str) -> Result<String, Failure> {
    let mut text = String::new();
    if argument == "-" {
        // Reading one byte more than allowed is enough to refuse it.
        let reading = std::io::stdin().lock().take(MAX_PROMPT + 1).read_to_string(&mut text);
        reading.map_err(|error| Failure::usage(format!("stdin: {error}"), "send text in UTF-8"))?;
    } else {
        argument.clone_into(&mut text);
    }
    let wrong = if text.trim().is_empty() {
        AppError::invalid(field, "must not be empty")
    } else if text.len() as u64 > MAX_PROMPT {
        AppError::invalid(field, "must have at most 1 MiB")
    } else {
        return Ok(text);
    };
    Err(wrong.into())
}

/// The user of this machine.
fn user_id() -> String {
    let user = std::env::var(env_vars::USER.name).unwrap_or_default();
    if user.trim().is_empty() { "local".to_owned() } else { user }
}

impl From<OutputForm> for Form {
    fn from(form: OutputForm) -> Self {
        match form {
            OutputForm::Text => Self::Text,
            OutputForm::StreamJson => Self::StreamJson,
        }
    }
}
