//! Until a question may go out: it waits for a slot and for its lane, and takes both in the commit that
//! writes down that it is being put.

use shikiri_model::ids::InquiryId;
use shikiri_model::lane::{Inquiry, Lane};
use shikiri_model::lease::{Guard, LeaseChange, LeaseRefusal};
use shikiri_model::record::{Expect, RecordChange, Stored};
use shikiri_model::time::Timestamp;
use shikiri_store::{Commit, CommitError, StoreExt, Topic};

use super::ask::Order;
use super::queue::POLL;
use super::refusal::LaneError;
use super::witness::Kept;
use crate::app::App;
use crate::error::AppError;
use crate::failpoint;

/// A question that may go out.
pub(super) struct Begun {
    pub(super) lane: Stored<Lane>,
    pub(super) kept: Kept,
    /// On the lane's place and on the slot.
    pub(super) guards: [Guard; 2],
}

impl App {
    /// Waits for a slot and for the lane, and writes down that the question is being put.
    pub(super) async fn begin(
        &self,
        order: &Order<'_>,
        id: &InquiryId,
    ) -> Result<Begun, LaneError> {
        loop {
            let first = self.lanes.queue.first_in_line().await;
            let slot = loop {
                match self.free_slot().await? {
                    Some(slot) => break slot,
                    None => tokio::time::sleep(POLL).await,
                }
            };
            let lane = self.own_lane(order.tenant(), order.who).await?;
            match self.try_begin(order, id, lane, slot).await? {
                Ok(begun) => return Ok(*begun),
                Err(Some(held)) => {
                    // Who waits for its own lane is in nobody else's way.
                    drop(first);
                    self.until_freed(&held).await?;
                }
                Err(None) => {}
            }
        }
    }

    /// Gives back what an earlier attempt of this run holds. A run is carried by one process at a
    /// time, so whoever held it is dead, or will find that it may not send.
    pub(super) async fn free_what_died(
        &self,
        order: &Order<'_>,
        id: &InquiryId,
    ) -> Result<(), LaneError> {
        let mut names = self.slots();
        for lane in self.lanes_of(order.tenant(), Some("open"), Some(&order.who.agent)).await? {
            if lane.value.in_flight.get(order.provider) == Some(id) {
                names.push(lane.value.lease(order.provider));
            }
        }
        for name in names {
            match self.store.lease(&name).await? {
                Some((lease, false)) if lease.owner == id.as_str() => {
                    match self.store.release(&lease.guard()).await {
                        // It has run out meanwhile.
                        Ok(()) | Err(CommitError::Lease(_)) => {}
                        Err(other) => return Err(other.into()),
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// The lease that somebody else holds, if one is in the way.
    async fn try_begin(
        &self,
        order: &Order<'_>,
        id: &InquiryId,
        mut lane: Stored<Lane>,
        slot: String,
    ) -> Result<Result<Box<Begun>, Option<String>>, LaneError> {
        let options = &self.options.lanes;
        let now = self.store.now().await?;
        let known = self.store.load::<Inquiry>(order.tenant(), id.as_str()).await?;
        let (inquiry, expect, version) = match known {
            Some(stored) => {
                let Lane { id, name, .. } = &lane.value;
                let (lane, lane_name) = (id.clone(), name.clone());
                let inquiry = Inquiry { lane, lane_name, ..stored.value };
                (inquiry, Expect::Version(stored.version), stored.version + 1)
            }
            None => (self.new_inquiry(order, id, &lane.value, now), Expect::New, 1),
        };
        lane.value.touch(options.limits.ttl(), now);
        if lane.value.is_of(order.who) {
            lane.value.node.clone_from(&order.who.node);
        }
        lane.value.in_flight.insert(order.provider.to_owned(), id.clone());
        let owner = id.to_string();
        let take =
            |name: String| LeaseChange::Acquire { name, owner: owner.clone(), ttl: options.lease };
        let commit = Commit::new()
            .lease(take(lane.value.lease(order.provider)))
            .lease(take(slot.clone()))
            .record(RecordChange::put(&lane.value, Expect::Version(lane.version))?)
            .record(RecordChange::put(&inquiry, expect)?);
        failpoint::hit("lane.before_begin");
        let leases = match self.store.commit(commit).await {
            Ok(committed) => committed.leases,
            Err(CommitError::Lease(LeaseRefusal::Held { name, .. })) => {
                // Of slots there are others.
                return Ok(Err(Some(name).filter(|name| *name != slot)));
            }
            Err(CommitError::Conflict(_) | CommitError::Exists(_)) => return Ok(Err(None)),
            Err(other) => return Err(other.into()),
        };
        lane.version += 1;
        let [place, slot] = leases.as_slice() else {
            return Err(AppError::Broken("two leases were taken and not given".into()).into());
        };
        let guards = [place.guard(), slot.guard()];
        Ok(Ok(Box::new(Begun { lane, kept: Kept { inquiry, version }, guards })))
    }

    fn new_inquiry(
        &self,
        order: &Order<'_>,
        id: &InquiryId,
        lane: &Lane,
        now: Timestamp,
    ) -> Inquiry {
        let (run, provider, question) = (order.context.run_id(), order.provider, order.question);
        let mut inquiry = Inquiry::begin(id.clone(), lane, order.who, run, provider, question, now);
        inquiry.session = order.session.map(str::to_owned);
        inquiry.project.clone_from(&self.options.lanes.project);
        inquiry
    }

    /// Until the lease is given back, or may be worth another look.
    async fn until_freed(&self, lease: &str) -> Result<(), LaneError> {
        let mut freed = self.store.hub().subscribe(Topic::Lease(lease.to_owned()));
        let _ = tokio::time::timeout(POLL, freed.next()).await;
        while self.store.lease(lease).await?.is_some_and(|(_, lapsed)| !lapsed) {
            let _ = tokio::time::timeout(POLL, freed.next()).await;
        }
        Ok(())
    }
}
