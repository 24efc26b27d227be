//! The screen of somebody who makes calls: bars of what goes on, lines above them, and one thing at
//! a time that is typed. Nothing here is a stranger's text as it came: whoever says something has
//! cleaned it.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use console::Term;
use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};
use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard, watch};

use super::row::{Row, TICK};
use super::sheet::Sheet;
use crate::env_vars;
use crate::output::{Output, note};

/// Lines that may wait while somebody types; of more, the oldest are left out.
const MAX_WAITING: usize = 1_000;
const DRAWN_PER_SECOND: u8 = 15;
/// For a terminal that does not tell its width.
const USUAL_WIDTH: u16 = 80;

pub(crate) struct Screen {
    bars: MultiProgress,
    inner: Mutex<Inner>,
    keyboard: Arc<AsyncMutex<()>>,
    /// How often Ctrl-C was typed into a question, where it is no signal.
    interrupts: watch::Sender<u64>,
    /// A terminal without a cursor to move gets lines instead of bars.
    is_dumb: bool,
}

#[derive(Default)]
struct Inner {
    rows: Vec<Lane>,
    next_key: u64,
    /// While somebody types, lines wait here until the editor takes them.
    is_reading: bool,
    waiting: VecDeque<String>,
    /// Ends the command line when a question comes: its words are kept.
    command_line: Option<Arc<AtomicBool>>,
}

struct Lane {
    key: RowKey,
    row: Arc<Mutex<Row>>,
    bar: ProgressBar,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct RowKey(u64);

/// The right to have something typed.
#[derive(Clone)]
pub(super) struct Keyboard {
    _guard: Arc<OwnedMutexGuard<()>>,
}

impl Screen {
    pub(crate) fn new() -> Arc<Self> {
        let is_dumb = std::env::var_os(env_vars::TERM.name).is_none_or(|term| term == "dumb");
        let bars = MultiProgress::with_draw_target(target(is_dumb));
        Arc::new(Self {
            bars,
            inner: Mutex::default(),
            keyboard: Arc::default(),
            interrupts: watch::Sender::new(0),
            is_dumb,
        })
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn is_dumb(&self) -> bool {
        self.is_dumb
    }

    /// Says something above the bars, and above what is being typed.
    pub(crate) fn say(&self, text: &str) {
        let mut inner = self.lock();
        for line in text.lines() {
            if inner.is_reading {
                if inner.waiting.len() == MAX_WAITING {
                    inner.waiting.pop_front();
                }
                inner.waiting.push_back(line.to_owned());
            } else {
                self.bars.suspend(|| note(line));
            }
        }
    }

    /// Does something with the terminal while no bar is in the way.
    pub(crate) fn aside<T>(&self, act: impl FnOnce() -> T) -> T {
        let _inner = self.lock();
        self.bars.suspend(act)
    }

    pub(super) fn begin(&self, name: &str) -> RowKey {
        let row = Arc::new(Mutex::new(Row::new(name)));
        let bar = self.bars.add(ProgressBar::new_spinner().with_style(style(&row)));
        let mut inner = self.lock();
        inner.next_key += 1;
        let key = RowKey(inner.next_key);
        bar.enable_steady_tick(TICK);
        inner.rows.push(Lane { key, row, bar });
        key
    }

    pub(super) fn change(&self, key: RowKey, change: impl FnOnce(&mut Row)) {
        let inner = self.lock();
        if let Some(lane) = inner.rows.iter().find(|lane| lane.key == key) {
            change(&mut lane.row.lock().unwrap_or_else(PoisonError::into_inner));
        }
    }

    pub(super) fn end(&self, key: RowKey) {
        let mut inner = self.lock();
        if let Some(at) = inner.rows.iter().position(|lane| lane.key == key) {
            let lane = inner.rows.remove(at);
            lane.bar.finish_and_clear();
            self.bars.remove(&lane.bar);
        }
    }

    /// Takes every bar away: the calls go on without being watched.
    pub(crate) fn clear(&self) {
        let keys: Vec<RowKey> = self.lock().rows.iter().map(|lane| lane.key).collect();
        keys.into_iter().for_each(|key| self.end(key));
    }

    /// The rows as lines, for a prompt that has them above it.
    pub(super) fn lines(&self, width: usize) -> Vec<String> {
        let output = Output::stderr();
        let inner = self.lock();
        let rows = inner.rows.iter().map(|lane| {
            let row = lane.row.lock().unwrap_or_else(PoisonError::into_inner);
            row.line(width, output)
        });
        rows.collect()
    }

    /// Waits until nobody else has something typed. The command line makes room for a question.
    pub(super) async fn keyboard(&self) -> Keyboard {
        if let Some(command_line) = &self.lock().command_line {
            command_line.store(true, Ordering::Relaxed);
        }
        self.next_keyboard().await
    }

    /// For the command line itself.
    pub(super) async fn next_keyboard(&self) -> Keyboard {
        let guard = Arc::clone(&self.keyboard).lock_owned().await;
        Keyboard { _guard: Arc::new(guard) }
    }

    /// From here on the terminal is the editor's: no bar is drawn and lines wait.
    pub(super) fn start_reading(&self, command_line: Option<Arc<AtomicBool>>) {
        let mut inner = self.lock();
        inner.is_reading = true;
        inner.command_line = command_line;
        // If the terminal is gone, the editor will notice.
        let _ = self.bars.clear();
        self.bars.set_draw_target(ProgressDrawTarget::hidden());
    }

    pub(super) fn stop_reading(&self) {
        let mut inner = self.lock();
        inner.is_reading = false;
        inner.command_line = None;
        inner.waiting.drain(..).for_each(|line| note(&line));
        self.bars.set_draw_target(target(self.is_dumb));
    }

    /// What has waited while somebody types, so many lines at most.
    pub(super) fn take_waiting(&self, limit: usize) -> Vec<String> {
        let mut inner = self.lock();
        let count = inner.waiting.len().min(limit);
        inner.waiting.drain(..count).collect()
    }

    pub(super) fn interrupt(&self) {
        self.interrupts.send_modify(|count| *count += 1);
    }

    /// Changes with every Ctrl-C that is typed into a question from now on.
    pub(crate) fn interrupts(&self) -> watch::Receiver<u64> {
        self.interrupts.subscribe()
    }

    /// Waits until nothing is typed any more: the terminal is as it was.
    pub(crate) async fn close(&self) {
        self.clear();
        drop(self.next_keyboard().await);
    }
}

/// Columns of the terminal.
pub(crate) fn width() -> usize {
    let size = Term::stderr().size_checked().map_or(USUAL_WIDTH, |(_, columns)| columns);
    usize::from(size.max(1))
}

fn target(is_dumb: bool) -> ProgressDrawTarget {
    if is_dumb {
        return ProgressDrawTarget::hidden();
    }
    ProgressDrawTarget::term_like_with_hz(Box::new(Sheet::default()), DRAWN_PER_SECOND)
}

/// A bar that shows its row, as wide as the terminal is at that moment.
fn style(row: &Arc<Mutex<Row>>) -> ProgressStyle {
    let row = Arc::clone(row);
    let show = move |_: &ProgressState, to: &mut dyn std::fmt::Write| {
        // The last column stays free: some terminals break the line there.
        let line = row
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .line(width().saturating_sub(1), Output::stderr());
        // What cannot be shown is shown next time.
        let _ = to.write_str(&line);
    };
    let template = ProgressStyle::with_template("{row}");
    template.unwrap_or_else(|_| ProgressStyle::default_spinner()).with_key("row", show)
}
