//! `shikiri runs start|list|show|answer`.

use clap::Subcommand;
use serde_json::Value;
use shikiri_app::App;
use shikiri_model::ids::{QuestionId, RunId, TenantId};
use shikiri_model::record::StoredDocument;
use shikiri_model::run::{NodeProcess, Run, RunStatus};
use shikiri_runtime::run::{NewRun, RunView};
use shikiri_web::views::RunJson;

use super::id_argument::IdArgument;
use super::parts::{none_yet, present, print_page, sheet_of_width, word};
use super::status::{ServerFinding, ServerState};
use super::{CommonArguments, JsonArgument, run_answer};
use crate::config::Config;
use crate::exit::{Exit, Failure};
use crate::follow::{Ending, follow};
use crate::near_name::nearest;
use crate::output::{Output, note};
use crate::table::TableColumn;
use crate::text::short;
use crate::wiring::Access;

#[derive(Subcommand)]
pub(super) enum Command {
    /// Put a run in the queue; a server carries it
    Start {
        /// The agent, such as long_running_agent
        agent: String,
        /// What the agent is given
        #[arg(long, value_name = "JSON", default_value = "{}", value_parser = read_input)]
        input: Value,
        /// A second start with this key gives the first one's run
        #[arg(long, value_name = "KEY")]
        idempotency_key: Option<String>,
        /// Follow it to its end; exit code 1 unless it completes
        #[arg(long)]
        follow: bool,
        #[command(flatten)]
        common: CommonArguments,
    },
    /// Show runs, newest first
    List {
        /// Only those with this status
        #[arg(long, value_parser = word::<RunStatus>())]
        status: Option<RunStatus>,
        /// Show at most this many
        #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=1000))]
        limit: u32,
        #[command(flatten)]
        common: CommonArguments,
    },
    /// Show one run
    Show {
        /// Its id, a unique ending of it, or @last for the newest
        run: IdArgument<RunId>,
        #[command(flatten)]
        common: CommonArguments,
    },
    /// Answer a question that a run asks a person
    Answer {
        /// Its id, a unique ending of it, or @last for the newest
        run: IdArgument<RunId>,
        /// Its id, where the run asks several
        question: Option<QuestionId>,
        #[command(flatten)]
        choice: run_answer::Choice,
        #[command(flatten)]
        common: CommonArguments,
    },
}

impl Command {
    pub(super) fn access(&self) -> Access {
        match self {
            Self::Start { .. } | Self::Answer { .. } => Access::Write,
            Self::List { .. } | Self::Show { .. } => Access::Read,
        }
    }
}

pub(super) async fn run(app: &App, config: &Config, command: Command) -> Result<(), Failure> {
    match command {
        Command::Start { agent, input, idempotency_key, follow, common } => {
            require_agent(app, &agent)?;
            let new = NewRun { agent, input, idempotency_key, origin: None };
            let view = app.runtime.start_run(&common.tenant.id, new).await?;
            warn_if_alone(app, config).await;
            if follow {
                follow_to_end(app, &common.tenant.id, &view.run.id, common.json).await
            } else if common.json.json {
                Output::stdout().json(&RunJson::from(view))
            } else {
                Output::stdout().line(view.run.id.as_str())
            }
        }
        Command::List { status, limit, common } => {
            list(app, &common.tenant.id, status, limit, common.json).await
        }
        Command::Show { run, common } => {
            let run = run.resolve(app, &common.tenant.id).await?;
            show(app.runtime.run(&common.tenant.id, &run).await?, common.json)
        }
        Command::Answer { run, question, choice, common } => {
            let run = run.resolve(app, &common.tenant.id).await?;
            run_answer::run(app, &run, question.as_ref(), choice, &common).await
        }
    }
}

