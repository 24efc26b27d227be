//! What every engine does, the same for each: the model's words, tools, subagents, failures.

mod answers;
mod errors;
mod subagents;

use serde_json::json;
use shikiri_executions::execution::{ResumeState, TurnRequest};
use shikiri_model::execution::{EngineMessage, total};
use shikiri_testkit::{Reply, TestEngine, each_engine};

use crate::outcome::Outcome;
use crate::world::*;
