//! One tool on every server, in both eras, with more and more callers at once. Servers take turns
//! within a round, and each round has fresh ones.

use std::collections::BTreeMap;

use anyhow::{Context, Result};

use super::caller::{BURST, Era, Tool};
use super::load::{self, Turn};
use super::servers::{Kind, Servers};
use crate::figure::{Figure, Goal, median};
use crate::report::{number, table};
use crate::world::World;

/// One caller's echo on bare rmcp, on the machine for which the goal in milliseconds was set.
const RMCP_ALONE_MS: f64 = 0.13;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Cell {
    pub(super) era: Era,
    pub(super) callers: usize,
    pub(super) kind: Kind,
}

pub(super) struct Sweep<'a> {
    tool: Tool,
    servers: &'a Servers,
    turns: BTreeMap<Cell, Vec<Turn>>,
}

impl<'a> Sweep<'a> {
    pub(super) fn run(
        world: &World,
        servers: &'a Servers,
        tool: Tool,
        at_once: &[usize],
    ) -> Result<Self> {
        let mut turns = BTreeMap::<_, Vec<_>>::new();
        for round in 0..world.rounds() {
            let running = servers.start_all(&format!("{}-{round}", tool.name()))?;
            for (era, callers) in
                Era::ALL.into_iter().flat_map(|era| at_once.iter().map(move |count| (era, *count)))
            {
                for (kind, server) in &running {
                    let turn = load::turn(server, era, tool, callers, world.turn());
                    let turn = turn.with_context(|| {
                        format!("{}, {}, {callers} at once", kind.name(), era.version())
                    })?;
                    turns.entry(Cell { era, callers, kind: *kind }).or_default().push(turn);
                }
            }
        }
        Ok(Self { tool, servers, turns })
    }

    /// What a call counts for.
    fn weight(&self) -> (f64, &'static str) {
        match self.tool {
            Tool::Echo => (1.0, "calls/s"),
            Tool::Burst => (BURST as f64, "events/s"),
        }
    }

    fn samples(&self, cell: Cell, of: impl Fn(&Turn) -> f64) -> Vec<f64> {
        self.turns.get(&cell).into_iter().flatten().map(of).collect()
    }

    fn rates(&self, cell: Cell) -> Vec<f64> {
        let (weight, _) = self.weight();
        self.samples(cell, |turn| turn.calls_per_second * weight)
    }

    fn named(&self, era: Era, callers: usize) -> String {
        format!("{}, {}, {callers} at once", self.tool.name(), era.version())
    }

    /// Our rate against a peer's.
    pub(super) fn against(&self, peer: Kind, era: Era, callers: usize, least: f64) -> Figure {
        let (_, unit) = self.weight();
        let rates = |kind| self.rates(Cell { era, callers, kind });
        let figure = Figure::new(self.named(era, callers), unit, rates(Kind::Ours))
            .against(peer.name(), &rates(peer))
            .goal(Goal::RatioAtLeast(least));
        self.or_missing(figure, &[Kind::Ours, peer])
    }

    /// The rate of our server, with a goal that does not depend on the peers.
    pub(super) fn rate(&self, era: Era, callers: usize, least: f64) -> Figure {
        let (_, unit) = self.weight();
        let cell = |kind| Cell { era, callers, kind };
        let figure = Figure::new(self.named(era, callers), unit, self.rates(cell(Kind::Ours)))
            .against(Kind::Rmcp.name(), &self.rates(cell(Kind::Rmcp)))
            .goal(Goal::AtLeast(least));
        self.or_missing(figure, &[Kind::Ours])
    }

    /// How long ours takes. `most_ms` is asked of a machine on which bare rmcp takes
    /// [`RMCP_ALONE_MS`], and of a slower one as much more.
    pub(super) fn median_time(&self, era: Era, callers: usize, most_ms: f64) -> Figure {
        let times = |kind| self.samples(Cell { era, callers, kind }, |turn| turn.p50_ms);
        let name = format!("{}, p50", self.named(era, callers));
        let rmcp = times(Kind::Rmcp);
        let slower = (median(&rmcp) / RMCP_ALONE_MS).max(1.0);
        let figure = Figure::new(name, "ms", times(Kind::Ours))
            .against(Kind::Rmcp.name(), &rmcp)
            .goal(Goal::AtMost(most_ms * slower));
        self.or_missing(figure, &[Kind::Ours])
    }

    fn or_missing(&self, figure: Figure, needed: &[Kind]) -> Figure {
        match needed.iter().find_map(|kind| self.servers.missing(*kind)) {
            Some(reason) => figure.missing(reason),
            None => figure,
        }
    }

    /// Everything that was measured, for the report.
    pub(super) fn details(&self) -> Vec<Figure> {
        let (_, unit) = self.weight();
        let mut figures = Vec::new();
        for cell in self.turns.keys().copied() {
            let name = format!("{}, {}", cell.kind.name(), self.named(cell.era, cell.callers));
            let mut add = |what: &str, unit, samples| {
                figures.push(Figure::new(format!("{name}{what}"), unit, samples).detail());
            };
            add("", unit, self.rates(cell));
            add(", p50", "ms", self.samples(cell, |turn| turn.p50_ms));
            add(", p99", "ms", self.samples(cell, |turn| turn.p99_ms));
            add(", server", "µs/call", self.samples(cell, |turn| turn.server_us));
            add(", client busy", "of 1", self.samples(cell, |turn| turn.client_busy));
        }
        figures
    }

    /// The same for people.
    pub(super) fn print(&self) {
        let (_, unit) = self.weight();
        let headers = ["server", "era", "at once", unit, "p50 ms", "p99 ms", "server µs/call"]
            .into_iter()
            .chain(["client busy"])
            .map(str::to_owned);
        let rows = self.turns.keys().map(|cell| {
            let of = |of: fn(&Turn) -> f64| number(median(&self.samples(*cell, of)));
            vec![
                cell.kind.name().to_owned(),
                cell.era.version().to_owned(),
                cell.callers.to_string(),
                number(median(&self.rates(*cell))),
                of(|turn| turn.p50_ms),
                of(|turn| turn.p99_ms),
                of(|turn| turn.server_us),
                of(|turn| turn.client_busy),
            ]
        });
        println!("\n{}: medians of the rounds", self.tool.name());
        table(headers.collect(), rows.collect());
    }
}
