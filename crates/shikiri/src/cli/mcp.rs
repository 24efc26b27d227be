//! `shikiri mcp`: MCP over stdin and stdout, for clients that start their servers themselves.

use std::sync::OnceLock;
use std::time::Duration;

use clap::Args;
use shikiri_mcp::{McpOptions, McpService, ToolSelection};
use shikiri_model::lane::{CallerIdentity, CallerOrigin};
use shikiri_model::run::NodeProcess;
use shikiri_runtime::run::NodePlace;
use tokio::io::BufReader;

use super::Global;
use crate::config::{BrowserFlags, Config, Surroundings};
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
    browser: BrowserFlags,
    /// Offer these groups of tools alone, separated by commas: runs, lanes, teams, samples, agents
    /// [default: all]
    #[arg(long, value_name = "GROUPS")]
    tools: Option<ToolSelection>,
}

/// Serves the client that started this process until it closes our stdin, or a signal arrives.
/// Unfinished runs then continue in the next process that executes runs.
pub(super) async fn run(global: &Global, arguments: Arguments) -> Result<(), Failure> {
    let flags = arguments.browser.settings.or(global.settings());
    let uses = &[ConfigUse::Store, ConfigUse::Engines, ConfigUse::Browser];
    let config = Config::load_for(uses, flags, &Surroundings::of_process())?;
    logging::start(&config, "warn")?;
    let mut signals = Signals::catch()?;
    let offer = wiring::offer(&config);
    let app = wiring::open_app(&config, &offer, Access::Write).await?;
    lane_files::take_in(&app, &config).await;
    let node = app.start_worker_at(NodePlace { process: NodeProcess::Mcp, address: None });
    // A returning agent is identified by its process, which must be known before the first call. A
    // store that is unavailable is connected later.
    let _ = tokio::time::timeout(JOIN_WAIT, node.joined()).await;
    let options = McpOptions { tools: arguments.tools.unwrap_or_default(), ..offer.mcp };
    let mcp = McpService::new(app, offer.extras, options);
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

/// The identity of this process: one instance, named by its environment or its client. It is fixed
/// at the first call, even if the client changes its name later.
fn identity() -> impl Fn(&str) -> CallerIdentity {
    let declared = [env_vars::AGENT_ID, env_vars::CAI_AGENT_ID]
        .into_iter()
        .filter_map(|variable| std::env::var(variable.name).ok())
        .find(|name| !name.trim().is_empty());
    let started_ms = std::time::UNIX_EPOCH.elapsed().unwrap_or_default().as_millis();
    let way = CallerOrigin::Process { pid: std::process::id(), started_ms, declared };
    let known = OnceLock::new();
    move |client| known.get_or_init(|| CallerIdentity::of(&way, client)).clone()
}
