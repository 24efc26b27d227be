//! Finds the lane of a caller: its own, a predecessor's, or a new one.

use std::collections::BTreeMap;
use std::time::Duration;

use shikiri_model::ids::{LaneId, TenantId};
use shikiri_model::lane::{
    CallerIdentity, Lane, LaneCounter, LaneMatch, choose_evictions, match_lane,
};
use shikiri_model::lease::LeaseChange;
use shikiri_model::record::{Document, ExpectedVersion, RecordChange, RecordQuery, StoredDocument};
use shikiri_runtime::{AppError, entropy, failpoint, transact};
use shikiri_store::{Commit, CommitError, StoreExt, store};

use super::lane_error::{LaneError, LaneErrorCode};
use super::page_driver::LaneKey;
use crate::Lanes;

/// How long closing tabs may take. It is optional clean-up.
const CLOSING: Duration = Duration::from_secs(5);
/// A stale question's lease is taken this long, so that no other process takes it while its lane
/// ends.
const MOMENT: Duration = Duration::from_millis(1);

/// Tabs to close once the end of their lanes is committed.
pub(super) type TabsToClose = Vec<(LaneKey, BTreeMap<String, String>)>;

impl Lanes {
    /// The caller's lane, opened if necessary.
    pub(super) async fn find_or_open_lane(
        &self,
        tenant: &TenantId,
        who: &CallerIdentity,
    ) -> Result<StoredDocument<Lane>, LaneError> {
        transact(Lane::KIND, &who.lane_name(), || self.try_find_or_open_lane(tenant, who)).await
    }

    async fn try_find_or_open_lane(
        &self,
        tenant: &TenantId,
        who: &CallerIdentity,
    ) -> Result<Option<StoredDocument<Lane>>, LaneError> {
        let (base, mut number) = (who.lane_name(), 1);
        let mut name = base.clone();
        while let Some(stored) = self.lane_named(tenant, &name).await? {
            let is_gone = self.is_gone(&stored.value).await?;
            match match_lane(&stored.value, who, is_gone) {
                LaneMatch::Own if !stored.value.is_ended => {
                    return Ok(Some(stored));
                }
                LaneMatch::Own | LaneMatch::TakeOver => {
                    return self.reopen(stored, who, name).await;
                }
                LaneMatch::Replace => {
                    self.remove_lane(&stored).await?;
                    return Ok(None);
                }
                LaneMatch::Taken => {
                    number += 1;
                    name = format!("{base}-{number}");
                }
            }
        }
        match self.find_predecessor(tenant, who).await? {
            Some(lane) if lane.value.was_held_by(who) && !lane.value.is_ended => {
                return Ok(Some(lane));
            }
            Some(lane) => return self.reopen(lane, who, name).await,
            None => {}
        }
        let now = self.runtime.store().now().await?;
        let mut lane = Lane::open(LaneId::mint(now, entropy()?), tenant.clone(), who, name, now);
        lane.touch(self.options().limits.ttl(), now);
        self.put_open(lane, ExpectedVersion::New, true).await
    }

    /// A lane of the same declared agent. First choice is a lane that this caller held before, even
    /// if a successor holds it now. Otherwise it is the most recently used lane without a holder.
    async fn find_predecessor(
        &self,
        tenant: &TenantId,
        who: &CallerIdentity,
    ) -> Result<Option<StoredDocument<Lane>>, LaneError> {
        if !who.is_declared || who.subagent.is_some() {
            return Ok(None);
        }
        let mut before: Option<StoredDocument<Lane>> = None;
        for lane in self.lanes_of(tenant, None, Some(&who.agent)).await? {
            if lane.value.was_held_by(who) {
                return Ok(Some(lane));
            }
            let is_gone = self.is_gone(&lane.value).await?;
            let is_later =
                before.as_ref().is_none_or(|b| b.value.last_access < lane.value.last_access);
            if is_later && match_lane(&lane.value, who, is_gone) == LaneMatch::TakeOver {
                before = Some(lane);
            }
        }
        Ok(before)
    }

    async fn reopen(
        &self,
        stored: StoredDocument<Lane>,
        who: &CallerIdentity,
        name: String,
    ) -> Result<Option<StoredDocument<Lane>>, LaneError> {
        let now = self.runtime.store().now().await?;
        let (version, mut lane) = (stored.version, stored.value);
        let was_ended = lane.is_ended;
        lane.transfer_to(who, name);
        lane.is_ended = false;
        lane.touch(self.options().limits.ttl(), now);
        self.put_open(lane, ExpectedVersion::Version(version), was_ended).await
    }

    /// Writes an open lane. One that was not open before needs room.
    async fn put_open(
        &self,
        lane: Lane,
        expect: ExpectedVersion,
        is_new: bool,
    ) -> Result<Option<StoredDocument<Lane>>, LaneError> {
        let mut commit = Commit::new().record(RecordChange::put(&lane, expect)?);
        let mut ended = TabsToClose::new();
        if is_new {
            commit = self.evict_idle_lanes(commit, &lane.tenant, &mut ended).await?;
        }
        failpoint::hit("lane.before_open");
        match self.runtime.store().commit(commit).await {
            Ok(committed) => {
                self.close_tabs(ended).await;
                let version = committed.versions.first().copied().unwrap_or(1);
                let at = committed.at;
                let stored = StoredDocument {
                    version,
                    attempts: 0,
                    created_at: at,
                    updated_at: at,
                    value: lane,
                };
                Ok(Some(stored))
            }
            Err(
                CommitError::Conflict(_)
                | CommitError::Exists(_)
                | CommitError::NotUnique(_)
                | CommitError::Lease(_),
            ) => Ok(None),
            Err(other) => Err(other.into()),
        }
    }

