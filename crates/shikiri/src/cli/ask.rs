//! `shikiri ask PROVIDER QUESTION`: a question to a chat page, asked by this process. Its run is as
//! durable as that of `shikiri runs start ask_chatgpt_web`, and stands in the same history.

use std::time::Duration;

use clap::{Args, ValueEnum};
use serde_json::{Value, json};
use shikiri_app::App;
use shikiri_model::ids::{RunId, TenantId};
use shikiri_model::run::{RunError, RunStatus, run_stream};
use shikiri_runtime::run::{NewRun, WorkerNode};

use super::run::read_prompt;
use super::{Global, JsonArgument, TenantArgument};
use crate::config::{BrowserFlags, Config, Pages, Surroundings};
use crate::exit::{Exit, Failure};
use crate::output::{Output, Style, note};
use crate::signals::Signals;
use crate::text::{one_line, safe_text};
use crate::trust::ConfigUse;
use crate::wiring::{self, Access};
use crate::{lane_files, logging};

/// How long this process may take to join as a node.
const JOINING: Duration = Duration::from_secs(5);

#[derive(Args)]
pub(super) struct Arguments {
    /// Who is asked
    provider: AskTarget,
    /// The question; - reads it from stdin
    question: String,
    #[command(flatten)]
    browser: BrowserFlags,
    #[command(flatten)]
    tenant: TenantArgument,
    #[command(flatten)]
    json: JsonArgument,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum AskTarget {
    Chatgpt,
    Gemini,
    Both,
}

impl AskTarget {
    /// The agent that asks.
    fn agent(self) -> &'static str {
        match self {
            Self::Chatgpt => "ask_chatgpt_web",
            Self::Gemini => "ask_gemini_web",
            Self::Both => "ask_chatgpt_gemini_web",
        }
    }
}

/// Prints the answer alone on stdout, and all else on stderr. Ctrl-C cancels the question; a second
/// one does not wait for that.
pub(super) async fn run(global: &Global, arguments: Arguments) -> Result<(), Failure> {
    let flags = arguments.browser.settings.clone().or(global.settings());
    let uses = &[ConfigUse::Store, ConfigUse::Browser];
    let config = Config::load_for(uses, flags, &Surroundings::of_process())?;
    logging::start(&config, "warn")?;
    let question = read_prompt(&arguments.question, "question")?;
    let mut signals = Signals::catch()?;
    let app = wiring::open_app(&config, &wiring::offer(&config), Access::Write).await?;
    let app = app.acting_as(wiring::person());
    lane_files::take_in(&app, &config).await;
    let node = app.start_own_worker();
    let done = ask(&app, &node, &config, &arguments, question, &mut signals).await;
    tokio::select! {
        () = node.leave() => {}
        _ = signals.next() => {}
    }
    done
}

async fn ask(
    app: &App,
    node: &WorkerNode,
    config: &Config,
    arguments: &Arguments,
    question: String,
    signals: &mut Signals,
) -> Result<(), Failure> {
    if config.pages != Pages::Browser {
        note("shikiri: SHIKIRI_PAGES is offline: no provider is asked, the answer is a stand-in's");
    }
    // Else the run would wait in the queue for a server.
    let _ = tokio::time::timeout(JOINING, node.joined()).await;
    let tenant = &arguments.tenant.id;
    let new = NewRun {
        agent: arguments.provider.agent().to_owned(),
        input: json!({ "question": question }),
        idempotency_key: None,
        origin: None,
    };
    let run = app.runtime.start_run(tenant, new).await?.run.id;
    let stopped = watch_progress(app, tenant, &run, signals).await?;
    let ended = app.runtime.run(tenant, &run).await?.run;
    match (ended.status, ended.result, stopped, ended.error) {
        // It may have completed before the signal took effect.
        (RunStatus::Completed, Some(result), ..) => tell(arguments, &result),
        (_, _, Some(signal), _) => Err(Failure::Stopped(signal)),
        (_, _, None, Some(error)) => Err(failure(&run, &error)),
        (status, _, None, None) => {
            let next = format!("`shikiri runs show {run}` has the rest");
            Err(Failure::new(Exit::Failed, format!("{run} is {}", status.as_str()), &next))
        }
    }
}

