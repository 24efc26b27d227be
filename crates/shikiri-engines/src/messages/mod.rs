//! A small client for the Messages API, at Anthropic or on Bedrock.
//!
//! `provider` says where a request goes and what proves who sends it, `wire` what is said, `client`
//! how it is sent, tried again and given up; `aws` gets
//! credentials for Bedrock. A message that is wanted as it arrives (`stream`) comes
//! as server-sent events (`sse`) or in AWS's frames (`frames`), and is put together in `assemble`.

mod ask;
mod assemble;
pub(crate) mod aws;
mod client;
mod failure;
mod frames;
pub(crate) mod http;
mod provider;
mod sign;
mod speaker;
mod sse;
mod stream;
mod title;
mod upstream;
mod wire;

pub use ask::Ask;
pub use assemble::{News, Whole};
pub use aws::AwsCredentialSources;
pub(crate) use client::now;
pub use client::{Client, Prepared};
pub use failure::Failure;
pub(crate) use provider::BEDROCK_SWITCH;
pub use provider::{Credentials, Provider};
pub use speaker::Messages;
pub use stream::Streaming;
pub use title::title;
pub(crate) use upstream::Upstream;
pub use wire::{Block, Message, Request, Response, Role};

#[cfg(test)]
mod tests;
