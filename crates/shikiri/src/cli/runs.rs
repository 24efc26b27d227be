//! `shikiri runs start|list|show`.

use clap::{Subcommand, ValueEnum};
use serde_json::Value;
use shikiri_app::App;
use shikiri_app::run::{NewRun, RunView};
use shikiri_model::ids::{RunId, TenantId};
use shikiri_model::run::RunStatus;
use shikiri_web::views::{Page, RunJson};

use super::{JsonArgument, TenantArgument};
use crate::client::Client;
use crate::config::Config;
use crate::exit::{Exit, Failure};
use crate::follow::{Ending, follow};
use crate::output::{Output, Style, note};
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
        tenant: TenantArgument,
        #[command(flatten)]
        json: JsonArgument,
    },
    /// Show runs, newest first
    List {
        #[arg(long)]
        status: Option<Status>,
        #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=1000))]
        limit: u32,
        #[command(flatten)]
        tenant: TenantArgument,
        #[command(flatten)]
        json: JsonArgument,
    },
    /// Show one run
    Show {
        run: RunId,
        #[command(flatten)]
        tenant: TenantArgument,
        #[command(flatten)]
        json: JsonArgument,
    },
}

impl Command {
    pub(super) fn access(&self) -> Access {
        match self {
            Self::Start { .. } => Access::Write,
            Self::List { .. } | Self::Show { .. } => Access::Read,
        }
    }
}

#[derive(Clone, Copy, ValueEnum)]
pub(super) enum Status {
    Queued,
    Running,
    Waiting,
    Completed,
    Failed,
    Cancelled,
}

impl From<Status> for RunStatus {
    fn from(status: Status) -> Self {
        match status {
            Status::Queued => Self::Queued,
            Status::Running => Self::Running,
            Status::Waiting => Self::Waiting,
            Status::Completed => Self::Completed,
            Status::Failed => Self::Failed,
            Status::Cancelled => Self::Cancelled,
        }
    }
}

pub(super) async fn run(app: &App, config: &Config, command: Command) -> Result<(), Failure> {
    match command {
        Command::Start { agent, input, idempotency_key, follow, tenant, json } => {
            let new = NewRun { agent, input, idempotency_key, origin: None };
            let view = app.start_run(&tenant.id, new).await?;
            warn_if_alone(config).await;
            if follow {
                follow_to_end(app, &tenant.id, &view.run.id, json).await
            } else if json.json {
                Output::stdout().json(&RunJson::from(view))
            } else {
                Output::stdout().line(view.run.id.as_str())
            }
        }
        Command::List { status, limit, tenant, json } => {
            list(app, &tenant.id, status.map(Into::into), limit, json).await
        }
        Command::Show { run, tenant, json } => show(app.run(&tenant.id, &run).await?, json),
    }
}

/// Read with the command line: a mistake in it is found before anything is opened or made.
fn read_input(text: &str) -> Result<Value, String> {
    serde_json::from_str(text)
        .map_err(|error| format!(r#"this is not JSON ({error}); write it like '{{"steps": 5}}'"#))
}

/// A run that nobody carries waits for ever, which should not surprise anybody.
async fn warn_if_alone(config: &Config) {
    if !Client::new(config.listen, String::new()).is_up().await {
        note(&format!(
            "note: no server answers on {}; the run waits in the queue until one is started",
            config.listen
        ));
    }
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
    let (runs, next) = app.list_runs(tenant, status, None, limit).await?;
    let output = Output::stdout();
    if json.json {
        return output.json(&Page::<RunJson>::new((runs, next)));
    }
    let rows: Vec<Vec<String>> = runs
        .iter()
        .map(|stored| {
            let run = &stored.value;
            let status = run.status.as_str().to_owned();
            vec![run.id.to_string(), status, stored.created_at.to_string(), short(&run.agent, 60)]
        })
        .collect();
    output.table(&["id", "status", "created", "agent"], &rows)?;
    if next.is_some() {
        note("there are more: raise --limit");
    }
    Ok(())
}

fn show(view: RunView, json: JsonArgument) -> Result<(), Failure> {
    let output = Output::stdout();
    if json.json {
        return output.json(&RunJson::from(view));
    }
    let run = &view.run;
    let value = |value: &Option<Value>| value.as_ref().map(|v| short(&v.to_string(), 200));
    let error = run.error.as_ref().map(|e| short(&format!("{}: {}", e.code, e.message), 200));
    let lines = [
        ("run", Some(run.id.to_string())),
        ("agent", Some(short(&run.agent, 100))),
        ("status", Some(run.status.as_str().to_owned())),
        ("input", Some(short(&run.input.to_string(), 200))),
        ("progress", value(&view.progress)),
        ("result", value(&run.result)),
        ("error", error),
        ("starts", Some(run.starts.to_string())),
        ("created", Some(view.created_at.to_string())),
        ("ended", run.ended_at.map(|at| at.to_string())),
    ];
    for (name, value) in lines.into_iter().filter_map(|(name, value)| Some((name, value?))) {
        output.line(&format!("{}  {value}", output.paint(Style::Dim, &format!("{name:8}"))))?;
    }
    for question in &run.questions {
        let asked = format!("{} {}", question.id, question.message);
        let name = output.paint(Style::Dim, "asks    ");
        output.line(&format!("{name}  {}", short(&asked, 200)))?;
    }
    Ok(())
}
