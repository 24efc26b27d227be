//! Figures about hooks. The log is read once and added up here: `GROUP BY` would sort all of it, and
//! an index for the figures would slow every hook.

use std::collections::HashMap;

use rusqlite::{Connection, Result, Row, params};
use shikiri_model::hook::{HookFigures, HookStats, SessionFigures, SubagentState};
use shikiri_model::time::Timestamp;

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
    last_at: String,
    last_id: i64,
}

/// Totals by event and hook, and by session.
#[derive(Default)]
struct LogTotals {
    hooks: HashMap<String, HashMap<String, HookTotals>>,
    sessions: HashMap<String, SessionTotals>,
}

pub fn stats(connection: &Connection, tenant: &str) -> Result<HookStats> {
    let mut totals = LogTotals::default();
    let mut select = connection.prepare_cached(
        "SELECT event_type, hook_name, session_id, result, duration_ms, timestamp, id
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
    let sessions = sessions.into_iter().map(|(id, totals)| totals.figures(connection, tenant, id));
    Ok(HookStats { hooks: hook_figures(hooks), sessions: sessions.collect::<Result<_>>()? })
}

impl LogTotals {
    fn add(&mut self, row: &Row<'_>) -> Result<()> {
        let text = |index| -> Result<&str> { Ok(row.get_ref(index)?.as_str()?) };
        let result = row.get_ref(3)?.as_str_or_null()?;
        let (event, hook, at) = (text(0)?, text(1)?, text(5)?);
        let (took, id) = (row.get_ref(4)?.as_i64_or_null()?, row.get(6)?);
        change(&mut self.hooks, event, |hooks| {
            change(hooks, hook, |totals| totals.add(result, took));
        });
        change(&mut self.sessions, text(2)?, |totals| totals.add(result, at, id));
        Ok(())
    }
}

/// Adds a line to the totals of a name, which is copied only for the first of its lines.
fn change<T: Default>(map: &mut HashMap<String, T>, name: &str, change: impl FnOnce(&mut T)) {
    match map.get_mut(name) {
        Some(totals) => change(totals),
        None => change(map.entry(name.to_owned()).or_default()),
    }
}

impl Counts {
    fn add(&mut self, result: Option<&str>) {
        self.lines += 1;
        self.injected += u64::from(result == Some("injected"));
        self.blocked += u64::from(result == Some("blocked"));
    }
}

impl HookTotals {
    fn add(&mut self, result: Option<&str>, took_ms: Option<i64>) {
        self.counts.add(result);
        if let Some(took) = took_ms {
            self.timed += 1;
            self.total_ms = self.total_ms.saturating_add(took);
            self.max_ms = self.max_ms.max(Some(took));
        }
    }
}

/// The most frequent first.
fn hook_figures(hooks: HashMap<String, HashMap<String, HookTotals>>) -> Vec<HookFigures> {
    let figures = hooks.into_iter().flat_map(|(event_type, hooks)| {
        hooks.into_iter().map(move |(hook_name, totals)| HookFigures {
            event_type: event_type.clone(),
            hook_name,
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
    fn add(&mut self, result: Option<&str>, at: &str, id: i64) {
        self.counts.add(result);
        self.last_id = self.last_id.max(id);
        if at > self.last_at.as_str() {
            at.clone_into(&mut self.last_at);
        }
    }

    fn figures(
        self,
        connection: &Connection,
        tenant: &str,
        session_id: String,
    ) -> Result<SessionFigures> {
        let mut select = connection.prepare_cached(
            "SELECT count(*), count(*) FILTER (WHERE startup_processed = 0)
             FROM subagents WHERE session_id = ?1 AND tenant = ?2 AND state = ?3",
        )?;
        let active = SubagentState::Active.as_str();
        let (active, unprocessed): (i64, i64) = select
            .query_row(params![session_id, tenant, active], |row| Ok((row.get(0)?, row.get(1)?)))?;
        let count = |number| u64::try_from(number).unwrap_or(0);
        // A time that another program wrote in another format counts as missing.
        let last_at: Option<Timestamp> = self.last_at.parse().ok();
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
