//! Executions: one turn of a conversation through an engine, from the request to the bill.

mod engine;

pub use engine::{Engine, EngineError, Engines, Order, Server, TitleOrder, Titled, Told};
