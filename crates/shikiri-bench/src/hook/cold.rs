//! The first hooks of a project, all at once: one makes the database, and none is forgotten.

use std::fs;

use anyhow::Result;

use super::CROWD;
use super::programs::{Kind, Programs};
use super::project::Project;
use crate::figure::{Figure, Goal};
use crate::world::World;

/// First starts in a round.
const STARTS: usize = 6;

pub(super) fn measure(world: &World, programs: &Programs) -> Result<Figure> {
    let name = format!("rows kept of {CROWD} first hooks at once");
    let figure = Figure::new(name, "%", Vec::new()).goal(Goal::AtLeast(100.0));
    let Some(hook) = programs.hook(Kind::Hook) else {
        return Ok(figure.missing("no hook is installed"));
    };
    let mut samples = Vec::new();
    for round in 0..world.rounds() {
        let mut kept = 0;
        for start in 0..STARTS {
            let project = Project::fresh(world.scratch().join(format!("cold-{round}-{start}")))?;
            std::thread::scope(|scope| {
                let runs: Vec<_> = (0..CROWD)
                    .map(|number| project.event("PreToolUse", &format!("agent-{number}")))
                    .map(|event| {
                        let (hook, folder) = (&hook, &project.folder);
                        scope.spawn(move || hook.run(folder, &event))
                    })
                    .collect();
                runs.into_iter().try_for_each(|run| super::speed::join(run).map(drop))
            })?;
            kept += project.logged()?;
            fs::remove_dir_all(&project.folder)?;
        }
        samples.push(kept as f64 * 100.0 / (STARTS * CROWD) as f64);
    }
    Ok(Figure { samples, ..figure })
}
