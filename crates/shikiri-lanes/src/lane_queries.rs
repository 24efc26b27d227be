//! Queries about lanes and their history.

use shikiri_model::ids::{InquiryId, TenantId};
use shikiri_model::lane::{CallerIdentity, Lane, LaneMatch, ProviderQuestion, match_lane};
use shikiri_model::record::{
    Document, ExpectedVersion, RecordChange, RecordPosition, RecordQuery, StoredDocument,
};
use shikiri_runtime::{AppError, transact};
use shikiri_store::{Commit, CommitError, StoreExt};

use super::lane_error::LaneError;
use super::page_driver::ProviderInfo;
use crate::Lanes;

/// Filters of the history.
#[derive(Clone, Debug, Default)]
pub struct HistoryQuery {
    /// Only of this declared agent or client name.
    pub agent: Option<String>,
    pub provider: Option<String>,
    pub after: Option<RecordPosition>,
    pub limit: u32,
}

/// What a caller learns about itself.
#[derive(Clone, Debug)]
pub struct LaneInfo {
    /// None if it has not asked anything yet, or its lane has ended.
    pub lane: Option<StoredDocument<Lane>>,
    pub providers: Vec<ProviderInfo>,
}

impl Lanes {
    /// Lanes of a tenant, oldest first.
    pub async fn list_lanes(
        &self,
        tenant: &TenantId,
        ended: bool,
        after: Option<RecordPosition>,
        limit: u32,
    ) -> Result<(Vec<StoredDocument<Lane>>, Option<RecordPosition>), AppError> {
        self.runtime.tenant(tenant).await?;
        self.runtime
            .list_records(RecordQuery {
                state: (!ended).then(|| "open".to_owned()),
                after,
                limit,
                ..RecordQuery::of::<Lane>(tenant)
            })
            .await
    }

    /// One lane, by its name or its id.
    pub async fn lane(
        &self,
        tenant: &TenantId,
        name: &str,
    ) -> Result<StoredDocument<Lane>, AppError> {
        self.runtime.tenant(tenant).await?;
        if let Some(found) = self.lane_named(tenant, name).await? {
            return Ok(found);
        }
        let found = self.runtime.store().load::<Lane>(tenant, name).await?;
        found.ok_or_else(|| AppError::not_found("lane", name))
    }

    /// The lane of a caller. It is not created for this, but its idle time starts again.
    pub async fn lane_info(
        &self,
        tenant: &TenantId,
        who: &CallerIdentity,
    ) -> Result<LaneInfo, AppError> {
        let providers = self.lanes.pages.providers();
        let lane = self.touch_lane(tenant, who).await?;
        Ok(LaneInfo { lane, providers })
    }

    /// Opens the lane of a caller if it is not open yet.
    pub async fn open_lane(
        &self,
        tenant: &TenantId,
        who: &CallerIdentity,
    ) -> Result<StoredDocument<Lane>, AppError> {
        self.find_or_open_lane(tenant, who).await.map_err(plain)
    }

    /// Records that a lane is in use; None if the caller has no open lane.
    pub async fn touch_lane(
        &self,
        tenant: &TenantId,
        who: &CallerIdentity,
    ) -> Result<Option<StoredDocument<Lane>>, AppError> {
        transact(Lane::KIND, &who.lane_name(), || async {
            let found = self.lane_named(tenant, &who.lane_name()).await?;
            let is_own = |stored: &StoredDocument<Lane>| {
                match_lane(&stored.value, who, false) == LaneMatch::Own
            };
            let Some(mut stored) = found.filter(|s| is_own(s) && !s.value.is_ended) else {
                return Ok(Some(None));
            };
            let now = self.runtime.store().now().await?;
            stored.value.touch(self.options().limits.ttl(), now);
            let put = RecordChange::put(&stored.value, ExpectedVersion::Version(stored.version))?;
            match self.runtime.store().commit(Commit::new().record(put)).await {
                Ok(_) => {
                    stored.version += 1;
                    Ok(Some(Some(stored)))
                }
                Err(CommitError::Conflict(_)) => Ok(None),
                Err(other) => Err(other.into()),
            }
        })
        .await
    }

    /// Ends the expired lanes now, and returns how many.
    pub async fn clean_lanes(&self) -> Result<usize, AppError> {
        self.sweep_lanes().await.map(|(ended, _)| ended).map_err(plain)
    }

    /// The questions, newest first.
    pub async fn history(
        &self,
        tenant: &TenantId,
        query: HistoryQuery,
    ) -> Result<(Vec<StoredDocument<ProviderQuestion>>, Option<RecordPosition>), AppError> {
        self.runtime.tenant(tenant).await?;
        self.runtime
            .list_records(RecordQuery {
                parent: query.agent,
                owner: query.provider,
                after: query.after,
                newest_first: true,
                limit: query.limit,
                ..RecordQuery::of::<ProviderQuestion>(tenant)
            })
            .await
    }

    /// One question and its outcome.
    pub async fn inquiry(
        &self,
        tenant: &TenantId,
        id: &InquiryId,
    ) -> Result<StoredDocument<ProviderQuestion>, AppError> {
        let found = self.runtime.store().load::<ProviderQuestion>(tenant, id.as_str()).await?;
        found.ok_or_else(|| AppError::not_found("inquiry", id))
    }
}

fn plain(error: LaneError) -> AppError {
    match error {
        LaneError::App(error) => error,
        LaneError::Refused(refusal) => AppError::NotNow(refusal.message),
    }
}
