//! The engines that executions run on. Each tells what it does in the model's one vocabulary.

pub mod claude_code;
pub mod claude_login;
pub mod gateway;
pub mod messages;
pub mod native;
pub mod offline;
mod redact;
