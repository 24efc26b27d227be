//! The MCP server in this process, on a real store with the sample agents: over a pipe, as
//! `shikiri mcp` serves it, and through its HTTP routes.

#![expect(clippy::unwrap_used, reason = "the helpers of tests fail like tests")]

mod calls;
mod handshake;
mod http_client;
mod leaving_callers;
mod malformed_requests;
mod resume;
mod revisions;
mod stdio_client;
mod team_tools;
mod tool_groups;
mod world;
