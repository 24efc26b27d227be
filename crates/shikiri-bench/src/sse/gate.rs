//! Where a server's streams wait until all of them are open, so that what is timed is events and
//! not the making of connections and runs.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tokio::sync::watch;

use crate::child;
use crate::machine::monotonic_ns;

#[derive(Debug)]
pub(crate) struct Gate {
    waiting: AtomicUsize,
    opened: watch::Sender<u64>,
}

impl Default for Gate {
    fn default() -> Self {
        Self { waiting: AtomicUsize::new(0), opened: watch::Sender::new(0) }
    }
}

impl Gate {
    /// Waits for the next opening.
    pub(crate) async fn pass(&self) {
        let mut opened = self.opened.subscribe();
        self.waiting.fetch_add(1, Ordering::SeqCst);
        // The sender lives as long as this gate.
        let _ = opened.changed().await;
    }

    /// Opens it for those who wait, once they are `count`.
    async fn open(&self, count: usize) -> u64 {
        while self.waiting.load(Ordering::SeqCst) < count {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        self.waiting.store(0, Ordering::SeqCst);
        let now = monotonic_ns();
        self.opened.send_modify(|times| *times += 1);
        now
    }

    /// Serves the parent's commands until it is done with this process: `go COUNT` is answered
    /// with `went NANOSECONDS`.
    pub(crate) async fn obey(&self) -> Result<()> {
        while let Some(command) = child::command().await? {
            let Some(count) = command.strip_prefix("go ") else { bail!("what is {command:?}?") };
            let now = self.open(count.parse().context("go COUNT")?).await;
            child::tell(&format!("went {now}"))?;
        }
        Ok(())
    }
}
