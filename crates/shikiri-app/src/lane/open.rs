//! Finding the lane of whoever calls: its own, one that it had in an earlier life, or a new one.

use std::collections::BTreeMap;
use std::time::Duration;

use shikiri_model::ids::{LaneId, TenantId};
use shikiri_model::lane::{Find, Identity, Lane, Roster, find, make_room};
use shikiri_model::lease::LeaseChange;
use shikiri_model::record::{Document, Expect, RecordChange, RecordQuery, Stored};
use shikiri_store::{Commit, CommitError, StoreExt, store};

use super::driver::LaneKey;
use super::refusal::{LaneCode, LaneError};
use crate::app::{App, busy, entropy, max_tries};
use crate::error::AppError;
use crate::failpoint;

/// Closing tabs is a courtesy: nobody waits for it any longer.
const CLOSING: Duration = Duration::from_secs(5);
/// A stale flight's lease is taken so long, that nobody else takes it while its lane ends.
const MOMENT: Duration = Duration::from_millis(1);

/// Tabs that are to be closed once what ended their lanes is committed.
pub(super) type Ended = Vec<(LaneKey, BTreeMap<String, String>)>;

/// One try.
enum Try {
    Have(Box<Stored<Lane>>),
    /// Somebody was faster.
    Again,
}

impl App {
    /// The caller's lane, opened for it if need be.
    pub(super) async fn own_lane(
        &self,
        tenant: &TenantId,
        who: &Identity,
    ) -> Result<Stored<Lane>, LaneError> {
        for _ in 0..max_tries() {
            if let Try::Have(lane) = self.try_own_lane(tenant, who).await? {
                return Ok(*lane);
            }
        }
        Err(busy(Lane::KIND, &who.lane_name()).into())
    }

    async fn try_own_lane(&self, tenant: &TenantId, who: &Identity) -> Result<Try, LaneError> {
        let (base, mut number) = (who.lane_name(), 1);
        let mut name = base.clone();
        while let Some(stored) = self.lane_named(tenant, &name).await? {
            let is_gone = self.is_gone(&stored.value).await?;
            match find(&stored.value, who, is_gone) {
                Find::Own if !stored.value.is_ended => return Ok(Try::Have(Box::new(stored))),
                Find::Own | Find::TakeOver => return self.reopen(stored, who, name).await,
                Find::Replace => {
                    self.remove_lane(&stored).await?;
                    return Ok(Try::Again);
                }
                Find::Taken => {
                    number += 1;
                    name = format!("{base}-{number}");
                }
            }
        }
        match self.kin(tenant, who).await? {
            Some(lane) if lane.value.was_of(who) && !lane.value.is_ended => {
                return Ok(Try::Have(Box::new(lane)));
            }
            Some(lane) => return self.reopen(lane, who, name).await,
            None => {}
        }
        let now = self.store.now().await?;
        let mut lane = Lane::open(LaneId::mint(now, entropy()?), tenant.clone(), who, name, now);
        lane.touch(self.options.lanes.limits.ttl(), now);
        self.put_open(lane, Expect::New, true).await
    }

    /// A lane of the same declared agent: the one that a successor has, for what an earlier life of
    /// the agent had begun; else of those that nobody has now the one that was used last.
    async fn kin(
        &self,
        tenant: &TenantId,
        who: &Identity,
    ) -> Result<Option<Stored<Lane>>, LaneError> {
        if !who.is_declared || who.subagent.is_some() {
            return Ok(None);
        }
        let mut before: Option<Stored<Lane>> = None;
        for lane in self.lanes_of(tenant, None, Some(&who.agent)).await? {
            if lane.value.was_of(who) {
                return Ok(Some(lane));
            }
            let is_gone = self.is_gone(&lane.value).await?;
            let is_later =
                before.as_ref().is_none_or(|b| b.value.last_access < lane.value.last_access);
            if is_later && find(&lane.value, who, is_gone) == Find::TakeOver {
                before = Some(lane);
            }
        }
        Ok(before)
    }

    async fn reopen(
        &self,
        stored: Stored<Lane>,
        who: &Identity,
        name: String,
    ) -> Result<Try, LaneError> {
        let now = self.store.now().await?;
        let (version, mut lane) = (stored.version, stored.value);
        let was_ended = lane.is_ended;
        lane.pass_to(who, name);
        lane.is_ended = false;
        lane.touch(self.options.lanes.limits.ttl(), now);
        self.put_open(lane, Expect::Version(version), was_ended).await
    }

    /// Writes an open lane. One that was not open before needs room.
    async fn put_open(&self, lane: Lane, expect: Expect, is_new: bool) -> Result<Try, LaneError> {
        let mut commit = Commit::new().record(RecordChange::put(&lane, expect)?);
        let mut ended = Ended::new();
        if is_new {
            commit = self.with_room(commit, &lane.tenant, &mut ended).await?;
        }
        failpoint::hit("lane.before_open");
        match self.store.commit(commit).await {
            Ok(committed) => {
                self.close_tabs(ended).await;
                let version = committed.versions.first().copied().unwrap_or(1);
                let at = committed.at;
                let stored =
                    Stored { version, attempts: 0, created_at: at, updated_at: at, value: lane };
                Ok(Try::Have(Box::new(stored)))
            }
            Err(
                CommitError::Conflict(_)
                | CommitError::Exists(_)
                | CommitError::NotUnique(_)
                | CommitError::Lease(_),
            ) => Ok(Try::Again),
            Err(other) => Err(other.into()),
        }
    }

