//! What can be asked about lanes and of what was asked in them.

use shikiri_model::ids::{InquiryId, TenantId};
use shikiri_model::lane::{Find, Identity, Inquiry, Lane, find};
use shikiri_model::record::{Document, Expect, Position, RecordChange, RecordQuery, Stored};
use shikiri_store::{Commit, CommitError, StoreExt};

use super::driver::Provider;
use super::refusal::LaneError;
use crate::app::{App, busy, max_tries};
use crate::error::AppError;

/// Which part of history.
#[derive(Clone, Debug, Default)]
pub struct HistoryQuery {
    /// Of one declared agent or client name.
    pub agent: Option<String>,
    pub provider: Option<String>,
    pub after: Option<Position>,
    pub limit: u32,
}

/// What a caller is told of itself.
#[derive(Clone, Debug)]
pub struct LaneInfo {
    /// None while it has not asked anything, or what it had has ended.
    pub lane: Option<Stored<Lane>>,
    pub providers: Vec<Provider>,
}

impl App {
    /// Lanes of a tenant, the oldest first.
    pub async fn list_lanes(
        &self,
        tenant: &TenantId,
        ended: bool,
        after: Option<Position>,
        limit: u32,
    ) -> Result<(Vec<Stored<Lane>>, Option<Position>), AppError> {
        self.tenant(tenant).await?;
        self.list_records(RecordQuery {
            state: (!ended).then(|| "open".to_owned()),
            after,
            limit,
            ..RecordQuery::of::<Lane>(tenant)
        })
        .await
    }

    /// One lane, by its name or its id.
    pub async fn lane(&self, tenant: &TenantId, name: &str) -> Result<Stored<Lane>, AppError> {
        self.tenant(tenant).await?;
        if let Some(found) = self.lane_named(tenant, name).await? {
            return Ok(found);
        }
        let found = self.store.load::<Lane>(tenant, name).await?;
        found.ok_or_else(|| AppError::not_found("lane", name))
    }

    /// The lane of a caller, which is not made for this, but whose time begins anew.
    pub async fn lane_info(&self, tenant: &TenantId, who: &Identity) -> Result<LaneInfo, AppError> {
        let providers = self.lanes.pages.providers();
        let lane = self.touch_lane(tenant, who).await?;
        Ok(LaneInfo { lane, providers })
    }

    /// Opens the lane of a caller, if it is not open yet.
    pub async fn open_lane(
        &self,
        tenant: &TenantId,
        who: &Identity,
    ) -> Result<Stored<Lane>, AppError> {
        self.own_lane(tenant, who).await.map_err(plain)
    }

    /// Notes that a lane is in use; None if the caller has none that is open.
    pub async fn touch_lane(
        &self,
        tenant: &TenantId,
        who: &Identity,
    ) -> Result<Option<Stored<Lane>>, AppError> {
        for _ in 0..max_tries() {
            let found = self.lane_named(tenant, &who.lane_name()).await?;
            let is_own = |stored: &Stored<Lane>| find(&stored.value, who, false) == Find::Own;
            let Some(mut stored) = found.filter(|s| is_own(s) && !s.value.is_ended) else {
                return Ok(None);
            };
            let now = self.store.now().await?;
            stored.value.touch(self.options.lanes.limits.ttl(), now);
            let put = RecordChange::put(&stored.value, Expect::Version(stored.version))?;
            match self.store.commit(Commit::new().record(put)).await {
                Ok(_) => {
                    stored.version += 1;
                    return Ok(Some(stored));
                }
                Err(CommitError::Conflict(_)) => {}
                Err(other) => return Err(other.into()),
            }
        }
        Err(busy(Lane::KIND, &who.lane_name()))
    }

    /// Ends the lanes whose time is over, now; returns how many.
    pub async fn clean_lanes(&self) -> Result<usize, AppError> {
        self.sweep_lanes().await.map(|(ended, _)| ended).map_err(plain)
    }

    /// What was asked, the newest first.
    pub async fn history(
        &self,
        tenant: &TenantId,
        query: HistoryQuery,
    ) -> Result<(Vec<Stored<Inquiry>>, Option<Position>), AppError> {
        self.tenant(tenant).await?;
        self.list_records(RecordQuery {
            parent: query.agent,
            owner: query.provider,
            after: query.after,
            newest_first: true,
            limit: query.limit,
            ..RecordQuery::of::<Inquiry>(tenant)
        })
        .await
    }

    /// One question and what came of it.
    pub async fn inquiry(
        &self,
        tenant: &TenantId,
        id: &InquiryId,
    ) -> Result<Stored<Inquiry>, AppError> {
        let found = self.store.load::<Inquiry>(tenant, id.as_str()).await?;
        found.ok_or_else(|| AppError::not_found("inquiry", id))
    }
}

fn plain(error: LaneError) -> AppError {
    match error {
        LaneError::App(error) => error,
        LaneError::Refused(refusal) => AppError::NotNow(refusal.message),
    }
}
