//! From a piece of text on the API's socket to the event at the reader, by the time that it tells.

use anyhow::Result;

use super::api::{Api, TIMED};
use crate::executions::ages::Ages;
use crate::executions::server::Server;
use crate::figure::Figure;
use crate::world::World;

pub(super) fn measure(world: &World) -> Result<Vec<Figure>> {
    let api = Api::start()?;
    let server = Server::start_native(&world.scratch().join("delta"), &api.url())?;
    let name = "a piece of text at the API to its reader";
    Ages { name, model: TIMED, input: "go", goal: 2.0 }.measure(world, &server)
}
