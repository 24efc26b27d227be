//! The screen during calls: progress bars, lines above them, and one input line at a time. The
//! caller must have cleaned all foreign text.

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

/// Lines that may wait during input; beyond that the oldest are dropped.
const MAX_WAITING: usize = 1_000;
const DRAWN_PER_SECOND: u8 = 15;
/// For a terminal that does not report its width.
const USUAL_WIDTH: u16 = 80;

pub(crate) struct Screen {
    bars: MultiProgress,
    inner: Mutex<Inner>,
    keyboard: Arc<AsyncMutex<()>>,
    /// Counts Ctrl-C typed into a question, where it is no signal.
    interrupts: watch::Sender<u64>,
    /// A terminal that cannot move the cursor gets lines instead of bars.
    is_dumb: bool,
}

#[derive(Default)]
struct Inner {
    rows: Vec<Lane>,
    next_key: u64,
    /// During input, other lines wait here until the editor takes them.
    is_reading: bool,
    waiting: VecDeque<String>,
    /// Ends the command input when a question comes; the typed text is kept.
    command_line: Option<Arc<AtomicBool>>,
}

struct Lane {
    key: RowKey,
    row: Arc<Mutex<Row>>,
    bar: ProgressBar,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct RowKey(u64);

/// The right to read input.
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

    /// Prints a line above the bars and the input line.
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

    /// Uses the terminal while no bar is drawn.
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

    /// Removes all bars. The calls continue unwatched.
    pub(crate) fn clear(&self) {
        let keys: Vec<RowKey> = self.lock().rows.iter().map(|lane| lane.key).collect();
        keys.into_iter().for_each(|key| self.end(key));
    }

    /// The rows as lines, for a prompt below them.
    pub(super) fn lines(&self, width: usize) -> Vec<String> {
        let output = Output::stderr();
        let inner = self.lock();
        let rows = inner.rows.iter().map(|lane| {
            let row = lane.row.lock().unwrap_or_else(PoisonError::into_inner);
            row.line(width, output)
        });
        rows.collect()
    }

    /// Waits until no other caller reads input. Command input gives way to a question.
    pub(super) async fn keyboard(&self) -> Keyboard {
        if let Some(command_line) = &self.lock().command_line {
            command_line.store(true, Ordering::Relaxed);
        }
        self.next_keyboard().await
    }

    /// The keyboard for command input.
    pub(super) async fn next_keyboard(&self) -> Keyboard {
        let guard = Arc::clone(&self.keyboard).lock_owned().await;
        Keyboard { _guard: Arc::new(guard) }
    }

    /// Hands the terminal to the editor: no bar is drawn and lines wait.
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

    /// Lines that waited during input, at most `limit`.
    pub(super) fn take_waiting(&self, limit: usize) -> Vec<String> {
        let mut inner = self.lock();
        let count = inner.waiting.len().min(limit);
        inner.waiting.drain(..count).collect()
    }

    pub(super) fn interrupt(&self) {
        self.interrupts.send_modify(|count| *count += 1);
    }

    /// Changes with every Ctrl-C typed into a question from now on.
    pub(crate) fn interrupts(&self) -> watch::Receiver<u64> {
        self.interrupts.subscribe()
    }

    /// Waits until no input is read, so that the terminal is in its normal mode.
    pub(crate) async fn close(&self) {
        self.clear();
        drop(self.next_keyboard().await);
    }
}

/// The width of the terminal.
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

/// A bar that draws its row at the terminal's current width.
fn style(row: &Arc<Mutex<Row>>) -> ProgressStyle {
    let row = Arc::clone(row);
    let show = move |_: &ProgressState, to: &mut dyn std::fmt::Write| {
        // The last column stays free, because some terminals wrap there.
        let line = row
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .line(width().saturating_sub(1), Output::stderr());
        // A failed write is repeated with the next drawing.
        let _ = to.write_str(&line);
    };
    let template = ProgressStyle::with_template("{row}");
    template.unwrap_or_else(|_| ProgressStyle::default_spinner()).with_key("row", show)
}
