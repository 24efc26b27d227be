//! Executions: one turn of a conversation through an engine, from the request to the bill.
//! `flow` tells the whole story; the others are its chapters.

mod conclude;
mod engine;
mod flow;
mod lock;
mod look;
mod luggage;
mod options;
mod request;
mod toolbox;

pub use engine::{Engine, EngineError, Engines, Order, Server, TitleOrder, Titled, Told};
pub(crate) use flow::{Errand, Stops, carry};
pub use options::inherited;
pub use request::NewExecution;
pub use toolbox::{Answer, NoTools, Piece, Tool, ToolBox};
