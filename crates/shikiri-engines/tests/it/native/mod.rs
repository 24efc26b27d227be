//! What only a loop of our own has: steps that are kept, limits before the call, and an API's bad
//! behaviour in full view. What it has in common with Claude Code is in `scenarios`.

mod answers;
mod errors;
mod kept;
mod limits;
mod steps;
mod subagents;
mod unruly;

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use shikiri_executions::execution::{JournalStep, ResumeState, TurnRequest};
use shikiri_model::execution::{EngineMessage, PriceList, total};
use shikiri_model::native::ExecutionLimits;
use shikiri_model::time::Timestamp;
use shikiri_testkit::{Reply, TestEngine, each_engine};

use crate::outcome::Outcome;
use crate::world::*;

fn echo(text: &str) -> Reply {
    Reply::call("echo", json!({ "text": text }))
}
