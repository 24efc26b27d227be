//! A thousand executions at the same time, each with its reader: nothing is lost, and memory
//! stays in bounds.

use anyhow::Result;

use super::callers::{Kind, Order, Turn};
use super::server::Server;
use crate::figure::{Figure, Goal};
use crate::machine::peak_kib;
use crate::report::number;
use crate::world::World;

const READERS: usize = 1_000;
/// Slow enough for the first to be at work still when the last begins.
const INPUT: &str = "#offline events=50 delay_ms=100 chars=20";

pub(super) fn measure(world: &World) -> Result<Vec<Figure>> {
    let readers = if world.quick { READERS / 5 } else { READERS };
    let (mut lost, mut together, mut memory, mut seconds) =
        (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for round in 0..world.rounds().min(3) {
        let server = Server::start(&world.scratch().join(format!("crowd-{round}")), None)?;
        let order = Order {
            kind: Kind::Execution,
            callers: readers,
            time: std::time::Duration::ZERO,
            events: 0,
            input: INPUT,
            model: None,
        };
        let turns = order.carry_out(&server)?;
        lost.push(missing(&turns, readers));
        together.push(most_at_once(&turns) as f64);
        memory.push(peak_kib(server.process_id())? / 1_024.0);
        let began = turns.iter().map(|turn| turn.asked).min().unwrap_or(0);
        let ended = turns.iter().map(|turn| turn.ended).max().unwrap_or(0);
        seconds.push(ended.saturating_sub(began) as f64 / 1e9);
    }
    let of = |what: &str| format!("{} executions with readers: {what}", number(readers as f64));
    Ok(vec![
        Figure::new(of("events lost"), "events", lost).goal(Goal::AtMost(0.0)),
        Figure::new(of("at the same moment"), "", together).goal(Goal::AtLeast(readers as f64)),
        Figure::new(of("memory at its highest"), "MiB", memory).goal(Goal::AtMost(400.0)),
        Figure::new(of("done after"), "s", seconds),
    ])
}

/// Gaps, and what the shortest stream lacks of the longest: all are of one length.
fn missing(turns: &[Turn], readers: usize) -> f64 {
    let most = turns.iter().map(|turn| turn.events).max().unwrap_or(0);
    let lost: u64 = turns.iter().map(|turn| turn.lost + most - turn.events).sum();
    lost as f64 + (readers - turns.len()) as f64 * most as f64
}

/// How many were between their first event and their end at one moment.
fn most_at_once(turns: &[Turn]) -> usize {
    let begins = turns.iter().map(|turn| (turn.first, true));
    let mut changes: Vec<_> = begins.chain(turns.iter().map(|turn| (turn.ended, false))).collect();
    changes.sort_unstable();
    let (mut now, mut most) = (0, 0);
    for (_, begins) in changes {
        now = if begins { now + 1 } else { now - 1 };
        most = most.max(now);
    }
    most
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turn(first: u64, ended: u64, events: u64, lost: u64) -> Turn {
        Turn { asked: 0, first, ended, events, lost, ages: Vec::new(), written: None }
    }

    #[test]
    fn a_gap_a_short_stream_and_a_missing_one_are_all_lost_events() {
        assert_eq!(missing(&[turn(1, 9, 52, 0), turn(1, 9, 52, 0)], 2), 0.0);
        assert_eq!(missing(&[turn(1, 9, 52, 3), turn(1, 9, 50, 0)], 3), 57.0);
    }

    #[test]
    fn what_overlaps_is_counted_together() {
        let turns = [turn(1, 5, 1, 0), turn(2, 4, 1, 0), turn(5, 8, 1, 0), turn(3, 9, 1, 0)];
        assert_eq!(most_at_once(&turns), 3);
    }
}
