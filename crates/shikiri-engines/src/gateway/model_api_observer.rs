//! Observes the traffic of the model API, such as for metering. An observer changes nothing.

use bytes::Bytes;
use http::{request, response};

/// One request and its response. Calls of one run have different numbers.
pub type ModelCallId = u64;

pub trait ModelApiObserver: Send + Sync + 'static {
    /// The head of a request, without any credential.
    fn request(&self, call: ModelCallId, head: &request::Parts) {
        let _ = (call, head);
    }

    /// A piece of a request's body.
    fn request_bytes(&self, call: ModelCallId, bytes: &Bytes) {
        let _ = (call, bytes);
    }

    /// The head of a response.
    fn response(&self, call: ModelCallId, head: &response::Parts) {
        let _ = (call, head);
    }

    /// A piece of a response's body, before the run gets it.
    fn response_bytes(&self, call: ModelCallId, bytes: &Bytes) {
        let _ = (call, bytes);
    }
}

/// Ignores the traffic.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoObserver;

impl ModelApiObserver for NoObserver {}
