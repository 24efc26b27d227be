//! Durable SSE over HTTP, from the agent's call to the reader's socket, against a server that
//! stores nothing and one that stores the way a script would. Servers and the client are
//! processes of their own; all servers speak the same few lines on their input (`server`).

pub(crate) mod bare;
pub(crate) mod client;
mod gate;
pub(crate) mod http;
mod idle;
pub(crate) mod product;
mod reply;
pub(crate) mod server;
mod starlette;
mod throughput;

use anyhow::Result;

use crate::figure::Figure;
use crate::world::World;

pub(crate) fn measure(world: &World) -> Result<Vec<Figure>> {
    let mut figures = Vec::new();
    if world.wants("throughput") {
        figures.extend(throughput::measure(world)?);
    }
    if world.wants("idle") {
        figures.extend(idle::measure(world)?);
    }
    if world.wants("reply") {
        figures.extend(reply::measure(world)?);
    }
    Ok(figures)
}
