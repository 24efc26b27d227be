//! A call of a tool by a subagent that is known: one transaction, nothing to say. The usual case.

use std::thread::ScopedJoinHandle;

use anyhow::{Result, anyhow, ensure};

use super::CROWD;
use super::programs::{Hook, Kind, Programs};
use super::project::Project;
use crate::figure::{Figure, Goal, median, percentile};
use crate::world::World;

const KINDS: [Kind; 5] = [Kind::Empty, Kind::Hook, Kind::Shikiri, Kind::Python, Kind::Nagger];

/// What is measured, and all that was measured of it.
struct Variant {
    kind: Kind,
    hook: Hook,
    project: Project,
    runs: usize,
    logged_before: usize,
    alone: Vec<Round>,
    crowd: Vec<Round>,
}

/// Milliseconds of one round.
struct Round {
    median: f64,
    p99: f64,
}

pub(super) fn measure(world: &World, programs: &Programs) -> Result<Vec<Figure>> {
    let mut variants = Vec::new();
    for kind in KINDS {
        if let Some(hook) = programs.hook(kind) {
            variants.push(Variant::prepare(world, kind, hook)?);
        }
    }
    let repeats = if world.quick { 60 } else { 400 };
    for _ in 0..world.rounds() {
        alone(&mut variants, repeats)?;
        crowd(&mut variants, repeats.div_ceil(CROWD))?;
    }
    for variant in variants.iter().filter(|variant| variant.is_ours()) {
        let kept = variant.project.logged()? - variant.logged_before;
        ensure!(kept == variant.runs, "{kept} of {} calls are recorded", variant.runs);
    }
    Ok(figures(&variants))
}

impl Variant {
    fn prepare(world: &World, kind: Kind, hook: Hook) -> Result<Self> {
        let folder = world.scratch().join(format!("project-{kind:?}"));
        let project = match kind {
            Kind::Hook | Kind::Shikiri => Project::warm(folder, &hook)?,
            Kind::Empty | Kind::Python | Kind::Nagger => Project::fresh(folder)?,
        };
        // The first makes what the others find.
        hook.run(&project.folder, &project.call())?;
        let mut variant = Self {
            kind,
            hook,
            project,
            runs: 0,
            logged_before: 0,
            alone: Vec::new(),
            crowd: Vec::new(),
        };
        if variant.is_ours() {
            variant.logged_before = variant.project.logged()?;
        }
        Ok(variant)
    }

    fn is_ours(&self) -> bool {
        matches!(self.kind, Kind::Hook | Kind::Shikiri)
    }

    /// Of so many turns of the others, how many it takes: the slow ones are slow enough to measure.
    fn share(&self) -> usize {
        match self.kind {
            Kind::Empty | Kind::Hook | Kind::Shikiri => 1,
            Kind::Python => 10,
            Kind::Nagger => 50,
        }
    }

    fn run(&self) -> Result<f64> {
        self.hook.run(&self.project.folder, &self.project.call())
    }

    /// Sixteen that each run as often, one call after another.
    fn run_crowd(&self, each: usize) -> Result<Vec<f64>> {
        std::thread::scope(|scope| {
            let callers: Vec<_> = (0..CROWD)
                .map(|_| scope.spawn(|| (0..each).map(|_| self.run()).collect::<Result<Vec<_>>>()))
                .collect();
            let mut times = Vec::new();
            for caller in callers {
                times.extend(join(caller)?);
            }
            Ok(times)
        })
    }
}

/// One after another, in turns.
fn alone(variants: &mut [Variant], repeats: usize) -> Result<()> {
    let mut times = vec![Vec::new(); variants.len()];
    for turn in 0..repeats {
        for (variant, times) in variants.iter_mut().zip(&mut times) {
            if turn.is_multiple_of(variant.share()) {
                times.push(variant.run()?);
                variant.runs += 1;
            }
        }
    }
    for (variant, times) in variants.iter_mut().zip(times) {
        variant.alone.push(Round::of(&times));
    }
    Ok(())
}

/// Sixteen of one kind at once, in turns: five batches of a kind, or one of a slow kind.
fn crowd(variants: &mut [Variant], each: usize) -> Result<()> {
    const BATCHES: usize = 5;
    let mut times = vec![Vec::new(); variants.len()];
    for batch in 0..BATCHES {
        for (variant, times) in variants.iter_mut().zip(&mut times) {
            let is_slow = variant.share() > 1;
            if is_slow && batch > 0 {
                continue;
            }
            let each = if is_slow { 1 } else { each.div_ceil(BATCHES) };
            times.extend(variant.run_crowd(each)?);
            variant.runs += each * CROWD;
        }
    }
    for (variant, times) in variants.iter_mut().zip(times) {
        variant.crowd.push(Round::of(&times));
    }
    Ok(())
}

impl Round {
    fn of(times: &[f64]) -> Self {
        Self { median: median(times), p99: percentile(times, 99) }
    }
}

pub(super) fn join<T>(thread: ScopedJoinHandle<'_, Result<T>>) -> Result<T> {
    thread.join().map_err(|_| anyhow!("a caller panicked"))?
}

fn figures(variants: &[Variant]) -> Vec<Figure> {
    let of = |kind, rounds: fn(&Variant) -> &Vec<Round>, what: fn(&Round) -> f64| {
        let variant = variants.iter().find(|variant| variant.kind == kind);
        variant.map(|variant| rounds(variant).iter().map(what).collect::<Vec<f64>>())
    };
    let mut figures = Vec::new();
    let places: [(&str, fn(&Variant) -> &Vec<Round>); 2] =
        [("alone", |variant| &variant.alone), ("16 at once", |variant| &variant.crowd)];
    for (place, rounds) in places {
        let median = |kind| of(kind, rounds, |round| round.median);
        let p99 = |kind| of(kind, rounds, |round| round.p99).unwrap_or_default();
        let (empty, hook) = (median(Kind::Empty), median(Kind::Hook));
        let (empty, hook) = (empty.unwrap_or_default(), hook.unwrap_or_default());
        let figure = |name: &str, samples| Figure::new(format!("{name}, {place}"), "ms", samples);
        figures.push(
            figure("shikiri-hook", hook.clone())
                .against("an empty process", &empty)
                .goal(Goal::RatioAtMost(1.6)),
        );
        let slowest = figure("shikiri-hook, p99", p99(Kind::Hook));
        figures.push(match place {
            "alone" => slowest.against("its median", &hook).goal(Goal::RatioAtMost(3.0)),
            _ => slowest
                .against("an empty process, p99", &p99(Kind::Empty))
                .goal(Goal::RatioAtMost(2.0)),
        });
        figures.push(
            figure("shikiri hook", median(Kind::Shikiri).unwrap_or_default())
                .against("an empty process", &empty)
                .goal(Goal::RatioAtMost(2.5)),
        );
        for (kind, name, least) in
            [(Kind::Python, "Python's sqlite3", 12.0), (Kind::Nagger, "claude-nagger 3.3.3", 50.0)]
        {
            let goal = Goal::RatioAtLeast(least);
            figures.push(match median(kind) {
                Some(times) => figure(name, times).against("shikiri-hook", &hook).goal(goal),
                None => figure(name, Vec::new())
                    .goal(goal)
                    .missing("claude-nagger is not installed; `cargo xtask peers` does it"),
            });
        }
    }
    figures
}