    /// Ends as many idle lanes as must go for one more.
    async fn with_room(
        &self,
        mut commit: Commit,
        tenant: &TenantId,
        ended: &mut Ended,
    ) -> Result<Commit, LaneError> {
        let (roster, expect) = match self.store.load::<Roster>(tenant, Roster::ID).await? {
            Some(stored) => {
                let opened = stored.value.opened + 1;
                (Roster { opened, ..stored.value }, Expect::Version(stored.version))
            }
            None => (Roster { tenant: tenant.clone(), opened: 1 }, Expect::New),
        };
        commit = commit.record(RecordChange::put(&roster, expect)?);
        let open = self.lanes_of(tenant, Some("open"), None).await?;
        let mut at_work = Vec::with_capacity(open.len());
        for lane in &open {
            at_work.push(self.is_at_work(&lane.value).await?);
        }
        let lanes: Vec<Lane> = open.iter().map(|stored| stored.value.clone()).collect();
        let max = self.options.lanes.limits.max_lanes;
        let is_busy = |lane: &Lane| {
            let at = lanes.iter().position(|other| other.id == lane.id);
            at.and_then(|at| at_work.get(at)).copied().unwrap_or(true)
        };
        let goes = make_room(&lanes, max, is_busy).map_err(|_| {
            LaneCode::LanesFull.because(format!(
                "there are {max} lanes and every one is at work: ask again when one is done, or \
                 allow more with SHIKIRI_MAX_AGENTS"
            ))
        })?;
        for stored in goes.into_iter().filter_map(|at| open.get(at)) {
            commit = with_end(commit, stored, ended)?;
        }
        Ok(commit)
    }

    /// Whether a question is being put in it: one whose lease somebody holds.
    pub(super) async fn is_at_work(&self, lane: &Lane) -> Result<bool, LaneError> {
        for provider in lane.in_flight.keys() {
            let lease = self.store.lease(&lane.lease(provider)).await?;
            if lease.is_some_and(|(_, lapsed)| !lapsed) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether whoever had the lane does not live any more. A connection and a token never die: who
    /// shows them again is the same.
    pub(super) async fn is_gone(&self, lane: &Lane) -> Result<bool, LaneError> {
        if lane.holder.is_none() {
            return Ok(true);
        }
        match &lane.node {
            Some(node) => Ok(self.is_node_gone(node).await?),
            None => Ok(false),
        }
    }

    pub(super) async fn lane_named(
        &self,
        tenant: &TenantId,
        name: &str,
    ) -> Result<Option<Stored<Lane>>, AppError> {
        let found = self.store.find(Lane::KIND, tenant, name).await?;
        Ok(found.as_ref().map(store::decode).transpose()?)
    }

    /// Lanes of a tenant, in one state, of one agent, or all.
    pub(super) async fn lanes_of(
        &self,
        tenant: &TenantId,
        state: Option<&str>,
        agent: Option<&str>,
    ) -> Result<Vec<Stored<Lane>>, AppError> {
        let mut query = RecordQuery {
            state: state.map(str::to_owned),
            parent: agent.map(str::to_owned),
            limit: 500,
            ..RecordQuery::of::<Lane>(tenant)
        };
        let mut all = Vec::new();
        loop {
            let (page, next) = self.list_records::<Lane>(query.clone()).await?;
            all.extend(page);
            query.after = next;
            if query.after.is_none() {
                return Ok(all);
            }
        }
    }

    /// Forgets a lane with everything that is known of it. History stays.
    pub(super) async fn remove_lane(&self, stored: &Stored<Lane>) -> Result<(), AppError> {
        let lane = &stored.value;
        let delete = RecordChange::Delete { key: lane.key(), version: stored.version };
        match self.store.commit(Commit::new().record(delete)).await {
            Ok(_) => {}
            // It is somebody's again.
            Err(CommitError::Conflict(_)) => return Ok(()),
            Err(other) => return Err(other.into()),
        }
        self.close_tabs(vec![(key_of(lane), lane.tabs())]).await;
        for provider in lane.threads.keys().chain(lane.in_flight.keys()) {
            if let Some((lease, true)) = self.store.lease(&lane.lease(provider)).await? {
                self.store.forget_lease(&lease.guard()).await?;
            }
        }
        Ok(())
    }

    /// After the commit that ended their lanes.
    pub(super) async fn close_tabs(&self, ended: Ended) {
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

/// Ends a lane that has nothing under way. A flight that nobody carries any more is taken with it:
/// if somebody does after all, nothing of the commit happens.
pub(super) fn with_end(
    mut commit: Commit,
    stored: &Stored<Lane>,
    ended: &mut Ended,
) -> Result<Commit, LaneError> {
    let mut lane = stored.value.clone();
    for provider in lane.in_flight.keys() {
        let (name, owner) = (lane.lease(provider), "end".to_owned());
        commit = commit.lease(LeaseChange::Acquire { name, owner, ttl: MOMENT });
    }
    ended.push((key_of(&lane), lane.end()));
    Ok(commit.record(RecordChange::put(&lane, Expect::Version(stored.version))?))
}
