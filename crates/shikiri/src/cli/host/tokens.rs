//! `shikiri host tokens`: the resumption tokens of interrupted calls.

use clap::Subcommand;
use serde_json::{Value, json};
use shikiri_host::Host;
use shikiri_model::host::sanitize_line;

use super::count;
use crate::cli::JsonArgument;
use crate::exit::Failure;
use crate::output::{Output, note};
use crate::table::TableColumn;

#[derive(Subcommand)]
pub(super) enum Command {
    /// The calls that can be taken up, at the server of --url or at all
    List(JsonArgument),
    /// Give up the calls that were left, at the server of --url or at all, and forget their tokens
    Clean,
}

pub(super) async fn run(host: &Host, command: Command) -> Result<(), Failure> {
    let mut left = host.open_calls().await?;
    if host.is_by_address() {
        let at = |endpoint: &str| host.servers().iter().any(|one| one.reach.endpoint() == endpoint);
        left.retain(|call| at(&call.value.endpoint));
    }
    match command {
        Command::Clean => {
            let forgotten = host.forget(&left).await?;
            note(&format!("{} forgotten", count(forgotten, "call")));
            Ok(())
        }
        Command::List(arguments) if arguments.json => {
            let item =
                |call: &shikiri_model::record::StoredDocument<shikiri_model::host::HostCall>| {
                    let mark = &call.value.bookmark;
                    json!({
                        "call_id": call.value.id,
                        "server": call.value.server,
                        "tool": call.value.tool,
                        "arguments": call.value.arguments,
                        "created_at": call.created_at,
                        "protocol": mark.protocol,
                        "has_session": mark.session.is_some(),
                        "has_cursor": mark.cursor.is_some(),
                        "task_id": mark.task.as_ref().map(|task| &task.id),
                        "run_id": mark.run_id,
                        "questions": mark.questions.len(),
                    })
                };
            let items: Vec<Value> = left.iter().map(item).collect();
            Output::stdout().json(&json!({ "items": items }))
        }
        Command::List(_) => {
            let rows: Vec<_> = left
                .iter()
                .map(|call| {
                    let progress = call.value.progress.as_ref().map(|it| it.progress.to_string());
                    vec![
                        call.value.id.to_string(),
                        sanitize_line(&call.value.server),
                        sanitize_line(&call.value.tool),
                        progress.unwrap_or_else(|| "-".to_owned()),
                        call.created_at.to_string(),
                    ]
                })
                .collect();
            let columns = [
                TableColumn::id("call"),
                TableColumn::text("server"),
                TableColumn::text("tool"),
                TableColumn::text("progress").minor(),
                TableColumn::time("made"),
            ];
            Output::stdout().table(&columns, &rows, "No call was left.")
        }
    }
}
