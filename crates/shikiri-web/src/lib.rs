//! The REST and SSE door.
//!
//! Handlers translate: they parse a request, call one use case of `shikiri-app` and write its
//! answer. What may be asked by whom is proven by the extractors in `access`, and every failure
//! becomes a response in `error`, nowhere else.

mod access;
mod error;
mod host;
mod json;
mod metrics;
mod observe;
mod openapi;
mod options;
mod query;
mod readiness;
mod router;
mod routes;
mod server;
mod slow_reader;
mod sse;
mod state;
mod team_access;
pub mod views;

pub use openapi::openapi_json;
pub use options::{BindError, WebOptions, bind};
pub use router::operations;
pub use server::Server;
