//! SIGTERM and SIGINT as something to await.

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::exit::{Exit, Failure};

pub struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    /// From here on these signals no longer end the process by themselves.
    pub fn catch() -> Result<Self, Failure> {
        let catch = |kind| {
            signal(kind).map_err(|error| {
                Failure::told(Exit::Failed, format!("cannot listen to signals: {error}"))
            })
        };
        Ok(Self {
            interrupt: catch(SignalKind::interrupt())?,
            terminate: catch(SignalKind::terminate())?,
        })
    }

    /// The number of the next signal.
    pub async fn next(&mut self) -> u8 {
        tokio::select! {
            _ = self.interrupt.recv() => 2,
            _ = self.terminate.recv() => 15,
        }
    }
}
