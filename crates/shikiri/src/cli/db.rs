//! `shikiri db check|backup|restore|migrate`. Maintenance works on the embedded store's file;
//! PostgreSQL brings its own tools, and the answer names them.

use std::path::{Path, PathBuf};

use clap::Subcommand;
use serde_json::json;
use shikiri_runtime::sealing::{SealingKeys, SealingState};
use shikiri_sqlite::OpenError;
use shikiri_sqlite::maintenance::{self, IntegrityReport, MaintenanceError};

use super::JsonArgument;
use crate::config::Config;
use crate::exit::{Exit, Failure};
use crate::output::{Output, Style, note};
use crate::spinner::show_waiting;
use crate::store_url::StoreUrl;
use crate::text::one_line;
use crate::wiring::{self, Access};

#[derive(Subcommand)]
pub(super) enum Command {
    /// Read the whole database and say whether it is sound
    Check {
        #[command(flatten)]
        json: JsonArgument,
    },
    /// Copy the database to a new file, while others go on using it
    Backup {
        /// The new file
        file: PathBuf,
    },
    /// Put a backup in the database's place; what was there is kept beside it
    Restore {
        /// The backup
        file: PathBuf,
    },
    /// Bring the database to the schema of this program
    Migrate,
}

pub(super) async fn run(config: &Config, command: Command) -> Result<(), Failure> {
    let output = Output::stdout();
    match command {
        Command::Check { json } => match &config.store {
            StoreUrl::Sqlite(path) => {
                let path = path.clone();
                report(
                    &blocking("reading the database", move || {
                        maintenance::check(&path).map_err(not_open)
                    })
                    .await?,
                    json,
                )
            }
            StoreUrl::Postgres(_) => check_postgres(config, json).await,
        },
        Command::Backup { file } => {
            let path = embedded(config, "pg_dump")?.to_owned();
            let target = file.clone();
            blocking("copying the database", move || {
                maintenance::backup(&path, &target).map_err(not_done)
            })
            .await?;
            output.line(&format!("backed up to {}", file.display()))?;
            note_sealing(config).await;
            Ok(())
        }
        Command::Restore { file } => {
            let path = embedded(config, "pg_restore")?.to_owned();
            let (source, target) = (file.clone(), path.clone());
            let restoring = move || maintenance::restore(&source, &target).map_err(not_done);
            let kept = blocking("putting the backup in place", restoring).await?;
            output.line(&format!("restored {} to {}", file.display(), path.display()))?;
            if let Some(kept) = kept {
                output.line(&format!("what was there is kept as {}", kept.display()))?;
            }
            note_sealing(config).await;
            Ok(())
        }
        Command::Migrate => {
            show_waiting("migrating", wiring::open_store(config, Access::Write)).await?;
            let schema = shikiri_sqlite::migrate::latest_version();
            output.line(&format!("{} has schema {schema}", config.store))
        }
    }
}

/// A backup needs the key that sealed its secrets: names the key's file, or says that it is
/// missing.
async fn note_sealing(config: &Config) {
    let keys = SealingKeys::new(config.sealing_key());
    let Ok(store) = wiring::open_store(config, Access::Read).await else { return };
    match keys.state(&*store).await {
        Ok(SealingState::Fits) => note(&format!(
            "its secrets are sealed with {}: keep a copy of that file, apart from backups",
            keys.path().display()
        )),
        Ok(SealingState::Unused) => {}
        Err(error) => note(&format!("warning: {error}")),
    }
}

fn embedded<'a>(config: &'a Config, tool: &str) -> Result<&'a Path, Failure> {
    match &config.store {
        StoreUrl::Sqlite(path) => Ok(path),
        StoreUrl::Postgres(_) => {
            Err(Failure::usage("this is for the embedded store", &format!("use {tool} instead")))
        }
    }
}

async fn blocking<T: Send + 'static>(
    what: &str,
    work: impl FnOnce() -> Result<T, Failure> + Send + 'static,
) -> Result<T, Failure> {
    let done = show_waiting(what, tokio::task::spawn_blocking(work)).await;
    done.unwrap_or_else(|error| Err(Failure::told(Exit::Failed, error)))
}

async fn check_postgres(config: &Config, json: JsonArgument) -> Result<(), Failure> {
    let store = wiring::open_store(config, Access::Read).await?;
    store.probe().await?;
    let output = Output::stdout();
    if json.json {
        return output.json(&json!({ "store": config.store.to_string(), "sound": true }));
    }
    output.line(&format!("{} answers, is current and takes writes", config.store))?;
    output.line("its files are PostgreSQL's own to check (pg_amcheck)")
}

fn report(report: &IntegrityReport, json: JsonArgument) -> Result<(), Failure> {
    let output = Output::stdout();
    if json.json {
        output.json(&json!({
            "sound": report.is_sound(),
            "schema": report.schema,
            "file_bytes": report.file_bytes,
            "log_bytes": report.log_bytes,
            "streams": report.streams,
            "chunks": report.chunks,
            "events": report.events,
            "problems": report.problems,
        }))?;
    } else {
        for problem in &report.problems {
            output.line(&format!(
                "{} {}",
                output.paint(Style::Bad, "problem"),
                one_line(problem)
            ))?;
        }
        output.line(&format!(
            "schema {}, {} streams, {} events in {} chunks, {} bytes (+ {} in the log)",
            report.schema,
            report.streams,
            report.events,
            report.chunks,
            report.file_bytes,
            report.log_bytes
        ))?;
        if report.is_sound() {
            output.line(&output.paint(Style::Good, "sound"))?;
        }
    }
    match report.problems.len() {
        0 => Ok(()),
        count => {
            let next = "restore a backup, or start the server to set the file aside";
            Err(Failure::new(
                Exit::Failed,
                format!("the database has problems ({count} found)"),
                next,
            ))
        }
    }
}

fn not_open(error: OpenError) -> Failure {
    let exit = match &error {
        OpenError::Missing(_) => {
            let next = "`shikiri serve` makes one, or name another with --store";
            return Failure::new(Exit::NotFound, error, next);
        }
        OpenError::Busy(_) | OpenError::DamagedInUse(_) => Exit::Refused,
        OpenError::Damaged { .. } => Exit::Failed,
        _ => Exit::Unavailable,
    };
    Failure::told(exit, error)
}

fn not_done(error: MaintenanceError) -> Failure {
    match error {
        MaintenanceError::Open(OpenError::Missing(path)) => {
            let what = format!("there is no database at {}", path.display());
            Failure::new(Exit::NotFound, what, "name an existing file")
        }
        MaintenanceError::Open(error) => not_open(error),
        MaintenanceError::Exists(_) | MaintenanceError::InUse(_) => {
            Failure::told(Exit::Refused, error)
        }
        MaintenanceError::Unsound { .. } => Failure::told(Exit::Failed, error),
        MaintenanceError::Write { .. } => {
            Failure::new(Exit::Unavailable, error, "choose a writable folder with room")
        }
    }
}
