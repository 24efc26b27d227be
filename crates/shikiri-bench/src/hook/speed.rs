//! A call of a tool by a subagent that is known: one transaction, nothing to say. The usual case.

use std::thread::ScopedJoinHandle;

use anyhow::{Result, anyhow, ensure};

use super::CROWD;
use super::programs::{Hook, Kind, Programs};
use super::project::Project;
use crate::figure::{Figure, Goal, median, percentile};
use crate::world::World;

const KINDS: [Kind; 7] = [
    Kind::Empty,
    Kind::EmptyStatic,
    Kind::Hook,
    Kind::Built,
    Kind::Shikiri,
    Kind::Python,
    Kind::Nagger,
];

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
            Kind::Hook | Kind::Built | Kind::Shikiri => Project::warm(folder, &hook)?,
            Kind::Empty | Kind::EmptyStatic | Kind::Python | Kind::Nagger => {
                Project::fresh(folder)?
            }
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
        matches!(self.kind, Kind::Hook | Kind::Built | Kind::Shikiri)
    }

    /// Of so many turns of the others, how many it takes: the slow ones are slow enough to measure.
    fn share(&self) -> usize {
        match self.kind {
            Kind::Empty | Kind::EmptyStatic | Kind::Hook | Kind::Built | Kind::Shikiri => 1,
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
    [Company::Alone, Company::Crowd]
        .into_iter()
        .flat_map(|company| Times { variants, company }.figures())
        .collect()
}

#[derive(Clone, Copy)]
enum Company {
    Alone,
    Crowd,
}

/// What was measured of all, alone or in the crowd.
struct Times<'a> {
    variants: &'a [Variant],
    company: Company,
}

impl Times<'_> {
    /// One number for each round; none of what is not installed.
    fn of(&self, kind: Kind, number: fn(&Round) -> f64) -> Vec<f64> {
        let variant = self.variants.iter().find(|variant| variant.kind == kind);
        let rounds = variant.map(|variant| match self.company {
            Company::Alone => &variant.alone,
            Company::Crowd => &variant.crowd,
        });
        rounds.into_iter().flatten().map(number).collect()
    }

    fn figures(&self) -> Vec<Figure> {
        let (median, p99) = (|round: &Round| round.median, |round: &Round| round.p99);
        let (empty, hook) = (self.of(Kind::Empty, median), self.of(Kind::Hook, median));
        let place = match self.company {
            Company::Alone => "alone",
            Company::Crowd => "16 at once",
        };
        let figure = |name: &str, samples| Figure::new(format!("{name}, {place}"), "ms", samples);
        let built = self.of(Kind::Built, median);
        let slowest = figure("installed hook, p99", self.of(Kind::Hook, p99));
        let mut figures = vec![
            figure("installed hook", hook.clone())
                .against("an empty process", &empty)
                .goal(Goal::RatioAtMost(1.6)),
            figure("the same of cargo build --release", built.clone())
                .against("an empty process", &empty)
                .goal(Goal::RatioAtMost(2.5)),
            // Without a goal: it shows how much faster the hook could still become.
            figure("installed hook", hook.clone())
                .against("an empty static one", &self.of(Kind::EmptyStatic, median)),
            match self.company {
                Company::Alone => slowest.against("its median", &hook).goal(Goal::RatioAtMost(3.0)),
                Company::Crowd => slowest
                    .against("an empty process, p99", &self.of(Kind::Empty, p99))
                    .goal(Goal::RatioAtMost(2.0)),
            },
            figure("shikiri hook", self.of(Kind::Shikiri, median))
                .against("an empty process", &empty)
                .goal(Goal::RatioAtMost(2.5)),
        ];
        let peers = [
            (Kind::Python, "Python's sqlite3", "the installed hook", &hook, 12.0),
            (Kind::Nagger, "claude-nagger 3.3.3", "the installed hook", &hook, 50.0),
            (Kind::Nagger, "claude-nagger 3.3.3", "that of cargo build --release", &built, 40.0),
        ];
        for (kind, name, ours, hook, least) in peers {
            let peer = figure(name, self.of(kind, median))
                .against(ours, hook)
                .goal(Goal::RatioAtLeast(least));
            figures.push(match peer.samples.is_empty() {
                true => peer.missing("it is not installed; `cargo xtask peers` does it"),
                false => peer,
            });
        }
        figures
    }
}
