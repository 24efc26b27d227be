//! `shikiri attach RUN`.

use clap::Args;
use shikiri_app::App;
use shikiri_model::event::Seq;
use shikiri_model::ids::RunId;

use super::{JsonArgument, TenantArgument};
use crate::exit::Failure;
use crate::follow::{Ending, follow};
use crate::output::note;

#[derive(Args)]
pub(super) struct Arguments {
    /// The run to follow
    run: RunId,
    /// Only events after this number
    #[arg(long, value_name = "SEQ", default_value_t = 0)]
    after: Seq,
    #[command(flatten)]
    tenant: TenantArgument,
    #[command(flatten)]
    json: JsonArgument,
}

pub(super) async fn run(app: &App, arguments: Arguments) -> Result<(), Failure> {
    let Arguments { run, after, tenant, json } = arguments;
    match follow(app, &tenant.id, &run, after, json.json).await? {
        Ending::Ended(_) => Ok(()),
        Ending::Detached { last_seq } => {
            note(&format!(
                "detached after event {last_seq}; the run goes on (`shikiri attach {run} --after {last_seq}`)"
            ));
            Ok(())
        }
    }
}
