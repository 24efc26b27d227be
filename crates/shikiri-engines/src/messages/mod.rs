//! A small client for the Messages API, at Anthropic or on Bedrock.
//!
//! `provider` says where a request goes and what proves who sends it, `wire` what is said, `client`
//! how it is sent, tried again and given up. A call is opened first and read afterwards, so that a
//! stream can be read from the same opening.

mod client;
mod failure;
mod http;
mod provider;
mod sign;
mod speaker;
mod title;
mod wire;

pub use client::Client;
pub use failure::Failure;
pub use provider::{Credentials, Provider};
pub use speaker::Messages;
pub use title::title;
pub use wire::{Block, Message, Request, Response, Role};

#[cfg(test)]
mod tests;
