//! Logs, on stderr: readable, or one JSON object per line.

use std::io;

use tracing_subscriber::EnvFilter;

use crate::config::{Config, LogFormat};
use crate::exit::Failure;
use crate::output::stderr_colour;

/// Starts logging; `quiet` is the filter where none is configured.
pub fn start(config: &Config, quiet: &str) -> Result<(), Failure> {
    let wanted = config.log.as_deref().unwrap_or(quiet);
    let filter = EnvFilter::builder().parse(wanted).map_err(|error| {
        let what = format!("the log filter {wanted:?} cannot be read ({error})");
        Failure::usage(what, "write SHIKIRI_LOG like info or warn,shikiri_mcp=debug")
    })?;
    // Logging errors are not logged: writing them to a closed stderr would panic.
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr)
        .with_ansi(stderr_colour())
        .log_internal_errors(false);
    let started = match config.log_format {
        LogFormat::Text => builder.try_init(),
        LogFormat::Json => builder.json().flatten_event(true).with_ansi(false).try_init(),
    };
    // If a test starts two servers in one process, both log through the first one's subscriber.
    drop(started);
    Ok(())
}