/// Parsed with the command line, so that mistakes are found before anything is opened or created.
pub(super) fn read_input(text: &str) -> Result<Value, String> {
    serde_json::from_str(text)
        .map_err(|error| format!(r#"this is not JSON ({error}); write it like '{{"steps": 5}}'"#))
}

/// An agent here is a program of this one's, not a member of a team.
fn require_agent(app: &App, name: &str) -> Result<(), Failure> {
    let known = app.runtime.agent_names();
    if known.contains(&name) {
        return Ok(());
    }
    let near = nearest(name, known.iter().copied());
    let near = near.map(|near| format!("; did you mean {near}?")).unwrap_or_default();
    let what = format!("no agent {name:?} can be run{near}");
    Err(Failure::usage(what, &format!("there are: {}", known.join(", "))))
}

/// Warns the user: without a server of this store the run stays in the queue. Servers are known by
/// their records in the store, whatever address they have.
async fn warn_if_alone(app: &App, config: &Config) {
    let nodes = app.runtime.list_nodes().await.unwrap_or_default();
    let servers = nodes.iter().filter(|node| node.node.process == NodeProcess::Server);
    let found = ServerFinding::look(config, &servers.collect::<Vec<_>>()).await;
    let there = match found.state {
        ServerState::Running => return,
        ServerState::OtherProject => " (the server there is another project's)",
        ServerState::OtherProgram => " (another program has that address)",
        ServerState::NotAnswering | ServerState::Killed | ServerState::None => "",
    };
    note(&format!(
        "note: no server answers on {}{there}; the run waits in the queue until one is started",
        config.listen
    ));
}

async fn follow_to_end(
    app: &App,
    tenant: &TenantId,
    run: &RunId,
    json: JsonArgument,
) -> Result<(), Failure> {
    match follow(app, tenant, run, 0, json.json).await? {
        Ending::Ended(RunStatus::Completed) => Ok(()),
        Ending::Ended(status) => {
            let next = format!("`shikiri runs show {run}` says why");
            Err(Failure::new(Exit::Failed, format!("{run} is {}", status.as_str()), &next))
        }
        Ending::Detached { .. } => {
            note(&format!("detached; {run} goes on"));
            Ok(())
        }
    }
}

async fn list(
    app: &App,
    tenant: &TenantId,
    status: Option<RunStatus>,
    limit: u32,
    json: JsonArgument,
) -> Result<(), Failure> {
    let page = app.runtime.list_runs(tenant, status, None, limit).await?;
    let row = |stored: &StoredDocument<Run>| {
        let run = &stored.value;
        let status = run.status.as_str().to_owned();
        vec![run.id.to_string(), status, stored.created_at.to_string(), short(&run.agent, 60)]
    };
    let columns = [
        TableColumn::id("id"),
        TableColumn::state("status"),
        TableColumn::time("created"),
        TableColumn::text("agent"),
    ];
    let start = "runs start long_running_agent --follow";
    print_page::<RunJson, _>(page, json, &columns, &none_yet("runs", status.is_some(), start), row)
}

fn show(view: RunView, json: JsonArgument) -> Result<(), Failure> {
    if json.json {
        return Output::stdout().json(&RunJson::from(view));
    }
    let (run, output) = (&view.run, Output::stdout());
    let value = |value: &Option<Value>| value.as_ref().map(|v| short(&v.to_string(), 200));
    let error = run.error.as_ref().map(|e| short(&format!("{}: {}", e.code, e.message), 200));
    let lines = [
        ("run", Some(run.id.to_string())),
        ("agent", Some(short(&run.agent, 100))),
        ("status", Some(output.state(run.status.as_str()))),
        ("input", Some(short(&run.input.to_string(), 200))),
        ("progress", value(&view.progress)),
        ("result", value(&run.result)),
        ("error", error),
        ("starts", Some(run.starts.to_string())),
        ("created", Some(output.time(view.created_at))),
        ("ended", run.ended_at.map(|at| output.time(at))),
    ];
    let asked = run
        .questions
        .iter()
        .map(|question| ("asks", short(&format!("{} {}", question.id, question.message), 200)));
    // As wide as its longest name, whether or not there is progress.
    sheet_of_width("progress".len(), &present(lines).into_iter().chain(asked).collect::<Vec<_>>())
}
