//! `shikiri who FILE`: the agents that used a file.

use std::path::{Path, PathBuf};

use clap::{Args, ValueHint};
use shikiri_app::App;
use shikiri_hook::path_resolver;
use shikiri_model::hook::{FileTouchQuery, FileTouchRecord, TouchOutcome, name_in_project};
use shikiri_web::views::ListPage;

use super::parts::tell_of_more;
use super::{JsonArgument, TenantArgument};
use crate::config::Config;
use crate::exit::{Exit, Failure};
use crate::output::Output;
use crate::table::TableColumn;
use crate::text::{one_line, short};

#[derive(Args)]
pub(super) struct Arguments {
    /// The file, also one that does not exist any more
    #[arg(value_hint = ValueHint::FilePath)]
    file: PathBuf,
    /// How many calls, the newest
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    limit: u32,
    #[command(flatten)]
    tenant: TenantArgument,
    #[command(flatten)]
    json: JsonArgument,
}

pub(super) async fn run(app: &App, config: &Config, arguments: Arguments) -> Result<(), Failure> {
    let Arguments { file, limit, tenant, json } = arguments;
    let query = query(&file, &config.root, limit.saturating_add(1))?;
    let mut touches = app.subagents.touches(&tenant.id, query).await?;
    let has_more = touches.len() > limit as usize;
    touches.truncate(limit as usize);
    let output = Output::stdout();
    if json.json {
        return output.json(&ListPage::<FileTouchRecord>::new((touches, None)));
    }
    if touches.is_empty() {
        let file = one_line(&file.to_string_lossy());
        let hint = "`shikiri hooks install` has Claude Code tell of them";
        return output.line(&format!("No agent is known to have used {file}; {hint}"));
    }
    let rows: Vec<_> = touches.iter().map(row).collect();
    let columns = [
        TableColumn::time("at"),
        TableColumn::text("agent"),
        TableColumn::text("role"),
        TableColumn::text("session").minor(),
        TableColumn::text("tool"),
        TableColumn::state("outcome"),
        TableColumn::text("file").minor(),
        TableColumn::text("command").minor(),
    ];
    output.table(&columns, &rows, "")?;
    tell_of_more(has_more);
    Ok(())
}

/// The names under which calls may have used the file.
fn query(file: &Path, root: &Path, limit: u32) -> Result<FileTouchQuery, Failure> {
    let current = std::env::current_dir().map_err(|error| {
        Failure::new(Exit::Failed, format!("no current folder: {error}"), "name the file from /")
    })?;
    let real = path_resolver::follow_links(&current.join(file));
    let facts = path_resolver::resolve(root, current.to_str(), &[text(&real)]);
    let mut paths = vec![text(&current.join(file))];
    if !paths.contains(&text(&real)) {
        paths.push(text(&real));
    }
    let name = name_in_project(&text(&real), &facts.roots);
    Ok(FileTouchQuery { paths, name, limit })
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

fn row(touch: &FileTouchRecord) -> Vec<String> {
    let or = |text: &Option<String>, otherwise: &str| {
        text.as_deref().map_or_else(|| otherwise.to_owned(), one_line)
    };
    let role = match (&touch.agent_id, &touch.agent_type) {
        (None, None) => "main",
        _ => "?",
    };
    let outcome = match (touch.outcome, touch.removed) {
        (TouchOutcome::Done, true) => "removed",
        (outcome, _) => outcome.as_str(),
    };
    vec![
        touch.timestamp.to_string(),
        or(&touch.agent_id, "main"),
        or(&touch.role, role),
        one_line(&touch.session_id),
        one_line(&touch.tool),
        outcome.to_owned(),
        one_line(touch.name.as_ref().unwrap_or(&touch.path)),
        touch.command.as_deref().map(|command| short(command, 60)).unwrap_or_default(),
    ]
}
