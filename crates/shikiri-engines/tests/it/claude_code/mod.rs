//! What only Claude Code has: a program that is started, confined and ended, its background work,
//! its files. What it has in common with the native engines is in `scenarios`.

mod commands;
mod confined;
mod fakes;
mod limits;
mod outside;
mod subagents;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use shikiri_engines::claude_code::ClaudeCodeEngine;
use shikiri_executions::execution::{Engine as _, EngineSender, TurnRequest};
use shikiri_model::execution::EngineMessage;
use shikiri_model::models::Model;
use shikiri_testkit::{Reply, TestEngine, claude_programs};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

use crate::outcome::Outcome;
use crate::world::*;

async fn world_of(cli: &Path) -> World {
    World::new(TestEngine::ClaudeCode(cli.to_owned())).await
}
