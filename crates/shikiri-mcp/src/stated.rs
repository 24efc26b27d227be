//! What a request of the newer era says about its sender, in its `_meta`.

use std::sync::Arc;

use serde_json::Value;
use shikiri_model::connection::{ClientInfo, LogLevel};

use crate::client::{LEGACY, MODERN, client_info};
use crate::fault::Fault;
use crate::message::Request;

const META: &str = "io.modelcontextprotocol/";
/// Of our own: the protocol has no name for a client that is one of several.
const LANE: &str = "shikiri/lane";
const MAX_LANE: usize = 64;

pub(crate) struct Stated {
    pub(crate) capabilities: Arc<Value>,
    pub(crate) client: ClientInfo,
    /// Without one, no log messages.
    pub(crate) log_level: Option<LogLevel>,
    /// What tells it from others that come with the same key.
    pub(crate) lane: Option<String>,
}

/// The revision that the request is written in, if it says so.
pub(crate) fn protocol_version(request: &Request) -> Option<&Value> {
    meta(request, "protocolVersion")
}

fn meta<'a>(request: &'a Request, name: &str) -> Option<&'a Value> {
    request.meta_value(&format!("{META}{name}"))
}

fn missing(name: &str) -> Fault {
    Fault::params(format!("_meta.{META}{name}: is missing"))
}

/// The revision as a text, which must be there.
pub(crate) fn version(request: &Request) -> Result<&str, Fault> {
    protocol_version(request).and_then(Value::as_str).ok_or_else(|| missing("protocolVersion"))
}

/// Refuses a revision that is not the newer era's, and a request that leaves out what it must say.
pub(crate) fn stated(request: &Request) -> Result<Stated, Fault> {
    let version = version(request)?;
    if version != MODERN {
        let mut supported = vec![MODERN];
        supported.extend(LEGACY);
        return Err(Fault::version(version, &supported));
    }
    let capabilities = meta(request, "clientCapabilities").filter(|value| value.is_object());
    let capabilities = capabilities.ok_or_else(|| missing("clientCapabilities"))?;
    let log_level = match meta(request, "logLevel") {
        None => None,
        Some(level) => {
            let bad = |_| Fault::params(format!("_meta.{META}logLevel: is no level"));
            Some(serde_json::from_value(level.clone()).map_err(bad)?)
        }
    };
    let lane = match request.meta_value(LANE) {
        None | Some(Value::Null) => None,
        Some(Value::String(lane)) if (1..=MAX_LANE).contains(&lane.chars().count()) => {
            Some(lane.clone())
        }
        Some(_) => {
            let why = format!("_meta.{LANE}: must be a text of 1 to {MAX_LANE} characters");
            return Err(Fault::params(why));
        }
    };
    Ok(Stated {
        capabilities: Arc::new(capabilities.clone()),
        client: client_info(meta(request, "clientInfo")).unwrap_or_default(),
        log_level,
        lane,
    })
}
