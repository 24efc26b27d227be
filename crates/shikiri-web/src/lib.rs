//! The REST API, its event streams and the listener that serves them, together with MCP's routes.
//!
//! A request passes through these parts:
//!
//! 1. `web_server` accepts the connection and `host_check` refuses foreign hosts and origins.
//! 2. `access_extractors` identifies the key's owner and checks what it may use. `path_items` adds
//!    the id in the path, `json_extractor` and `query_extractor` read the body and the query.
//! 3. A handler in `routes` calls one use case of a domain's service and returns its record as one of
//!    the [`views`]. Handlers translate; they hold no rules.
//! 4. A failure becomes a `Problem`, whose status and code are the same for REST and MCP.
//!    `problem_response` only wraps it.
//!
//! `router.rs` lists every route: start there. `sse` holds the event streams; a client that does
//! not read its stream is cut off by `slow_reader`. The OpenAPI document (`openapi`) is made from
//! the handlers and the views.
//!
//! To add a route, write a handler in a file of `routes`, give its record a view, and name the
//! handler in `router.rs`. The snapshot of the OpenAPI document shows the change.

mod access_extractors;
mod host_check;
mod json_extractor;
mod metrics;
mod openapi;
mod path_items;
mod problem_response;
mod query_extractor;
mod readiness;
mod request_metrics;
mod router;
mod routes;
mod slow_reader;
mod sse;
pub mod views;
mod web_options;
mod web_server;
mod web_state;

pub use openapi::openapi_json;
pub use router::operations;
pub use web_options::{BindError, WebOptions, bind};
pub use web_server::WebServer;
