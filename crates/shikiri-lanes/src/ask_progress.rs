//! Follows a question in flight: records that it is about to be sent, and reports its progress to
//! the caller.

use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use shikiri_model::lane::{ProviderQuestion, SendStatus};
use shikiri_model::lease::LeaseGuard;
use shikiri_model::record::{ExpectedVersion, RecordChange};
use shikiri_runtime::failpoint;
use shikiri_runtime::run::RunContext;
use shikiri_store::Commit;
use tokio::sync::watch;

use super::page_driver::{AskStage, SendGate, SendRefusal};
use crate::Lanes;

/// Stages of one question.
const STAGES: f64 = 6.0;
/// The shortest pause between two reports.
const PACE: Duration = Duration::from_millis(500);

/// The question as it is stored.
pub(super) struct QuestionRecord {
    pub(super) question: ProviderQuestion,
    pub(super) version: u64,
}

pub(super) struct AskProgressTracker<'a> {
    pub(super) lanes: &'a Lanes,
    pub(super) context: &'a RunContext,
    pub(super) kept: tokio::sync::Mutex<QuestionRecord>,
    /// The leases. Without them nothing is sent.
    pub(super) guards: Vec<LeaseGuard>,
    pub(super) stage: watch::Sender<Option<AskStage>>,
}

#[async_trait]
impl SendGate for AskProgressTracker<'_> {
    async fn before_send(&self) -> Result<(), SendRefusal> {
        if self.context.is_cancelled() {
            return Err(SendRefusal);
        }
        let mut kept = self.kept.lock().await;
        let question = ProviderQuestion { sent: SendStatus::Unknown, ..kept.question.clone() };
        let put = RecordChange::put(&question, ExpectedVersion::Version(kept.version));
        let Ok(put) = put else { return Err(SendRefusal) };
        let commit = Commit { guards: self.guards.clone(), ..Commit::new().record(put) };
        failpoint::hit("lane.before_sending");
        if let Err(error) = self.lanes.runtime.store().commit(commit).await {
            tracing::warn!(%error, inquiry = %question.id, "a question is not sent");
            return Err(SendRefusal);
        }
        failpoint::hit("lane.after_sending");
        *kept = QuestionRecord { question, version: kept.version + 1 };
        Ok(())
    }

    fn report_stage(&self, stage: AskStage) {
        self.stage.send_replace(Some(stage));
    }
}

/// The progress of a run's questions together: its caller sees one rising number.
#[derive(Clone)]
pub(super) struct AskProgressMeter {
    parts: Arc<Mutex<Vec<f64>>>,
    part: usize,
}

impl AskProgressMeter {
    /// One meter for each question.
    pub(super) fn of(count: usize) -> Vec<Self> {
        let parts = Arc::new(Mutex::new(vec![0.0; count]));
        (0..count).map(|part| Self { parts: Arc::clone(&parts), part }).collect()
    }

    /// Done and total; None if there is no progress.
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

/// Reports each stage until it is dropped.
pub(super) async fn report_progress(
    context: &RunContext,
    provider: &str,
    meter: &AskProgressMeter,
    mut stages: watch::Receiver<Option<AskStage>>,
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

fn describe(stage: &AskStage) -> (f64, String) {
    match stage {
        AskStage::Connecting => (1.0, "opening the page".to_owned()),
        AskStage::WaitingForInput => (2.0, "waiting for the page".to_owned()),
        AskStage::Typing => (3.0, "writing the question".to_owned()),
        AskStage::Sending => (4.0, "sending the question".to_owned()),
        AskStage::Answering { characters } => {
            // The length is unknown, so progress approaches the end and never reaches it.
            let grown = *characters as f64;
            let far = 2.0 * grown / (grown + 2_000.0);
            (4.0 + (far * 1e3).round() / 1e3, format!("{characters} characters so far"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_only_ever_rises() {
        let meters = AskProgressMeter::of(2);
        assert_eq!(meters[0].advance(1.0), Some((1.0, 12.0)));
        assert_eq!(meters[1].advance(4.0), Some((5.0, 12.0)));
        assert_eq!(meters[0].advance(1.0), None);
        let far = |characters| describe(&AskStage::Answering { characters }).0;
        assert!(far(0) < far(1) && far(1) < far(1_000_000) && far(usize::MAX) <= STAGES);
        assert!(describe(&AskStage::Sending).0 <= far(0));
    }
}
