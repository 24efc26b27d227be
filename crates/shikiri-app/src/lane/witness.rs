//! Follows a question while it is put: writes down that it is about to be sent, and shows its caller
//! how far it is.

use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use shikiri_model::lane::{Inquiry, Sent};
use shikiri_model::lease::Guard;
use shikiri_model::record::{Expect, RecordChange};
use shikiri_store::Commit;
use tokio::sync::watch;

use super::driver::{NotNow, Stage, Witness};
use crate::app::App;
use crate::failpoint;
use crate::run::Context;

/// Stages of one question.
const STAGES: f64 = 6.0;
/// What is shown is not shown more often.
const PACE: Duration = Duration::from_millis(500);

/// The inquiry as it lies in the store.
pub(super) struct Kept {
    pub(super) inquiry: Inquiry,
    pub(super) version: u64,
}

pub(super) struct Follower<'a> {
    pub(super) app: &'a App,
    pub(super) context: &'a Context,
    pub(super) kept: tokio::sync::Mutex<Kept>,
    /// Without them nothing is sent.
    pub(super) guards: Vec<Guard>,
    pub(super) stage: watch::Sender<Option<Stage>>,
}

#[async_trait]
impl Witness for Follower<'_> {
    async fn before_send(&self) -> Result<(), NotNow> {
        if self.context.is_cancelled() {
            return Err(NotNow);
        }
        let mut kept = self.kept.lock().await;
        let inquiry = Inquiry { sent: Sent::Unknown, ..kept.inquiry.clone() };
        let put = RecordChange::put(&inquiry, Expect::Version(kept.version));
        let Ok(put) = put else { return Err(NotNow) };
        let commit = Commit { guards: self.guards.clone(), ..Commit::new().record(put) };
        failpoint::hit("lane.before_sending");
        if let Err(error) = self.app.store.commit(commit).await {
            tracing::warn!(%error, inquiry = %inquiry.id, "a question is not sent");
            return Err(NotNow);
        }
        failpoint::hit("lane.after_sending");
        *kept = Kept { inquiry, version: kept.version + 1 };
        Ok(())
    }

    fn tell(&self, stage: Stage) {
        self.stage.send_replace(Some(stage));
    }
}

/// How far a run's questions are, all of them together: its caller sees one number that rises.
#[derive(Clone)]
pub(super) struct Meter {
    parts: Arc<Mutex<Vec<f64>>>,
    part: usize,
}

impl Meter {
    /// One for each question.
    pub(super) fn of(count: usize) -> Vec<Self> {
        let parts = Arc::new(Mutex::new(vec![0.0; count]));
        (0..count).map(|part| Self { parts: Arc::clone(&parts), part }).collect()
    }

    /// Done and total; None if nothing has moved on.
    fn advance(&self, to: f64) -> Option<(f64, f64)> {
        let mut parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        let part = parts.get_mut(self.part)?;
        if to <= *part {
            return None;
        }
        *part = to;
        Some((parts.iter().sum(), parts.len() as f64 * STAGES))
    }
}

/// Shows what it is told until it is dropped.
pub(super) async fn show(
    context: &Context,
    provider: &str,
    meter: &Meter,
    mut stages: watch::Receiver<Option<Stage>>,
) -> Infallible {
    while stages.changed().await.is_ok() {
        let Some(stage) = stages.borrow_and_update().clone() else { continue };
        let (far, message) = describe(&stage);
        if let Some((progress, total)) = meter.advance(far) {
            let message = format!("{provider}: {message}");
            context.show_progress(progress, total, &message).await;
        }
        tokio::time::sleep(PACE).await;
    }
    std::future::pending().await
}

fn describe(stage: &Stage) -> (f64, String) {
    match stage {
        Stage::Connecting => (1.0, "opening the page".to_owned()),
        Stage::WaitingForInput => (2.0, "waiting for the page".to_owned()),
        Stage::Typing => (3.0, "writing the question".to_owned()),
        Stage::Sending => (4.0, "sending the question".to_owned()),
        Stage::Answering { characters } => {
            // Nobody knows how long it will be: ever nearer to the end, never there.
            let grown = *characters as f64;
            (4.0 + 2.0 * grown / (grown + 2_000.0), format!("{characters} characters so far"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_only_ever_rises() {
        let meters = Meter::of(2);
        assert_eq!(meters[0].advance(1.0), Some((1.0, 12.0)));
        assert_eq!(meters[1].advance(4.0), Some((5.0, 12.0)));
        assert_eq!(meters[0].advance(1.0), None);
        let far = |characters| describe(&Stage::Answering { characters }).0;
        assert!(far(0) < far(1) && far(1) < far(1_000_000) && far(usize::MAX) <= STAGES);
        assert!(describe(&Stage::Sending).0 <= far(0));
    }
}
