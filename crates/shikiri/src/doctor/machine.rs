//! The program and its machine.

use hyper::{Method, StatusCode};
use shikiri_browser::{BrowserPlan, plan_browser};
use shikiri_engines::native::NativeEngine;
use shikiri_executions::execution::Engine as _;
use shikiri_model::confinement::ConfinementLevel;
use shikiri_model::models::Model;

use super::{Finding, Verdict};
use crate::client::Client;
use crate::config::Config;
use crate::wiring;

const MIB: u64 = 1024 * 1024;

pub(super) fn version() -> Finding {
    Finding::new("version", Verdict::Ok, format!("shikiri {}", env!("CARGO_PKG_VERSION")))
}

pub(super) fn sqlite() -> Finding {
    let linked = shikiri_sqlite::linked_version::linked();
    if shikiri_sqlite::linked_version::linked_is_safe() {
        return Finding::new("sqlite", Verdict::Ok, format!("SQLite {linked} is linked"));
    }
    let text = format!(
        "SQLite {linked} is linked, which can damage shared files: build with 3.51.3 or later"
    );
    Finding::new("sqlite", Verdict::Fail, text)
}

pub(super) fn disk_space(config: &Config) -> Finding {
    const CHECK: &str = "disk space";
    let folder = match config.data_folder() {
        made if made.is_dir() => made,
        _ => config.root.clone(),
    };
    let stat = match rustix::fs::statvfs(&folder) {
        Ok(stat) => stat,
        Err(error) => {
            return Finding::new(CHECK, Verdict::Warn, format!("cannot be determined: {error}"));
        }
    };
    let free = stat.f_bavail.saturating_mul(stat.f_frsize) / MIB;
    let text = format!("{free} MiB are free at {}", folder.display());
    match free {
        0..100 => Finding::new(CHECK, Verdict::Fail, format!("only {text}: make room")),
        100..1024 => Finding::new(CHECK, Verdict::Warn, format!("only {text}: make room soon")),
        _ => Finding::new(CHECK, Verdict::Ok, text),
    }
}

pub(super) async fn server(config: &Config) -> Finding {
    const CHECK: &str = "server";
    let url = format!("http://{}", config.listen);
    let client = Client::new(config.listen, String::new());
    match client.request(Method::GET, "/readyz", None).await {
        Ok((StatusCode::OK, _)) => Finding::new(CHECK, Verdict::Ok, format!("{url} is ready")),
        Ok((StatusCode::SERVICE_UNAVAILABLE, answer)) => {
            let text = format!("{url} is up but not ready: {answer}");
            Finding::new(CHECK, Verdict::Warn, text)
        }
        Ok((status, _)) => {
            let text = format!("something that is not Shikiri answers at {url} ({status})");
            Finding::new(CHECK, Verdict::Warn, text)
        }
        Err(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => {
            Finding::new(CHECK, Verdict::Info, format!("none is running at {url}"))
        }
        Err(error) => {
            Finding::new(CHECK, Verdict::Warn, format!("{url} does not answer properly: {error}"))
        }
    }
}

pub(super) async fn claude(config: &Config) -> Finding {
    const CHECK: &str = "claude";
    match wiring::claude_code(config).program().await {
        Ok(program) => {
            let text = format!("the claude-code engine drives {}", program.display());
            Finding::new(CHECK, Verdict::Ok, text)
        }
        // A configured program is expected to work.
        Err(error) if config.claude_bin.is_some() => {
            Finding::new(CHECK, Verdict::Warn, error.to_string())
        }
        Err(error) => {
            let text = format!("no model of the claude-code engine works here: {error}");
            Finding::new(CHECK, Verdict::Info, text)
        }
    }
}

/// How far this machine can sandbox Claude Code.
pub(super) async fn sandbox(config: &Config) -> Finding {
    const CHECK: &str = "sandbox";
    let claude_code = wiring::claude_code(config);
    let reached = claude_code.reached_confinement().await;
    let memory_limit = claude_code.memory_limit().await.as_str();
    let user = match reached.engine_user {
        Some(user) => format!("as the user {user}"),
        None => "as this user".to_owned(),
    };
    let level = reached.level.as_str();
    let text = format!(
        "Claude Code is confined at the level {level}, {user}; memory limit: {memory_limit}"
    );
    if reached.level == ConfinementLevel::Namespaces {
        return Finding::new(CHECK, Verdict::Ok, text);
    }
    let next = match reached.separates_tenants() {
        true => "new namespaces are refused here, and would keep out more",
        false => {
            "only the tenant `local` may use it, on a server for this machine alone: let this \
                  user make namespaces (user.max_user_namespaces, the container's seccomp profile)"
        }
    };
    Finding::new(CHECK, Verdict::Warn, format!("{text}; {next}"))
}

/// Whether the native engines have what they need. Only the API knows whether the credentials work.
pub(super) async fn native() -> Finding {
    const CHECK: &str = "native";
    let env = wiring::engine_environment();
    let home = std::env::home_dir();
    let engines = [NativeEngine::anthropic(), NativeEngine::bedrock().at_home(home)];
    let (mut ready, mut missing) = (Vec::new(), Vec::new());
    for engine in engines {
        let kind = engine.kind();
        match engine.check(&Model { engine: kind, ..Model::offline() }, &env).await {
            Ok(()) => ready.push(kind.as_str()),
            Err(error) => missing.push(format!("{}: {error}", kind.as_str())),
        }
    }
    let missing = missing.join("; ");
    if ready.is_empty() {
        let text =
            format!("no native engine works here, unless a model's record has a key: {missing}");
        return Finding::new(CHECK, Verdict::Info, text);
    }
    let text = format!("there are keys for the engines: {}", ready.join(", "));
    Finding::new(CHECK, Verdict::Ok, text)
}

pub(super) fn browser(config: &Config) -> Finding {
    const CHECK: &str = "browser";
    let is_named = config.browser.url.is_some() || config.browser.chrome_bin.is_some();
    match plan_browser(&wiring::browser(config)) {
        Ok(BrowserPlan::Attach { url }) => {
            let text = format!("providers are asked in the browser at {url}");
            Finding::new(CHECK, Verdict::Ok, text)
        }
        Ok(BrowserPlan::Start { program, is_headless, is_unconfined }) => {
            let window = if is_headless { "without a window" } else { "in a window" };
            let text = format!("providers are asked in {}, {window}", program.display());
            if is_unconfined {
                let open = "as root it runs without its sandbox: better work as another user";
                return Finding::new(CHECK, Verdict::Warn, format!("{text}; {open}"));
            }
            Finding::new(CHECK, Verdict::Ok, text)
        }
        // A configured browser is expected to work.
        Err(error) if is_named => Finding::new(CHECK, Verdict::Warn, error.to_string()),
        Err(error) => {
            Finding::new(CHECK, Verdict::Info, format!("no provider can be asked: {error}"))
        }
    }
}
