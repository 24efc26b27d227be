//! A small client for the Messages API, at Anthropic or on Bedrock.
//!
//! `model_provider` has the address and credentials of a request, `wire_types` its content, and
//! `messages_client` sends and retries it. `aws` gets credentials for Bedrock. A streamed message
//! (`message_stream`) arrives as server-sent events (`sse_decoder`) or in AWS's frames
//! (`aws_event_stream`); `message_assembler` puts it together.

pub(crate) mod aws;
mod aws_event_stream;
mod aws_signature;
mod conversation_title;
pub(crate) mod error_text;
pub(crate) mod http_clients;
mod message_assembler;
mod message_stream;
mod messages_client;
mod model_api_error;
mod model_api_upstream;
mod model_provider;
mod sampling_model;
mod streaming_request;
mod wire_types;

pub use aws::AwsCredentialSources;
pub use conversation_title::generate_title;
pub use message_assembler::{AssembledMessage, ModelStreamUpdate};
pub use message_stream::ModelMessageStream;
pub(crate) use messages_client::now;
pub use messages_client::{MessagesClient, PreparedModelCall};
pub use model_api_error::ModelApiError;
pub(crate) use model_api_upstream::ModelApiUpstream;
pub(crate) use model_provider::BEDROCK_SWITCH;
pub use model_provider::{ModelCredentials, ModelProvider};
pub use sampling_model::MessagesSamplingModel;
pub use streaming_request::StreamingRequest;
pub use wire_types::{
    MessagesRequest, MessagesResponse, ModelInputMessage, ModelMessageRole, ResponseBlock,
};

#[cfg(test)]
mod tests;
