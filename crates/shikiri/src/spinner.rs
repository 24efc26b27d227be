//! What a person sees while a command waits: a spinner with a sentence and the seconds, on a
//! terminal, once it takes longer than a moment. What is printed meanwhile goes above it.

use std::io::{self, IsTerminal as _};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use crate::env_vars;

/// Shorter waits show nothing.
const MOMENT: Duration = Duration::from_millis(800);
const TICK: Duration = Duration::from_millis(120);

/// The spinner on the screen. There is one terminal.
static SHOWN: Mutex<Option<ProgressBar>> = Mutex::new(None);

/// Does the work, and says on a terminal what is waited for.
pub(crate) fn show_waiting<T>(
    what: &str,
    work: impl Future<Output = T>,
) -> impl Future<Output = T> {
    // On the heap, because the futures of whole commands are large.
    let mut work = Box::pin(work);
    async move {
        if !is_shown() {
            return work.await;
        }
        tokio::select! {
            done = &mut work => return done,
            () = tokio::time::sleep(MOMENT) => {}
        }
        let _spinner = Spinner::start(what);
        work.await
    }
}

/// Prints while no spinner is drawn.
pub(crate) fn suspend_spinner<T>(print: impl FnOnce() -> T) -> T {
    let shown = shown().clone();
    match shown {
        Some(bar) => bar.suspend(print),
        None => print(),
    }
}

fn is_shown() -> bool {
    let term = std::env::var_os(env_vars::TERM.name);
    io::stderr().is_terminal() && term.is_some_and(|term| term != "dumb")
}

fn shown() -> MutexGuard<'static, Option<ProgressBar>> {
    SHOWN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Goes from the screen when dropped, whether the work ended or was given up.
struct Spinner;

impl Spinner {
    fn start(what: &str) -> Self {
        let style = ProgressStyle::with_template("{spinner} {msg} {elapsed}")
            .unwrap_or_else(|_| ProgressStyle::default_spinner());
        let bar = ProgressBar::new_spinner().with_style(style);
        bar.set_message(what.to_owned());
        bar.enable_steady_tick(TICK);
        // The innermost wait is the one that is told.
        if let Some(outer) = shown().replace(bar) {
            outer.finish_and_clear();
        }
        Self
    }
}

impl Drop for Spinner {
    fn drop(&mut self) {
        if let Some(bar) = shown().take() {
            bar.finish_and_clear();
        }
    }
}
