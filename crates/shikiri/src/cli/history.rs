//! `shikiri history`: the questions and who asked them.

use clap::Args;
use serde_json::{Value, json};
use shikiri_app::App;
use shikiri_lanes::HistoryQuery;
use shikiri_model::lane::ProviderQuestion;
use shikiri_model::record::StoredDocument;

use super::parts::{none_yet, tell_of_more};
use super::{JsonArgument, TenantArgument};
use crate::exit::Failure;
use crate::output::Output;
use crate::table::TableColumn;
use crate::text::{one_line, short};

#[derive(Args)]
pub(super) struct Arguments {
    /// Only what this agent asked
    #[arg(long, value_name = "NAME")]
    agent: Option<String>,
    /// Only what was asked there: chatgpt, gemini
    #[arg(long, value_name = "NAME")]
    provider: Option<String>,
    /// Show at most this many
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=1000))]
    limit: u32,
    #[command(flatten)]
    tenant: TenantArgument,
    #[command(flatten)]
    json: JsonArgument,
}

pub(super) async fn run(app: &App, arguments: Arguments) -> Result<(), Failure> {
    let Arguments { agent, provider, limit, tenant, json } = arguments;
    let is_filtered = agent.is_some() || provider.is_some();
    let query = HistoryQuery { agent, provider, after: None, limit };
    let (found, next) = app.lanes.history(&tenant.id, query).await?;
    let output = Output::stdout();
    if json.json {
        let items: Vec<Value> = found.iter().map(|stored| line(&stored.value)).collect();
        let next = next.map(|next| next.encode());
        return output.json(&json!({ "items": items, "next_cursor": next }));
    }
    let row = |stored: &StoredDocument<ProviderQuestion>| {
        let asked = &stored.value;
        vec![
            asked.asked_at.to_string(),
            one_line(&asked.agent),
            one_line(&asked.lane_name),
            asked.provider.clone(),
            asked.state.as_str().to_owned(),
            short(&asked.question, 60),
        ]
    };
    let rows: Vec<_> = found.iter().map(row).collect();
    let columns = [
        TableColumn::time("at"),
        TableColumn::text("agent"),
        TableColumn::text("lane").minor(),
        TableColumn::text("provider"),
        TableColumn::state("state"),
        TableColumn::text("question"),
    ];
    let start = "runs start ask_chatgpt_web --input '{\"question\":\"Hello\"}'";
    output.table(&columns, &rows, &none_yet("questions", is_filtered, start))?;
    tell_of_more(next.is_some());
    Ok(())
}

/// The fields of the bridge's history.jsonl under their old names, then ours.
fn line(asked: &ProviderQuestion) -> Value {
    let timings = &asked.timings;
    json!({
        "ts": asked.asked_at,
        "project": asked.project,
        "provider": asked.provider,
        "question": asked.question,
        "answer": asked.answer,
        "url": asked.url,
        "timings": {
            "connectMs": timings.connect_ms,
            "waitInputMs": timings.wait_input_ms,
            "inputMs": timings.input_ms,
            "sendMs": timings.send_ms,
            "waitResponseMs": timings.wait_response_ms,
            "totalMs": timings.total_ms,
        },
        "id": asked.id,
        "agent": asked.agent,
        "instance": asked.instance,
        "subagent": asked.subagent,
        "lane": asked.lane_name,
        "session": asked.session,
        "execution": asked.execution,
        "status": asked.state,
        "sent": asked.sent,
        "error": asked.error,
        "ended": asked.ended_at,
    })
}
