//! Calls as they are kept.

use shikiri_model::event::NewEvent;
use shikiri_model::host::{CallState, HostCall, News};
use shikiri_model::ids::{HostCallId, TenantId};
use shikiri_model::record::{Expect, RecordChange, RecordQuery, Stored};
use shikiri_store::{Append, Commit, CommitError, StoreExt};

use super::Host;
use crate::app::App;
use crate::error::AppError;
use crate::failpoint;

/// More calls than anybody leaves open.
const MAX_OPEN: u32 = 1_000;

/// Calls of a tenant that can be taken up, the oldest first.
pub async fn open_calls(app: &App, tenant: TenantId) -> Result<Vec<Stored<HostCall>>, AppError> {
    let query = RecordQuery {
        state: Some(CallState::Open.as_str().to_owned()),
        limit: MAX_OPEN,
        ..RecordQuery::of::<HostCall>(&tenant)
    };
    let found = app.store.list(query).await?;
    Ok(found.iter().map(shikiri_store::store::decode).collect::<Result<_, _>>()?)
}

impl Host {
    pub(super) async fn add_call(&self, call: &HostCall) -> Result<Stored<HostCall>, AppError> {
        let put = RecordChange::put(call, Expect::New)?;
        self.app.store.commit(Commit::new().record(put)).await?;
        self.call(&call.id).await
    }

    /// One call, open or ended.
    pub async fn call(&self, id: &HostCallId) -> Result<Stored<HostCall>, AppError> {
        let found = self.app.store.load(&self.tenant, id.as_str()).await?;
        found.ok_or_else(|| AppError::not_found("call", id))
    }

    /// Calls that can be taken up, the oldest first.
    pub async fn open_calls(&self) -> Result<Vec<Stored<HostCall>>, AppError> {
        open_calls(&self.app, self.tenant.clone()).await
    }

    /// Keeps what happened. None if another process has taken the call up: nothing is kept then.
    pub(super) async fn keep(
        &self,
        stored: &Stored<HostCall>,
        news: &[News],
    ) -> Result<Option<(Stored<HostCall>, Vec<NewEvent>)>, AppError> {
        let mut next = stored.clone();
        let events: Vec<_> = news.iter().filter_map(|one| next.value.learn(one)).collect();
        let put = RecordChange::put(&next.value, Expect::Version(stored.version))?;
        let mut commit = Commit::new().record(put);
        if !events.is_empty() {
            let stream = next.value.stream();
            let append = Append::new(self.tenant.clone(), stream, events.clone());
            commit.appends.push(Append { close: !next.value.is_open(), ..append });
        }
        failpoint::hit("host.before_keep");
        match self.app.store.commit(commit).await {
            Ok(committed) => {
                failpoint::hit("host.after_keep");
                if news.iter().any(|one| matches!(one, News::Asked(_))) {
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

    /// Gives up calls that are open, so that nothing of them is kept that leads back.
    pub async fn forget(&self, calls: &[Stored<HostCall>]) -> Result<usize, AppError> {
        let mut forgotten = 0;
        for call in calls {
            let reason = "its tokens were cleaned away".to_owned();
            let news = [News::Ended(shikiri_model::host::Outcome::Lost { reason })];
            forgotten += usize::from(self.keep(call, &news).await?.is_some());
        }
        Ok(forgotten)
    }
}
