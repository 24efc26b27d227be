//! What outsiders rely on, as snapshots: the help of every command, the JSON that commands print, MCP
//! tools with their schemas, and the events of runs and executions. A change of any of them must be
//! meant. (The OpenAPI document, the tables and the configuration keys have theirs beside their
//! crates.)

mod command_help;
mod command_json;
mod events;
mod json_shape;
mod mcp_tools;
