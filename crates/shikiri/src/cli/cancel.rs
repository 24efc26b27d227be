//! `shikiri cancel RUN`.

use clap::Args;
use shikiri_app::App;
use shikiri_model::ids::RunId;
use shikiri_web::views::{ExecutionJson, RunJson};

use super::id_argument::IdArgument;
use super::{JsonArgument, TenantArgument};
use crate::exit::Failure;
use crate::output::Output;

#[derive(Args)]
pub(super) struct Arguments {
    /// The run or execution to stop, with the runs that it called
    run: IdArgument<RunId>,
    #[command(flatten)]
    tenant: TenantArgument,
    #[command(flatten)]
    json: JsonArgument,
}

pub(super) async fn run(app: &App, arguments: Arguments) -> Result<(), Failure> {
    let run = arguments.run.resolve(app, &arguments.tenant.id).await?;
    let cancelled = app.runtime.cancel_run(&arguments.tenant.id, &run).await;
    let view = cancelled.map_err(|error| Failure::not_now(error, "nothing is left to stop"))?;
    let output = Output::stdout();
    if arguments.json.json && view.run.execution.is_some() {
        let stored = app.executions.execution(&arguments.tenant.id, &run).await?;
        return output.json(&ExecutionJson::from(stored));
    }
    if arguments.json.json {
        return output.json(&RunJson::from(view));
    }
    let (run, status) = (&view.run.id, view.run.status);
    if status.is_terminal() {
        output.line(&format!("{run} is {}", status.as_str()))
    } else {
        output.line(&format!("{run} was asked to stop; `shikiri attach {run}` shows it end"))
    }
}
