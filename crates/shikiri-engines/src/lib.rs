//! The engines that run the turns of executions.
//!
//! An engine implements `Engine`: it gets a `TurnRequest`, works until the turn is over, and sends
//! `EngineMessage`s on the way. All engines share these messages, so that no other crate needs to know
//! how an engine works.
//!
//! - [`claude_code`] drives the Claude Code CLI in a sandbox. Start with `claude_code/README.md`.
//! - [`native`] runs agents on the Messages API of Anthropic or Bedrock, without another program.
//! - [`offline`] asks no model. It plays scripts for tests and trials.
//!
//! They use:
//!
//! - [`messages`], a client for the Messages API with AWS credentials.
//! - [`gateway`], the HTTP proxy of one run: it holds the credentials and applies the egress policy.
//! - [`claude_login`], a person's own Claude login.
//! - `redact`, which removes secrets from messages.
//!
//! CONTRIBUTING.md describes how to add an engine.

pub mod claude_code;
pub mod claude_login;
pub mod gateway;
pub mod messages;
pub mod native;
pub mod offline;
mod redact;
