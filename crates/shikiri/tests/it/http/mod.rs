//! The HTTP door against callers that are slow, wrong or hostile.

mod bodies;
mod cursors;
mod half_sent;
mod names;
mod streams;
