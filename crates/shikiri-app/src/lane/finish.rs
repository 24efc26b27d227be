//! What came of a question, written down before anybody is told.

use shikiri_model::lane::{Inquiry, Lane, Sent};
use shikiri_model::lease::{Guard, LeaseChange};
use shikiri_model::record::{Document, Expect, RecordChange, Stored};
use shikiri_store::{Commit, CommitError, StoreExt};

use super::driver::{AskError, Asked};
use super::refusal::{LaneError, told};
use super::witness::Kept;
use crate::app::{App, busy, max_tries};

/// Of an answer, in characters. More is not an answer but a page gone wrong.
const MAX_ANSWER: usize = 2_000_000;

impl App {
    /// Writes down what came of a question, and gives its lane and slot back.
    pub(super) async fn finish(
        &self,
        lane: Stored<Lane>,
        kept: Kept,
        guards: &[Guard; 2],
        outcome: Result<Asked, AskError>,
        was_gone: bool,
    ) -> Result<Inquiry, LaneError> {
        let Kept { mut inquiry, mut version } = kept;
        let now = self.store.now().await?;
        let (url, tab) = match &outcome {
            Ok(asked) => (asked.url.clone(), asked.tab.clone()),
            Err(error) => (error.url.clone(), error.tab.clone()),
        };
        if was_gone {
            inquiry.url = None;
        }
        match outcome {
            Ok(asked) => inquiry.answered(clean(&asked.answer), url.as_deref(), asked.timings, now),
            Err(error) => {
                let failure = told(error.cause.code(), error.cause.to_string());
                inquiry.failed(failure, error.sent, url.as_deref(), now);
            }
        }
        let (tenant, provider) = (lane.value.tenant.clone(), inquiry.provider.clone());
        for _ in 0..max_tries() {
            let mut commit =
                Commit::new().record(RecordChange::put(&inquiry, Expect::Version(version))?);
            let found = self.store.load::<Lane>(&tenant, lane.value.id.as_str()).await?;
            let is_ours = |lane: &Lane| lane.in_flight.get(&provider) == Some(&inquiry.id);
            // A lane that another question is put in by now is left alone.
            if let Some(mut stored) = found.filter(|stored| is_ours(&stored.value)) {
                if was_gone {
                    stored.value.drop_url(&provider);
                }
                stored.value.settle(&provider, url.as_deref(), tab.as_deref());
                stored.value.touch(self.options.lanes.limits.ttl(), now);
                let put = RecordChange::put(&stored.value, Expect::Version(stored.version))?;
                commit = commit.record(put);
            }
            for guard in guards {
                commit = commit.lease(LeaseChange::Release { guard: guard.clone() });
            }
            match self.store.commit(commit).await {
                Ok(_) => return Ok(inquiry),
                Err(CommitError::Conflict(key)) if key.kind == Inquiry::KIND => {
                    let stored = self.inquiry(&tenant, &inquiry.id).await?;
                    if stored.value.is_over() {
                        // Whoever took the run up has given this attempt up.
                        return Ok(stored.value);
                    }
                    // The question was given up while it was being written that it is sent.
                    version = stored.version;
                    if inquiry.sent == Sent::No {
                        inquiry.sent = stored.value.sent;
                    }
                }
                Err(CommitError::Conflict(_)) => {}
                Err(CommitError::Lease(_)) => return self.finish_late(inquiry, version).await,
                Err(other) => return Err(other.into()),
            }
        }
        Err(busy(Inquiry::KIND, inquiry.id.as_str()).into())
    }

    /// The leases ran out: what was answered is kept all the same, and the lane left alone.
    async fn finish_late(&self, inquiry: Inquiry, version: u64) -> Result<Inquiry, LaneError> {
        let put = RecordChange::put(&inquiry, Expect::Version(version))?;
        match self.store.commit(Commit::new().record(put)).await {
            Ok(_) => Ok(inquiry),
            // Another attempt is at it.
            Err(CommitError::Conflict(_)) => {
                Ok(self.inquiry(&inquiry.tenant, &inquiry.id).await?.value)
            }
            Err(other) => Err(other.into()),
        }
    }
}

/// Text of a page, without what steers a terminal or hides itself.
fn clean(answer: &str) -> String {
    let mut clean = shikiri_model::host::clean(answer);
    if let Some((at, _)) = clean.char_indices().nth(MAX_ANSWER) {
        clean.truncate(at);
    }
    clean
}
