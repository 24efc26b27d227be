//! `shikiri mcp`: MCP over stdin and stdout, for clients that start their servers themselves.

use std::sync::OnceLock;
use std::time::Duration;

use clap::Args;
use shikiri_app::run::Node;
use shikiri_mcp::Mcp;
use shikiri_model::lane::{Identity, Way};
use tokio::io::BufReader;

use super::Global;
use super::browser::BrowserArgument;
use crate::config::{Config, Settings, Surroundings};
use crate::exit::Failure;
use crate::signals::Signals;
use crate::trust::ConfigUse;
use crate::wiring::{self, Access};
use crate::{env_vars, lane_files, logging};

/// How long the start waits to become a node.
const JOIN_WAIT: Duration = Duration::from_secs(5);

#[derive(Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    browser: BrowserArgument,
}

/// Serves the client that started this process until it closes our stdin, or a signal comes. Runs
/// that have not ended then go on in whichever process next carries runs.
pub(super) async fn run(global: &Global, arguments: Arguments) -> Result<(), Failure> {
    let flags = Settings { browser_url: arguments.browser.url, ..global.settings() };
    let uses = &[ConfigUse::Store, ConfigUse::Engines, ConfigUse::Browser];
    let config = Config::load_for(uses, flags, &Surroundings::of_process())?;
    logging::start(&config, "warn")?;
    let mut signals = Signals::catch()?;
    let offer = wiring::offer();
    let app = wiring::open_app(&config, &offer, Access::Write).await?;
    lane_files::take_in(&app, &config).await;
    let node = Node::start(app.clone());
    // An agent that comes back is known by its process: which one that is must be clear by the first
    // call. A store that is away comes back later.
    let _ = tokio::time::timeout(JOIN_WAIT, node.joined()).await;
    let mcp = Mcp::new(app, offer.extras, offer.mcp);
    let (input, output) = (BufReader::new(tokio::io::stdin()), tokio::io::stdout());
    let served = tokio::select! {
        served = shikiri_mcp::serve_stdio(mcp, identity(), input, output) => served,
        signal = signals.next() => {
            tracing::info!(signal, "stopping");
            Ok(())
        }
    };
    node.leave().await;
    Ok(served?)
}

/// The process is one instance, named by its environment or by its client. Who it is stays as it was
/// at the first call: a client that later calls itself something else is still the same.
fn identity() -> impl Fn(&str) -> Identity {
    let declared = [env_vars::AGENT_ID, env_vars::CAI_AGENT_ID]
        .into_iter()
        .filter_map(|variable| std::env::var(variable.name).ok())
        .find(|name| !name.trim().is_empty());
    let started_ms = std::time::UNIX_EPOCH.elapsed().unwrap_or_default().as_millis();
    let way = Way::Process { pid: std::process::id(), started_ms, declared };
    let known = OnceLock::new();
    move |client| known.get_or_init(|| Identity::of(&way, client)).clone()
}
