//! The history checker: compares what a reader saw with the final log.
//!
//! It does not depend on servers. A reader's history is the list of (seq, hash of the bytes) in the
//! order of arrival. The log is the same list, read at the end without interruption.

use std::fmt;
use std::hash::Hasher as _;

/// One event as a reader saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    pub seq: u64,
    /// Of the event's name and data, byte for byte.
    pub hash: u64,
}

impl Seen {
    pub fn new(seq: u64, event: &str, data: &[u8]) -> Self {
        let mut hasher = std::hash::DefaultHasher::new();
        hasher.write(event.as_bytes());
        hasher.write_u8(0);
        hasher.write(data);
        Self { seq, hash: hasher.finish() }
    }
}

/// The events that one reader saw of one stream.
#[derive(Clone, Debug)]
pub struct History {
    /// The reader and the stream, for the report.
    pub name: String,
    /// The cursor that it started with.
    pub after: u64,
    pub seen: Vec<Seen>,
    /// Whether it followed to the end, so that no event may be missing there.
    pub whole: bool,
}

/// The first error in a history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    pub name: String,
    pub kind: Kind,
    /// The position in the history, counted from 0.
    pub at: usize,
    /// The numbers seen around it.
    pub around: Vec<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Events between the two were not seen.
    Gap { after: u64, next: u64 },
    /// The same event again.
    Repeat { seq: u64 },
    /// An event after a later one.
    Disorder { after: u64, next: u64 },
    /// The log has other bytes under this number.
    Changed { seq: u64 },
    /// The log has no such number: the event was sent before it was stored.
    Lost { seq: u64 },
    /// It followed to the end, but the log has more events.
    Short { last: u64, head: u64 },
}

/// A log is whole if its numbers are 1, 2, 3 …
pub fn check_log(name: &str, log: &[Seen]) -> Result<(), Violation> {
    let whole = History { name: name.to_owned(), after: 0, seen: log.to_vec(), whole: false };
    check_order(&whole)
}

/// Checks for gaps, repeats and disorder, and compares every event with the log.
pub fn check(history: &History, log: &[Seen]) -> Result<(), Violation> {
    for (at, seen) in history.seen.iter().enumerate() {
        let kept = usize::try_from(seen.seq).ok().and_then(|seq| log.get(seq.checked_sub(1)?));
        match kept {
            None => return Err(history.violation(at, Kind::Lost { seq: seen.seq })),
            Some(kept) if kept != seen => {
                return Err(history.violation(at, Kind::Changed { seq: seen.seq }));
            }
            Some(_) => {}
        }
    }
    check_order(history)?;
    let last = history.seen.last().map_or(history.after, |seen| seen.seq);
    match log.last() {
        Some(head) if history.whole && last < head.seq => {
            let at = history.seen.len().saturating_sub(1);
            Err(history.violation(at, Kind::Short { last, head: head.seq }))
        }
        _ => Ok(()),
    }
}

fn check_order(history: &History) -> Result<(), Violation> {
    let mut after = history.after;
    for (at, Seen { seq, .. }) in history.seen.iter().copied().enumerate() {
        let kind = match seq {
            _ if seq == after + 1 => {
                after = seq;
                continue;
            }
            _ if seq == after => Kind::Repeat { seq },
            _ if seq < after => Kind::Disorder { after, next: seq },
            _ => Kind::Gap { after, next: seq },
        };
        return Err(history.violation(at, kind));
    }
    Ok(())
}

impl History {
    fn violation(&self, at: usize, kind: Kind) -> Violation {
        let end = (at + 4).min(self.seen.len());
        let around = self.seen[at.saturating_sub(3).min(end)..end].iter().map(|s| s.seq).collect();
        Violation { name: self.name.clone(), kind, at, around }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.name)?;
        match self.kind {
            Kind::Gap { after, next } => write!(f, "gap: after {after} came {next}"),
            Kind::Repeat { seq } => write!(f, "repeat: {seq} came twice"),
            Kind::Disorder { after, next } => write!(f, "disorder: after {after} came {next}"),
            Kind::Changed { seq } => write!(f, "changed: the log has other bytes for {seq}"),
            Kind::Lost { seq } => write!(f, "lost: the log has no {seq}"),
            Kind::Short { last, head } => {
                write!(f, "short: it ended at {last}, the log at {head}")
            }
        }?;
        write!(f, " (place {}, around it {:?})", self.at, self.around)
    }
}

impl std::error::Error for Violation {}

#[cfg(test)]
#[path = "history_tests.rs"]
mod tests;
