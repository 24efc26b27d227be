//! Tools of MCP servers: their definitions, and the pinned definitions that show when a tool
//! changes. `docs/decisions/0022` says why.

mod tool_change;
mod tool_definition;
mod tool_pins;

pub use tool_change::{ToolChange, ToolChangeKind};
pub use tool_definition::{ToolDefinition, ToolDefinitionError, ToolDescription};
pub use tool_pins::{PinnedTool, ToolPins};
