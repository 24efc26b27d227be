//! Lanes: what it costs to find a caller's lane among a thousand and to note that it is in use; and
//! what the way to a provider's page costs beside the page itself.

mod bridge;

use std::sync::Arc;
use std::time::Instant;

use anyhow::Result;
use shikiri_app::{App, AppOptions};
use shikiri_lanes::LaneOptions;
use shikiri_model::ids::TenantId;
use shikiri_model::lane::{CallerIdentity, CallerOrigin, LaneLimits};
use shikiri_store::sqlite::{SqliteOptions, SqliteStore};

use crate::figure::{Figure, Goal, median, percentile};
use crate::world::World;

const LANES: u32 = 1_000;
const TOUCHES: u32 = 500;
/// Milliseconds.
const GOAL: f64 = 1.0;

pub(crate) fn measure(world: &World) -> Result<Vec<Figure>> {
    let mut figures = Vec::new();
    if world.wants("touch") {
        figures.extend(world.runtime.block_on(touch(world))?);
    }
    if world.wants("bridge") {
        figures.extend(bridge::measure(world)?);
    }
    Ok(figures)
}

async fn touch(world: &World) -> Result<Vec<Figure>> {
    let path = world.scratch().join("lanes.db");
    // As a server has it: a touch survives a power cut.
    let store = Arc::new(SqliteStore::open(&path, SqliteOptions::default())?);
    let limits = LaneLimits { max_lanes: 2 * LANES, ..LaneLimits::default() };
    let lanes = LaneOptions { limits, ..LaneOptions::default() };
    let app = App::new(store, Vec::new(), AppOptions { lanes, ..AppOptions::default() });
    app.tenancy.ensure_local_tenant().await?;
    let tenant = TenantId::local();
    let callers: Vec<CallerIdentity> = (1..=LANES).map(caller).collect();
    for who in &callers {
        app.lanes.open_lane(&tenant, who).await?;
    }
    let (mut medians, mut slowest) = (Vec::new(), Vec::new());
    for round in 0..world.rounds() {
        let mut each = Vec::new();
        // All over the place, the same in every run.
        let mut at = round;
        for _ in 0..TOUCHES {
            at = (at * 7 + 11) % callers.len();
            let started = Instant::now();
            anyhow::ensure!(
                app.lanes.touch_lane(&tenant, &callers[at]).await?.is_some(),
                "no lane"
            );
            each.push(started.elapsed().as_secs_f64() * 1_000.0);
        }
        medians.push(median(&each));
        slowest.push(percentile(&each, 95));
    }
    Ok(vec![
        Figure::new(format!("find and touch one of {LANES} lanes"), "ms", medians)
            .goal(Goal::AtMost(GOAL)),
        Figure::new("the same, 95th percentile", "ms", slowest),
    ])
}

fn caller(pid: u32) -> CallerIdentity {
    CallerIdentity::of(&CallerOrigin::Process { pid, started_ms: 1, declared: None }, "claude-code")
}
