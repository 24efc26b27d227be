//! Stored calls.

use shikiri_model::event::NewEvent;
use shikiri_model::host::{CallEvent, HostCall, HostCallState};
use shikiri_model::ids::{HostCallId, TenantId};
use shikiri_model::record::{ExpectedVersion, RecordChange, RecordQuery, StoredDocument};
use shikiri_runtime::{AppError, Runtime, failpoint};
use shikiri_store::{Commit, CommitError, StoreExt, StreamAppend};

use super::Host;

/// The number of open calls that are listed, far above what is usual.
const MAX_OPEN: u32 = 1_000;

/// A tenant's open calls, which can be resumed, oldest first.
pub async fn open_calls(
    runtime: &Runtime,
    tenant: TenantId,
) -> Result<Vec<StoredDocument<HostCall>>, AppError> {
    let query = RecordQuery {
        state: Some(HostCallState::Open.as_str().to_owned()),
        limit: MAX_OPEN,
        ..RecordQuery::of::<HostCall>(&tenant)
    };
    let found = runtime.store().list(query).await?;
    Ok(found.iter().map(shikiri_store::store::decode).collect::<Result<_, _>>()?)
}

impl Host {
    pub(super) async fn add_call(
        &self,
        call: &HostCall,
    ) -> Result<StoredDocument<HostCall>, AppError> {
        let put = RecordChange::put(call, ExpectedVersion::New)?;
        self.runtime.store().commit(Commit::new().record(put)).await?;
        self.call(&call.id).await
    }

    /// One call, open or ended.
    pub async fn call(&self, id: &HostCallId) -> Result<StoredDocument<HostCall>, AppError> {
        let found = self.runtime.store().load(&self.tenant, id.as_str()).await?;
        found.ok_or_else(|| AppError::not_found("call", id))
    }

    /// Open calls, which can be resumed, oldest first.
    pub async fn open_calls(&self) -> Result<Vec<StoredDocument<HostCall>>, AppError> {
        open_calls(&self.runtime, self.tenant.clone()).await
    }

    /// Stores what happened. None if another process has taken over the call; nothing is stored
    /// then.
    pub(super) async fn persist_call_events(
        &self,
        stored: &StoredDocument<HostCall>,
        call_events: &[CallEvent],
    ) -> Result<Option<(StoredDocument<HostCall>, Vec<NewEvent>)>, AppError> {
        let mut next = stored.clone();
        let events: Vec<_> =
            call_events.iter().filter_map(|one| next.value.apply_event(one)).collect();
        let put = RecordChange::put(&next.value, ExpectedVersion::Version(stored.version))?;
        let mut commit = Commit::new().record(put);
        if !events.is_empty() {
            let stream = next.value.stream();
            let append = StreamAppend::new(self.tenant.clone(), stream, events.clone());
            commit.appends.push(StreamAppend { close: !next.value.is_open(), ..append });
        }
        failpoint::hit("host.before_keep");
        match self.runtime.store().commit(commit).await {
            Ok(committed) => {
                failpoint::hit("host.after_keep");
                if call_events.iter().any(|one| matches!(one, CallEvent::Asked(_))) {
                    failpoint::hit("host.after_question");
                }
                next.version += 1;
                next.updated_at = committed.at;
                Ok(Some((next, events)))
            }
            Err(CommitError::Conflict(_) | CommitError::Closed(_)) => Ok(None),
            Err(other) => Err(other.into()),
        }
    }

    /// Ends open calls as lost, so that they cannot be resumed.
    pub async fn forget(&self, calls: &[StoredDocument<HostCall>]) -> Result<usize, AppError> {
        let mut forgotten = 0;
        for call in calls {
            let reason = "its tokens were cleaned away".to_owned();
            let call_events = [CallEvent::Ended(shikiri_model::host::CallOutcome::Lost { reason })];
            forgotten += usize::from(self.persist_call_events(call, &call_events).await?.is_some());
        }
        Ok(forgotten)
    }
}
