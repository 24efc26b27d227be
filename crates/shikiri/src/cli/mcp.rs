//! `shikiri mcp`: MCP over stdin and stdout, for clients that start their servers themselves.

use shikiri_app::run::Node;
use shikiri_mcp::Mcp;
use tokio::io::BufReader;

use super::Global;
use crate::config::{Config, Surroundings};
use crate::exit::Failure;
use crate::signals::Signals;
use crate::wiring::{self, Access};
use crate::{env_vars, logging};

/// Serves the client that started this process until it closes our stdin, or a signal comes. Runs
/// that have not ended then go on in whichever process next carries runs.
pub(super) async fn run(global: &Global) -> Result<(), Failure> {
    let config = Config::load(global.settings(), &Surroundings::of_process())?;
    logging::start(&config, "warn")?;
    let mut signals = Signals::catch()?;
    let offer = wiring::offer();
    let app = wiring::open_app(&config, &offer, Access::Write).await?;
    let node = Node::start(app.clone());
    let mcp = Mcp::new(app, offer.extras, offer.mcp);
    let (input, output) = (BufReader::new(tokio::io::stdin()), tokio::io::stdout());
    let served = tokio::select! {
        served = shikiri_mcp::serve_stdio(mcp, instance(), input, output) => served,
        signal = signals.next() => {
            tracing::info!(signal, "stopping");
            Ok(())
        }
    };
    node.leave().await;
    Ok(served?)
}

/// The process is one instance, named by its environment or by its client.
fn instance() -> impl Fn(&str) -> String {
    let named = [env_vars::AGENT_ID, env_vars::CAI_AGENT_ID]
        .into_iter()
        .filter_map(|variable| std::env::var(variable.name).ok())
        .find(|name| !name.trim().is_empty());
    let pid = std::process::id();
    let since = std::time::UNIX_EPOCH.elapsed().unwrap_or_default().as_millis();
    move |client| match named.as_deref().unwrap_or(client) {
        "" => format!("agent-{pid}-{since}"),
        name => format!("{name}-{pid}"),
    }
}
