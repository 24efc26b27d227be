//! Tools of other people's servers: what a server says of them, and what is remembered of that, so
//! that a change is noticed. `docs/decisions/0022` says why.

mod change;
mod definition;
mod pins;

pub use change::{ChangeKind, ToolChange};
pub use definition::{Definition, ToolDefinition, clean_schema};
pub use pins::{PinnedTool, ToolPins};
