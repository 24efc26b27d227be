//! `shikiri serve`.

use clap::Args;

use super::Global;
use super::browser::BrowserArgument;
use crate::config::{Config, Settings, Surroundings};
use crate::exit::Failure;
use crate::{logging, serve, wiring};

#[derive(Args)]
pub(super) struct Arguments {
    /// Address to listen on [default: 127.0.0.1:7420]
    #[arg(long, value_name = "IP:PORT")]
    listen: Option<String>,
    /// Allow an address that other machines can reach
    #[arg(long)]
    allow_remote: bool,
    /// A name under which the server may be called; may be repeated
    #[arg(long = "allow-host", value_name = "HOST")]
    allow_hosts: Vec<String>,
    /// Let Claude Code work for all tenants even where it cannot be confined
    #[arg(long)]
    unconfined_engines: bool,
    #[command(flatten)]
    browser: BrowserArgument,
    /// Drain when stdin ends, so that the server does not outlive its parent
    #[arg(long, hide = true)]
    stop_with_stdin: bool,
}

pub(super) async fn run(global: &Global, arguments: Arguments) -> Result<(), Failure> {
    let Arguments {
        listen,
        allow_remote,
        allow_hosts,
        unconfined_engines,
        browser,
        stop_with_stdin,
    } = arguments;
    let flags = Settings {
        listen,
        allow_remote: allow_remote.then_some(true),
        unconfined_engines: unconfined_engines.then_some(true),
        allowed_hosts: (!allow_hosts.is_empty()).then_some(allow_hosts),
        browser_url: browser.url,
        ..global.settings()
    };
    let config = Config::load(flags, &Surroundings::of_process())?;
    logging::start(&config, "info")?;
    serve::run(&config, wiring::offer(), stop_with_stdin).await
}