/// Shows the progress until the run ends. Returns the signal that asked to stop, if there was one.
async fn watch_progress(
    app: &App,
    tenant: &TenantId,
    run: &RunId,
    signals: &mut Signals,
) -> Result<Option<u8>, Failure> {
    let mut watch = app.runtime.watch(tenant, run_stream(run), 0).await?;
    let mut stopped = None;
    let mut last = String::new();
    loop {
        tokio::select! {
            delivery = watch.next() => {
                let Some(delivery) = delivery? else { return Ok(stopped) };
                for event in delivery.events() {
                    let Some(line) = progress_line(event.kind, event.data) else { continue };
                    if line != last {
                        note(&Output::stderr().paint(Style::Dim, &line));
                        last = line;
                    }
                }
            }
            signal = signals.next() => {
                if stopped.is_some() {
                    return Err(Failure::Stopped(signal));
                }
                stopped = Some(signal);
                // One that has just ended needs no cancelling.
                let _ = app.runtime.cancel_run(tenant, run).await;
            }
        }
    }
}

/// What people are told of an event; None for most.
fn progress_line(kind: &str, data: &str) -> Option<String> {
    let data: Value = serde_json::from_str(data).unwrap_or_default();
    let text = match kind {
        "step_started" => data["name"].as_str()?,
        "progress" | "warning" => data["message"].as_str()?,
        "node_lost" => "the process that asked is gone",
        _ => return None,
    };
    Some(one_line(text)).filter(|line| !line.is_empty())
}

fn tell(arguments: &Arguments, result: &Value) -> Result<(), Failure> {
    let output = Output::stdout();
    if arguments.json.json {
        return output.json(result);
    }
    if arguments.provider != AskTarget::Both {
        return output.line(&safe_text(text_of(&result["answer"])));
    }
    for provider in ["chatgpt", "gemini"] {
        let part = &result[provider];
        let Some(answer) = part["answer"].as_str() else {
            let error = &part["error"];
            let (code, message) = (text_of(&error["code"]), text_of(&error["message"]));
            note(&format!("shikiri: {provider}: {}: {}", one_line(code), one_line(message)));
            continue;
        };
        output.line(&output.paint(Style::Bold, &format!("== {provider}")))?;
        output.line(&safe_text(answer))?;
    }
    Ok(())
}

fn text_of(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// A refused or failed question, with the next step for its code.
fn failure(run: &RunId, error: &RunError) -> Failure {
    let rest = format!("`shikiri runs show {run}` has the rest");
    let (exit, next) = match error.code.as_str() {
        // The message names the command.
        "LOGIN_REQUIRED" => {
            return Failure::told(Exit::Refused, format!("{}: {}", error.code, error.message));
        }
        "BROWSER_UNAVAILABLE" => (Exit::Unavailable, "`shikiri browser check` tries it"),
        "PAGE_CHANGED" => (Exit::Failed, "`shikiri browser check` shows what the page has"),
        "ANSWER_TIMEOUT" => {
            (Exit::Failed, "look into the chat; `shikiri lanes list` has its address")
        }
        "UNKNOWN_OUTCOME" => (Exit::Failed, "`shikiri history` shows it; look into the chat first"),
        "LANES_FULL" | "QUEUE_FULL" => {
            (Exit::Refused, "try again later; `shikiri lanes list` shows who asks")
        }
        "THREAD_GONE" | "BROWSER_FAILED" => (Exit::Failed, "ask again"),
        _ => (Exit::Failed, rest.as_str()),
    };
    Failure::new(exit, format!("{}: {}", error.code, error.message), next)
}
