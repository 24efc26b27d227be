//! How old a piece of text is when its reader has it, by the time that it tells of itself.

use anyhow::{Result, ensure};

use super::callers::{Kind, Order};
use super::server::Server;
use crate::figure::{Figure, Goal, median, percentile};
use crate::world::World;

/// Conversations at once.
const CALLERS: usize = 4;

/// What is measured: turns of this model, by the name of the figure and its goal in milliseconds.
pub(crate) struct Ages {
    pub(crate) name: &'static str,
    pub(crate) model: &'static str,
    pub(crate) input: &'static str,
    pub(crate) goal: f64,
}

impl Ages {
    pub(crate) fn measure(&self, world: &World, server: &Server) -> Result<Vec<Figure>> {
        let order = Order {
            kind: Kind::Execution,
            callers: CALLERS,
            time: world.turn(),
            events: 0,
            input: self.input,
            model: Some(self.model),
        };
        order.carry_out(server)?;
        let (mut medians, mut slowest) = (Vec::new(), Vec::new());
        for _ in 0..world.rounds() {
            let turns = order.carry_out(server)?;
            let ages: Vec<_> =
                turns.iter().flat_map(|turn| &turn.ages).map(|age| *age as f64 / 1e6).collect();
            ensure!(!ages.is_empty(), "no text told its time");
            medians.push(median(&ages));
            slowest.push(percentile(&ages, 99));
        }
        let name = self.name;
        Ok(vec![
            Figure::new(format!("{name}, p50"), "ms", medians).goal(Goal::AtMost(self.goal)),
            Figure::new(format!("{name}, p99"), "ms", slowest),
        ])
    }
}
