//! Figures about hooks. The log is read once and added up here: `GROUP BY` would sort all of it, and
//! an index for the figures would slow every hook.

use std::collections::HashMap;

use rusqlite::{Connection, OptionalExtension as _, Result, Row, params};
use shikiri_model::hook::{HookFigures, HookStats, SessionFigures, SubagentState};

use super::time;

/// The number of sessions in the statistics.
const SESSIONS: usize = 50;

/// What became of some lines of the log.
#[derive(Default)]
struct Counts {
    lines: u64,
    injected: u64,
    blocked: u64,
}

#[derive(Default)]
struct HookTotals {
    counts: Counts,
    timed: u64,
    total_ms: i64,
    max_ms: Option<i64>,
}

#[derive(Default)]
struct SessionTotals {
    counts: Counts,
    last_id: i64,
}

/// By names as they are in the file: only the names that are shown are checked to be UTF-8.
type ByName<T> = HashMap<Vec<u8>, T>;

/// Totals by event and hook, and by session.
#[derive(Default)]
struct LogTotals {
    hooks: ByName<ByName<HookTotals>>,
    sessions: ByName<SessionTotals>,
}

pub fn stats(connection: &Connection, tenant: &str) -> Result<HookStats> {
    let mut totals = LogTotals::default();
    let mut select = connection.prepare_cached(
        "SELECT event_type, hook_name, session_id, result, duration_ms, id
         FROM hook_log WHERE tenant = ?1",
    )?;
    let mut rows = select.query([tenant])?;
    while let Some(row) = rows.next()? {
        totals.add(row)?;
    }
    let LogTotals { hooks, sessions } = totals;
    let mut sessions: Vec<_> = sessions.into_iter().collect();
    sessions.sort_unstable_by_key(|(_, totals)| std::cmp::Reverse(totals.last_id));
    sessions.truncate(SESSIONS);
    let sessions = sessions.into_iter().map(|(id, totals)| totals.figures(connection, tenant, &id));
    Ok(HookStats { hooks: hook_figures(hooks), sessions: sessions.collect::<Result<_>>()? })
}

impl LogTotals {
    fn add(&mut self, row: &Row<'_>) -> Result<()> {
        let name = |index| -> Result<&[u8]> { Ok(row.get_ref(index)?.as_bytes()?) };
        let result = row.get_ref(3)?.as_bytes_or_null()?;
        let (event, hook, id) = (name(0)?, name(1)?, row.get(5)?);
        let took = row.get_ref(4)?.as_i64().ok();
        change(&mut self.hooks, event, |hooks| {
            change(hooks, hook, |totals| totals.add(result, took));
        });
        change(&mut self.sessions, name(2)?, |totals| totals.add(result, id));
        Ok(())
    }
}

/// Adds a line to the totals of a name, which is copied only for the first of its lines.
fn change<T: Default>(map: &mut ByName<T>, name: &[u8], change: impl FnOnce(&mut T)) {
    match map.get_mut(name) {
        Some(totals) => change(totals),
        None => change(map.entry(name.to_owned()).or_default()),
    }
}

fn shown(name: &[u8]) -> String {
    String::from_utf8_lossy(name).into_owned()
}

impl Counts {
    fn add(&mut self, result: Option<&[u8]>) {
        self.lines += 1;
        self.injected += u64::from(result == Some(b"injected"));
        self.blocked += u64::from(result == Some(b"blocked"));
    }
}

impl HookTotals {
    fn add(&mut self, result: Option<&[u8]>, took_ms: Option<i64>) {
        self.counts.add(result);
        if let Some(took) = took_ms {
            self.timed += 1;
            self.total_ms = self.total_ms.saturating_add(took);
            self.max_ms = self.max_ms.max(Some(took));
        }
    }
}

/// The most frequent first.
fn hook_figures(hooks: ByName<ByName<HookTotals>>) -> Vec<HookFigures> {
    let figures = hooks.into_iter().flat_map(|(event_type, hooks)| {
        hooks.into_iter().map(move |(hook_name, totals)| HookFigures {
            event_type: shown(&event_type),
            hook_name: shown(&hook_name),
            count: totals.counts.lines,
            injected: totals.counts.injected,
            blocked: totals.counts.blocked,
            average_ms: (totals.timed > 0).then(|| totals.total_ms as f64 / totals.timed as f64),
            max_ms: totals.max_ms,
        })
    });
    let mut figures: Vec<_> = figures.collect();
    figures.sort_by(|one, other| {
        let names = |it: &HookFigures| (it.event_type.clone(), it.hook_name.clone());
        other.count.cmp(&one.count).then_with(|| names(one).cmp(&names(other)))
    });
    figures
}

impl SessionTotals {
    fn add(&mut self, result: Option<&[u8]>, id: i64) {
        self.counts.add(result);
        self.last_id = self.last_id.max(id);
    }

    fn figures(
        self,
        connection: &Connection,
        tenant: &str,
        session_id: &[u8],
    ) -> Result<SessionFigures> {
        let session_id = shown(session_id);
        let mut select = connection.prepare_cached(
            "SELECT count(*), count(*) FILTER (WHERE startup_processed = 0)
             FROM subagents WHERE session_id = ?1 AND tenant = ?2 AND state = ?3",
        )?;
        let active = SubagentState::Active.as_str();
        let (active, unprocessed): (i64, i64) = select
            .query_row(params![session_id, tenant, active], |row| Ok((row.get(0)?, row.get(1)?)))?;
        let count = |number| u64::try_from(number).unwrap_or(0);
        // Lines are in the order of their times.
        let mut last = connection.prepare_cached("SELECT timestamp FROM hook_log WHERE id = ?1")?;
        let last_at = last.query_row([self.last_id], |row| time(row, 0)).optional()?.flatten();
        Ok(SessionFigures {
            session_id,
            count: self.counts.lines,
            injected: self.counts.injected,
            blocked: self.counts.blocked,
            active: count(active),
            unprocessed: count(unprocessed),
            last_at: last_at.unwrap_or_default(),
        })
    }
}
