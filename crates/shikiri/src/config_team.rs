//! The limits of teams among the settings.

use std::time::Duration;

use shikiri_model::team::TeamLimits;

use crate::config::{Layers, Settings};
use crate::exit::Failure;

impl Layers {
    /// What nobody says is as the model has it.
    pub(crate) fn team(&self) -> Result<TeamLimits, Failure> {
        let usual = TeamLimits::default();
        let seconds = |key: &str, value: fn(&Settings) -> Option<f64>, usual: Duration| {
            Ok::<_, Failure>(self.seconds(key, value)?.unwrap_or(usual))
        };
        let count = |key: &str, value: fn(&Settings) -> Option<u32>, usual: u32| {
            Ok::<_, Failure>(self.count(key, value)?.unwrap_or(usual))
        };
        Ok(TeamLimits {
            pending: seconds(
                "dialogue_pending_seconds",
                |s| s.dialogue_pending_seconds,
                usual.pending,
            )?,
            idle: seconds("dialogue_idle_seconds", |s| s.dialogue_idle_seconds, usual.idle)?,
            session: seconds("session_seconds", |s| s.session_seconds, usual.session)?,
            chat_idle: seconds("chat_idle_seconds", |s| s.chat_idle_seconds, usual.chat_idle)?,
            claim: seconds(
                "delegation_claim_seconds",
                |s| s.delegation_claim_seconds,
                usual.claim,
            )?,
            attempts: usual.attempts,
            depth: count("delegation_depth", |s| s.delegation_depth, usual.depth)?,
            wall: seconds("delegation_seconds", |s| s.delegation_seconds, usual.wall)?,
            spawn_guard: seconds(
                "spawn_guard_seconds",
                |s| s.spawn_guard_seconds,
                usual.spawn_guard,
            )?,
            rest: usual.rest,
            max_spawns: count("max_spawns", |s| s.max_spawns, usual.max_spawns)?,
        })
    }
}