    /// Ends as many idle lanes as needed to make room for one more.
    async fn evict_idle_lanes(
        &self,
        mut commit: Commit,
        tenant: &TenantId,
        ended: &mut TabsToClose,
    ) -> Result<Commit, LaneError> {
        let (roster, expect) =
            match self.runtime.store().load::<LaneCounter>(tenant, LaneCounter::ID).await? {
                Some(stored) => {
                    let opened = stored.value.opened + 1;
                    (
                        LaneCounter { opened, ..stored.value },
                        ExpectedVersion::Version(stored.version),
                    )
                }
                None => (LaneCounter { tenant: tenant.clone(), opened: 1 }, ExpectedVersion::New),
            };
        commit = commit.record(RecordChange::put(&roster, expect)?);
        let open = self.lanes_of(tenant, Some("open"), None).await?;
        let mut at_work = Vec::with_capacity(open.len());
        for lane in &open {
            at_work.push(self.has_question_in_flight(&lane.value).await?);
        }
        let lanes: Vec<Lane> = open.iter().map(|stored| stored.value.clone()).collect();
        let max = self.options().limits.max_lanes;
        let is_busy = |lane: &Lane| {
            let at = lanes.iter().position(|other| other.id == lane.id);
            at.and_then(|at| at_work.get(at)).copied().unwrap_or(true)
        };
        let goes = choose_evictions(&lanes, max, is_busy).map_err(|_| {
            LaneErrorCode::LanesFull.because(format!(
                "there are {max} lanes and every one is at work: ask again when one is done, or \
                 allow more with SHIKIRI_MAX_AGENTS"
            ))
        })?;
        for stored in goes.into_iter().filter_map(|at| open.get(at)) {
            commit = with_end(commit, stored, ended)?;
        }
        Ok(commit)
    }

    /// Whether a question is in flight in the lane: one whose lease is held.
    pub(super) async fn has_question_in_flight(&self, lane: &Lane) -> Result<bool, LaneError> {
        for provider in lane.in_flight.keys() {
            let lease = self.runtime.store().lease(&lane.lease(provider)).await?;
            if lease.is_some_and(|(_, lapsed)| !lapsed) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether the lane's holder is dead. A connection and a token never die: a caller that shows
    /// them again is the same one.
    pub(super) async fn is_gone(&self, lane: &Lane) -> Result<bool, LaneError> {
        if lane.holder.is_none() {
            return Ok(true);
        }
        match &lane.node {
            Some(node) => Ok(self.runtime.is_node_gone(node).await?),
            None => Ok(false),
        }
    }

    pub(super) async fn lane_named(
        &self,
        tenant: &TenantId,
        name: &str,
    ) -> Result<Option<StoredDocument<Lane>>, AppError> {
        let found = self.runtime.store().find(Lane::KIND, tenant, name).await?;
        Ok(found.as_ref().map(store::decode).transpose()?)
    }

    /// Lanes of a tenant, optionally of one state or one agent.
    pub(super) async fn lanes_of(
        &self,
        tenant: &TenantId,
        state: Option<&str>,
        agent: Option<&str>,
    ) -> Result<Vec<StoredDocument<Lane>>, AppError> {
        let mut query = RecordQuery {
            state: state.map(str::to_owned),
            parent: agent.map(str::to_owned),
            limit: 500,
            ..RecordQuery::of::<Lane>(tenant)
        };
        let mut all = Vec::new();
        loop {
            let (page, next) = self.runtime.list_records::<Lane>(query.clone()).await?;
            all.extend(page);
            query.after = next;
            if query.after.is_none() {
                return Ok(all);
            }
        }
    }

    /// Deletes a lane with everything that belongs to it. History stays.
    pub(super) async fn remove_lane(&self, stored: &StoredDocument<Lane>) -> Result<(), AppError> {
        let lane = &stored.value;
        let delete = RecordChange::Delete { key: lane.key(), version: stored.version };
        match self.runtime.store().commit(Commit::new().record(delete)).await {
            Ok(_) => {}
            // The lane is in use again.
            Err(CommitError::Conflict(_)) => return Ok(()),
            Err(other) => return Err(other.into()),
        }
        self.close_tabs(vec![(key_of(lane), lane.tabs())]).await;
        for provider in lane.threads.keys().chain(lane.in_flight.keys()) {
            if let Some((lease, true)) = self.runtime.store().lease(&lane.lease(provider)).await? {
                self.runtime.store().forget_lease(&lease.guard()).await?;
            }
        }
        Ok(())
    }

    /// Closes the tabs of ended lanes, after the commit.
    pub(super) async fn close_tabs(&self, ended: TabsToClose) {
        for (lane, tabs) in ended {
            let closing = self.lanes.pages.close(&lane, &tabs);
            if tokio::time::timeout(CLOSING, closing).await.is_err() {
                tracing::warn!(lane = %lane, "its tabs could not be closed in time");
            }
        }
    }
}

pub(super) fn key_of(lane: &Lane) -> LaneKey {
    LaneKey { tenant: lane.tenant.clone(), lane: lane.name.clone() }
}

/// Ends a lane without a question in flight. The lease of an abandoned question is taken too: if a
/// process still holds it, the whole commit fails.
pub(super) fn with_end(
    mut commit: Commit,
    stored: &StoredDocument<Lane>,
    ended: &mut TabsToClose,
) -> Result<Commit, LaneError> {
    let mut lane = stored.value.clone();
    for provider in lane.in_flight.keys() {
        let (name, owner) = (lane.lease(provider), "end".to_owned());
        commit = commit.lease(LeaseChange::Acquire { name, owner, ttl: MOMENT });
    }
    ended.push((key_of(&lane), lane.end()));
    Ok(commit.record(RecordChange::put(&lane, ExpectedVersion::Version(stored.version))?))
}
