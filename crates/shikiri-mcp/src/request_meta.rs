//! The `_meta` of a request of the newer era: version, client, capabilities, log level and lane.

use std::sync::Arc;

use serde_json::Value;
use shikiri_model::connection::{ClientInfo, LogLevel};
use shikiri_model::lane::read_lane_handle;

use crate::mcp_caller::{LEGACY, MODERN, client_info};
use crate::message::RpcRequest;
use crate::rpc_error::RpcError;

const META: &str = "io.modelcontextprotocol/";
/// Of our own: the protocol has no name for a client that is one of several.
pub(crate) const LANE: &str = "shikiri/lane";

pub(crate) struct RequestMeta {
    pub(crate) capabilities: Arc<Value>,
    pub(crate) client: ClientInfo,
    /// Without one, no log messages.
    pub(crate) log_level: Option<LogLevel>,
    /// Tells apart clients that share a key.
    pub(crate) lane: Option<String>,
}

/// The revision that the request is written in, if it says so.
pub(crate) fn protocol_version(request: &RpcRequest) -> Option<&Value> {
    meta(request, "protocolVersion")
}

fn meta<'a>(request: &'a RpcRequest, name: &str) -> Option<&'a Value> {
    request.meta_value(&format!("{META}{name}"))
}

fn missing(name: &str) -> RpcError {
    RpcError::params(format!("_meta.{META}{name}: is missing"))
}

/// The revision as a text, which must be there.
pub(crate) fn version(request: &RpcRequest) -> Result<&str, RpcError> {
    protocol_version(request).and_then(Value::as_str).ok_or_else(|| missing("protocolVersion"))
}

/// Refuses a revision that is not the newer era's, and a request that leaves out what it must say.
pub(crate) fn parse_request_meta(request: &RpcRequest) -> Result<RequestMeta, RpcError> {
    let version = version(request)?;
    if version != MODERN {
        let mut supported = vec![MODERN];
        supported.extend(LEGACY);
        return Err(RpcError::version(version, &supported));
    }
    let capabilities = meta(request, "clientCapabilities").filter(|value| value.is_object());
    let capabilities = capabilities.ok_or_else(|| missing("clientCapabilities"))?;
    let log_level = match meta(request, "logLevel") {
        None => None,
        Some(level) => {
            let bad = |_| RpcError::params(format!("_meta.{META}logLevel: is no level"));
            Some(serde_json::from_value(level.clone()).map_err(bad)?)
        }
    };
    let lane = match request.meta_value(LANE) {
        None | Some(Value::Null) => None,
        Some(lane) => {
            let why = || RpcError::params(format!("_meta.{LANE}: must be 1 to 64 characters"));
            Some(lane.as_str().and_then(read_lane_handle).ok_or_else(why)?)
        }
    };
    Ok(RequestMeta {
        capabilities: Arc::new(capabilities.clone()),
        client: client_info(meta(request, "clientInfo")).unwrap_or_default(),
        log_level,
        lane,
    })
}
