//! The one MCP client of Shikiri: it speaks both eras of the protocol over HTTP and stdio, and the
//! older one over the SSE transport of 2024. It follows a call so that another process can resume
//! it where this one stopped. The product's other HTTP clients share its set-up and its SSE parser.
//!
//! All data of a server is untrusted: it is bounded in size, only treated as text, and sanitised
//! before it is shown.
//!
//! Start with [`ServerConnection`]: it connects, finds the era (the newer one is tried first), and lists
//! and calls tools. `transport/` has the three transports, `call/` one call with its progress and
//! questions, `oauth/` the login at a server. `http_setup.rs` decides about certificates,
//! proxies and addresses for every HTTP client of the product.

mod background_reader;
mod call;
mod call_handler;
mod error;
mod exchange;
mod http_setup;
mod loopback_url;
mod mcp_headers;
mod message_router;
mod oauth;
mod rpc_messages;
mod server;
mod sse_parser;
mod token_provider;
mod tools;
mod transport;

pub use call::{ClientToolCall, FollowOutcome, follow_call};
pub use call_handler::{CallHandler, CallOwnershipLost};
pub use error::ClientError;
pub use http_setup::{ProxyRules, describe_http_error, http_client_builder, pin_addresses};
pub use loopback_url::is_loopback_url;
pub use oauth::{LoginBrowser, OAuthTokenProvider, TokenStore};
pub use rpc_messages::ServerRpcError;
pub use server::{ClientOptions, ServerConnection, ServerInfo};
pub use sse_parser::{SseEvent, SseEventTooLarge, SseParser};
pub use token_provider::{AuthChallenge, TokenProvider};
pub use tools::{ServerTool, ServerToolList};
pub use transport::tls::tls_config;
