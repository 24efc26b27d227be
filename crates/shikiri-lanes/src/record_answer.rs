//! Records the outcome of a question before its caller is told.

use shikiri_model::lane::{Lane, ProviderQuestion, SendStatus};
use shikiri_model::lease::{LeaseChange, LeaseGuard};
use shikiri_model::record::{Document, ExpectedVersion, RecordChange, StoredDocument};
use shikiri_runtime::{busy, max_tries};
use shikiri_store::{Commit, CommitError, StoreExt};

use super::ask_progress::QuestionRecord;
use super::lane_error::{LaneError, question_error};
use super::page_driver::{AskError, PageAnswer};
use crate::Lanes;

/// The longest answer, in characters. A longer one means that the page went wrong.
const MAX_ANSWER: usize = 2_000_000;

impl Lanes {
    /// Records the outcome of a question, and releases its lane and slot.
    pub(super) async fn finish(
        &self,
        lane: StoredDocument<Lane>,
        kept: QuestionRecord,
        guards: &[LeaseGuard; 2],
        outcome: Result<PageAnswer, AskError>,
        was_gone: bool,
    ) -> Result<ProviderQuestion, LaneError> {
        let QuestionRecord { mut question, mut version } = kept;
        let now = self.runtime.store().now().await?;
        let (url, tab) = match &outcome {
            Ok(asked) => (asked.url.clone(), asked.tab.clone()),
            Err(error) => (error.url.clone(), error.tab.clone()),
        };
        if was_gone {
            question.url = None;
        }
        match outcome {
            Ok(asked) => {
                question.mark_answered(clean(&asked.answer), url.as_deref(), asked.timings, now)
            }
            Err(error) => {
                let failure = question_error(error.cause.code(), error.cause.to_string());
                question.mark_failed(failure, error.sent, url.as_deref(), now);
            }
        }
        let (tenant, provider) = (lane.value.tenant.clone(), question.provider.clone());
        for _ in 0..max_tries() {
            let mut commit = Commit::new()
                .record(RecordChange::put(&question, ExpectedVersion::Version(version))?);
            let found = self.runtime.store().load::<Lane>(&tenant, lane.value.id.as_str()).await?;
            let is_ours = |lane: &Lane| lane.in_flight.get(&provider) == Some(&question.id);
            // A lane with another question in flight is left alone.
            if let Some(mut stored) = found.filter(|stored| is_ours(&stored.value)) {
                if was_gone {
                    stored.value.drop_url(&provider);
                }
                stored.value.finish_question(&provider, url.as_deref(), tab.as_deref());
                stored.value.touch(self.options().limits.ttl(), now);
                let put =
                    RecordChange::put(&stored.value, ExpectedVersion::Version(stored.version))?;
                commit = commit.record(put);
            }
            for guard in guards {
                commit = commit.lease(LeaseChange::Release { guard: guard.clone() });
            }
            match self.runtime.store().commit(commit).await {
                Ok(_) => return Ok(question),
                Err(CommitError::Conflict(key)) if key.kind == ProviderQuestion::KIND => {
                    let stored = self.inquiry(&tenant, &question.id).await?;
                    if stored.value.is_over() {
                        // Another process has taken the run over and has given this attempt up.
                        return Ok(stored.value);
                    }
                    // The question was given up while the record of sending it was being written.
                    version = stored.version;
                    if question.sent == SendStatus::No {
                        question.sent = stored.value.sent;
                    }
                }
                Err(CommitError::Conflict(_)) => {}
                Err(CommitError::Lease(_)) => return self.finish_late(question, version).await,
                Err(other) => return Err(other.into()),
            }
        }
        Err(busy(ProviderQuestion::KIND, question.id.as_str()).into())
    }

    /// The leases have expired: the answer is kept all the same, and the lane is left alone.
    async fn finish_late(
        &self,
        question: ProviderQuestion,
        version: u64,
    ) -> Result<ProviderQuestion, LaneError> {
        let put = RecordChange::put(&question, ExpectedVersion::Version(version))?;
        match self.runtime.store().commit(Commit::new().record(put)).await {
            Ok(_) => Ok(question),
            // Another attempt is at work on it.
            Err(CommitError::Conflict(_)) => {
                Ok(self.inquiry(&question.tenant, &question.id).await?.value)
            }
            Err(other) => Err(other.into()),
        }
    }
}

/// The text of a page, without control characters.
fn clean(answer: &str) -> String {
    let mut clean = shikiri_model::host::sanitize_text(answer);
    if let Some((at, _)) = clean.char_indices().nth(MAX_ANSWER) {
        clean.truncate(at);
    }
    clean
}
