//! `shikiri audit`: changes to permissions.

use clap::Args;
use shikiri_app::App;
use shikiri_model::audit::{AuditActor, AuditRecord};
use shikiri_web::views::AuditPage;

use super::JsonArgument;
use crate::exit::Failure;
use crate::output::Output;
use crate::signals::Signals;
use crate::table::TableColumn;
use crate::text::one_line;
use crate::wiring::Access;

#[derive(Args)]
pub(super) struct Arguments {
    /// Go on with what is to come, until Ctrl-C
    #[arg(long)]
    follow: bool,
    /// Only the newest so many
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    limit: u32,
    #[command(flatten)]
    json: JsonArgument,
}

impl Arguments {
    /// A log must exist to be followed.
    pub(super) fn access(&self) -> Access {
        if self.follow { Access::Write } else { Access::Read }
    }
}

pub(super) async fn run(app: &App, arguments: Arguments) -> Result<(), Failure> {
    let entries = app.runtime.newest_audit_entries(arguments.limit as usize).await?;
    if arguments.follow {
        return follow(app, entries, arguments.json).await;
    }
    let output = Output::stdout();
    if arguments.json.json {
        return output.json(&AuditPage::new(entries, None));
    }
    let rows: Vec<_> = entries.iter().map(row).collect();
    let columns = [
        TableColumn::time("at"),
        TableColumn::text("who"),
        TableColumn::text("from").minor(),
        TableColumn::text("action"),
        TableColumn::text("what"),
        TableColumn::text("fields").minor(),
    ];
    output.table(&columns, &rows, "Nothing was changed yet that is recorded here.")
}

/// A line for each entry, as it comes.
async fn follow(app: &App, past: Vec<AuditRecord>, json: JsonArgument) -> Result<(), Failure> {
    let mut signals = Signals::catch()?;
    let seen = past.last().map_or(0, |entry| entry.seq);
    for entry in past {
        tell(entry, json)?;
    }
    let mut watch = app.runtime.watch_audit(seen).await?;
    loop {
        let delivery = tokio::select! {
            delivery = watch.next() => delivery?,
            _ = signals.next() => return Ok(()),
        };
        let Some(delivery) = delivery else { return Ok(()) };
        for event in delivery.events() {
            tell(AuditRecord::read(event).map_err(shikiri_runtime::AppError::from)?, json)?;
        }
    }
}

fn tell(entry: AuditRecord, json: JsonArgument) -> Result<(), Failure> {
    let output = Output::stdout();
    if json.json {
        return output.json_line(&entry);
    }
    output.line(&row(&entry).join("  "))
}

fn row(record: &AuditRecord) -> Vec<String> {
    let entry = &record.entry;
    let who = match &entry.who {
        AuditActor::Key { id, name } => format!("{} ({id})", one_line(name)),
        AuditActor::Cli { user } => format!("cli: {}", one_line(user)),
        AuditActor::System => "system".to_owned(),
    };
    let what = match &entry.tenant {
        Some(tenant) if tenant.as_str() != entry.id => {
            format!("{} {} of {tenant}", entry.kind, one_line(&entry.id))
        }
        _ => format!("{} {}", entry.kind, one_line(&entry.id)),
    };
    vec![
        record.at.to_string(),
        who,
        entry.from.clone().unwrap_or_else(|| "-".to_owned()),
        entry.action.as_str().to_owned(),
        what,
        one_line(&entry.fields.join(", ")),
    ]
}
