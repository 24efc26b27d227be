//! `shikiri attach RUN`.

use clap::Args;
use shikiri_app::App;
use shikiri_model::event::Seq;
use shikiri_model::ids::{RunId, TenantId};
use shikiri_web::views::ExecutionJson;

use super::id_argument::IdArgument;
use super::{JsonArgument, TenantArgument};
use crate::exit::{Exit, Failure};
use crate::follow::{Ending, follow};
use crate::output::note;
use crate::signals::Signals;
use crate::terminal::host::has_person;
use crate::terminal::{Form, Local, Teller};
use crate::wiring::Access;

#[derive(Args)]
pub(super) struct Arguments {
    /// The run or execution to follow
    run: IdArgument<RunId>,
    /// Only events after this number
    #[arg(long, value_name = "SEQ", default_value_t = 0)]
    after: Seq,
    #[command(flatten)]
    tenant: TenantArgument,
    #[command(flatten)]
    json: JsonArgument,
}

/// A person who is asked a question writes the answer.
pub(super) fn access() -> Access {
    if has_person() { Access::Write } else { Access::Read }
}

pub(super) async fn run(app: &App, arguments: Arguments) -> Result<(), Failure> {
    let Arguments { run, after, tenant, json } = arguments;
    let run = run.resolve(app, &tenant.id).await?;
    let found = app.runtime.run(&tenant.id, &run).await?;
    let ending = match found.run.execution {
        Some(_) => listen(app, &tenant.id, &run, after, json.json).await?,
        None => follow(app, &tenant.id, &run, after, json.json).await?,
    };
    if let Ending::Detached { last_seq } = ending {
        note(&format!(
            "detached after event {last_seq}; it goes on (`shikiri attach {run} --after {last_seq}`)"
        ));
    }
    Ok(())
}

/// Shows an execution as `shikiri run` does.
async fn listen(
    app: &App,
    tenant: &TenantId,
    execution: &RunId,
    after: Seq,
    as_json: bool,
) -> Result<Ending, Failure> {
    let mut signals = Signals::catch()?;
    let mut teller = Teller::new(if as_json { Form::StreamJson } else { Form::Text });
    let mut feed = Local::start(app, tenant, execution, after).await?;
    let mut last_seq = after;
    loop {
        let happening = tokio::select! {
            happening = teller.wait_for(feed.next()) => happening?,
            _ = signals.next() => return Ok(Ending::Detached { last_seq }),
        };
        let Some(happening) = happening else { break };
        last_seq = happening.data["seq"].as_u64().unwrap_or(last_seq);
        teller.tell(&happening)?;
    }
    let stored = app.executions.execution(tenant, execution).await?;
    let status = stored.value.status;
    let record = serde_json::to_value(ExecutionJson::from(stored));
    teller.end(&record.map_err(|error| Failure::told(Exit::Failed, error))?)?;
    Ok(Ending::Ended(status))
}
