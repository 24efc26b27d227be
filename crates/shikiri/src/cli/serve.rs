//! `shikiri serve`.

use clap::Args;

use super::Global;
use crate::config::{BrowserFlags, Config, ServeFlags, Surroundings};
use crate::exit::Failure;
use crate::{logging, serve, wiring};

#[derive(Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    flags: ServeFlags,
    #[command(flatten)]
    browser: BrowserFlags,
    /// Drain when stdin ends, so that the server does not outlive its parent
    #[arg(long, hide = true)]
    stop_with_stdin: bool,
}

pub(super) async fn run(global: &Global, arguments: Arguments) -> Result<(), Failure> {
    let flags = arguments.flags.settings.or(arguments.browser.settings).or(global.settings());
    let config = Config::load(flags, &Surroundings::of_process())?;
    logging::start(&config, "info")?;
    serve::run(&config, wiring::offer(&config), arguments.stop_with_stdin).await
}
