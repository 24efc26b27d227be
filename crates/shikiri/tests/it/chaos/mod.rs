//! Stories in which things are killed, paused and cut off. Their children are real processes.

mod child;
mod claim_storm;
mod execution_kill;
mod journal_kill;
mod lease_pause;
mod lease_wait;
mod mcp_check;
mod mcp_cut;
mod mcp_kill;
mod mcp_listen;
mod mcp_modern;
mod mcp_outage;
mod mcp_pause;
mod mcp_question;
mod native_kill;
mod node_check;
mod node_child;
mod node_loss;
mod place;
mod sse_kill;
