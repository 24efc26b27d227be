//! The HTTP door against callers that are slow, wrong or hostile, and as its samples call it.

mod bodies;
mod cursors;
mod half_sent;
mod names;
mod runs;
mod samples;
mod streams;
