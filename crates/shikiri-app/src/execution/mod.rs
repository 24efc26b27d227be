//! Executions: one turn of a conversation through an engine, from the request to the bill.
//! `flow` tells the whole story; the others are its chapters.

mod conclude;
mod engine;
mod flow;
mod journal;
mod lock;
mod look;
mod luggage;
mod options;
mod request;
mod take_up;
mod told;
mod toolbox;

pub use engine::{Engine, EngineError, Engines, Memory, Order, Server, Step, TitleOrder, Titled};
pub(crate) use flow::{Errand, Stops, carry};
pub use options::inherited;
pub use request::NewExecution;
pub(crate) use take_up::take_up;
pub use told::{Heard, Kept, Told, Word};
pub use toolbox::{Answer, NoTools, Piece, Tool, ToolBox};
