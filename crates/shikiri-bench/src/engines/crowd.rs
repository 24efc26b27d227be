//! Two hundred turns at the same time, each with its reader: memory stays in bounds.

use anyhow::{Result, ensure};

use super::api::{Api, SLOW};
use crate::executions::callers::{Kind, Order};
use crate::executions::server::Server;
use crate::figure::{Figure, Goal};
use crate::machine::peak_kib;
use crate::world::World;

const TURNS: usize = 200;

pub(super) fn measure(world: &World) -> Result<Vec<Figure>> {
    let mut memory = Vec::new();
    for round in 0..world.rounds().min(3) {
        let api = Api::start()?;
        let folder = world.scratch().join(format!("engines-crowd-{round}"));
        let server = Server::start_native(&folder, &api.url())?;
        let order = Order {
            kind: Kind::Execution,
            callers: TURNS,
            time: std::time::Duration::ZERO,
            events: 0,
            input: "go",
            model: Some(SLOW),
        };
        let turns = order.carry_out(&server)?;
        ensure!(turns.len() == TURNS, "only {} turns ended well", turns.len());
        memory.push(peak_kib(server.process_id())? / 1_024.0);
    }
    let name = format!("{TURNS} native turns with readers: memory at its highest");
    Ok(vec![Figure::new(name, "MiB", memory).goal(Goal::AtMost(300.0))])
}
