//! `shikiri host resume`: resumes calls that another process left.

use clap::Args;
use shikiri_host::Host;
use shikiri_model::ids::HostCallId;

use super::call::{Following, take_up};
use crate::cli::id_argument::IdArgument;
use crate::exit::{Exit, Failure};
use crate::output::note;

#[derive(Args)]
pub(super) struct Arguments {
    /// The call [default: every call that was left, the oldest first]
    call: Option<IdArgument<HostCallId>>,
    #[command(flatten)]
    following: Following,
}

impl Arguments {
    pub(super) fn may_ask(&self) -> bool {
        self.following.may_ask()
    }
}

pub(super) async fn run(host: &Host, arguments: Arguments) -> Result<(), Failure> {
    if let Some(id) = &arguments.call {
        let left = async |_: Option<()>| {
            let left = host.open_calls().await?;
            Ok((left.iter().rev().map(|call| call.value.id.to_string()).collect(), None))
        };
        let call = host.call(&id.resolve_from(left).await?).await?;
        return take_up(host, &call, &arguments.following).await;
    }
    let left = host.open_calls().await?;
    if left.is_empty() {
        note("nothing was left to take up");
        return Ok(());
    }
    let mut failed = 0;
    for call in &left {
        // A failed call must not stop the others from being resumed.
        match take_up(host, call, &arguments.following).await {
            Ok(()) => {}
            Err(stopped @ Failure::Stopped(_)) => return Err(stopped),
            Err(failure) => {
                failed += 1;
                note(&format!("shikiri: {failure}"));
            }
        }
    }
    match failed {
        0 => Ok(()),
        failed => {
            Err(Failure::told(Exit::Failed, format!("{failed} of {} calls failed", left.len())))
        }
    }
}
