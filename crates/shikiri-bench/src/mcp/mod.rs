//! MCP over HTTP: a short tool, a tool that tells its progress, and sessions that do nothing, in
//! both eras, against rmcp in memory and the official servers of other languages. Ours stores and
//! authorises every call; the others do neither.

pub(crate) mod bare;
mod caller;
pub(crate) mod hold;
mod idle;
pub(crate) mod load;
mod message;
pub(crate) mod ours;
mod servers;
mod sweep;
pub(crate) mod wire;

use anyhow::Result;
use caller::{Era, Tool};
use servers::{Kind, Servers};
use sweep::Sweep;

use crate::figure::Figure;
use crate::world::World;

pub(crate) fn measure(world: &World) -> Result<Vec<Figure>> {
    let servers = Servers::find(world);
    let mut figures = Vec::new();
    if world.wants("echo") {
        figures.extend(echo(world, &servers)?);
    }
    if world.wants("progress") {
        figures.extend(progress(world, &servers)?);
    }
    if world.wants("idle") {
        figures.extend(idle::measure(world, &servers)?);
    }
    Ok(figures)
}

fn echo(world: &World, servers: &Servers) -> Result<Vec<Figure>> {
    let sweep = Sweep::run(world, servers, Tool::Echo, &[1, 32, 256])?;
    sweep.print();
    let mut figures = sweep.details();
    for era in Era::ALL {
        figures.push(sweep.median_time(era, 1, 0.4));
        for callers in [32, 256] {
            figures.push(sweep.against(Kind::Rmcp, era, callers, 0.8));
            figures.push(sweep.against(Kind::TypeScript, era, callers, 6.0));
            figures.push(sweep.against(Kind::Python, era, callers, 10.0));
        }
    }
    Ok(figures)
}

fn progress(world: &World, servers: &Servers) -> Result<Vec<Figure>> {
    let sweep = Sweep::run(world, servers, Tool::Burst, &[1, 32, 256])?;
    sweep.print();
    let mut figures = sweep.details();
    for era in Era::ALL {
        // One caller alone waits for three syncs of the disk, which rmcp has not: its rate is
        // bounded, and its ratio only reported.
        figures.push(sweep.rate(era, 1, 50_000.0));
        figures.push(sweep.against(Kind::TypeScript, era, 1, 1.0));
        for callers in [32, 256] {
            figures.push(sweep.against(Kind::Rmcp, era, callers, 0.6));
            figures.push(sweep.against(Kind::TypeScript, era, callers, 1.0));
        }
    }
    Ok(figures)
}
