//! Acquires what a question needs: it waits for a slot and for its lane. One commit takes both and
//! records that the question is in flight.

use shikiri_model::ids::InquiryId;
use shikiri_model::lane::{Lane, ProviderQuestion};
use shikiri_model::lease::{LeaseChange, LeaseGuard, LeaseRefusal};
use shikiri_model::record::{ExpectedVersion, RecordChange, StoredDocument};
use shikiri_model::time::Timestamp;
use shikiri_runtime::{AppError, failpoint};
use shikiri_store::{Commit, CommitError, HubTopic, StoreExt};

use super::ask_progress::QuestionRecord;
use super::ask_question::LaneAskRequest;
use super::lane_error::LaneError;
use super::question_queue::POLL;
use crate::Lanes;

/// A question that may be sent.
pub(super) struct LaneAcquisition {
    pub(super) lane: StoredDocument<Lane>,
    pub(super) kept: QuestionRecord,
    /// The leases on the lane and on the slot.
    pub(super) guards: [LeaseGuard; 2],
}

impl Lanes {
    /// Waits for a slot and for the lane, and records that the question is in flight.
    pub(super) async fn acquire_lane(
        &self,
        request: &LaneAskRequest<'_>,
        id: &InquiryId,
    ) -> Result<LaneAcquisition, LaneError> {
        loop {
            let first = self.lanes.queue.first_in_line().await;
            let slot = loop {
                match self.free_slot().await? {
                    Some(slot) => break slot,
                    None => tokio::time::sleep(POLL).await,
                }
            };
            let lane = self.find_or_open_lane(request.tenant(), request.who).await?;
            match self.try_acquire_lane(request, id, lane, slot).await? {
                Ok(begun) => return Ok(*begun),
                Err(Some(held)) => {
                    // A question that waits for its own lane does not hold up the others.
                    drop(first);
                    self.wait_until_freed(&held).await?;
                }
                Err(None) => {}
            }
        }
    }

    /// Releases the leases of an earlier attempt of this run. One process at a time executes a run,
    /// so the earlier holder is dead, or will find that it may not send.
    pub(super) async fn release_dead_attempt(
        &self,
        request: &LaneAskRequest<'_>,
        id: &InquiryId,
    ) -> Result<(), LaneError> {
        let mut names = self.slots();
        for lane in self.lanes_of(request.tenant(), Some("open"), Some(&request.who.agent)).await? {
            if lane.value.in_flight.get(request.provider) == Some(id) {
                names.push(lane.value.lease(request.provider));
            }
        }
        for name in names {
            match self.runtime.store().lease(&name).await? {
                Some((lease, false)) if lease.owner == id.as_str() => {
                    match self.runtime.store().release(&lease.guard()).await {
                        // The lease has expired meanwhile.
                        Ok(()) | Err(CommitError::Lease(_)) => {}
                        Err(other) => return Err(other.into()),
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Tries once. The inner error is the lease that is held by another question, if one is in the
    /// way.
    async fn try_acquire_lane(
        &self,
        request: &LaneAskRequest<'_>,
        id: &InquiryId,
        mut lane: StoredDocument<Lane>,
        slot: String,
    ) -> Result<Result<Box<LaneAcquisition>, Option<String>>, LaneError> {
        let options = self.options();
        let now = self.runtime.store().now().await?;
        let known =
            self.runtime.store().load::<ProviderQuestion>(request.tenant(), id.as_str()).await?;
        let (question, expect, version) = match known {
            Some(stored) => {
                let Lane { id, name, .. } = &lane.value;
                let (lane, lane_name) = (id.clone(), name.clone());
                let question = ProviderQuestion { lane, lane_name, ..stored.value };
                (question, ExpectedVersion::Version(stored.version), stored.version + 1)
            }
            None => (self.new_question(request, id, &lane.value, now), ExpectedVersion::New, 1),
        };
        lane.value.touch(options.limits.ttl(), now);
        if lane.value.is_held_by(request.who) {
            lane.value.node.clone_from(&request.who.node);
        }
        lane.value.in_flight.insert(request.provider.to_owned(), id.clone());
        let owner = id.to_string();
        let take =
            |name: String| LeaseChange::Acquire { name, owner: owner.clone(), ttl: options.lease };
        let commit = Commit::new()
            .lease(take(lane.value.lease(request.provider)))
            .lease(take(slot.clone()))
            .record(RecordChange::put(&lane.value, ExpectedVersion::Version(lane.version))?)
            .record(RecordChange::put(&question, expect)?);
        failpoint::hit("lane.before_begin");
        let leases = match self.runtime.store().commit(commit).await {
            Ok(committed) => committed.leases,
            Err(CommitError::Lease(LeaseRefusal::Held { name, .. })) => {
                // For a taken slot there are others.
                return Ok(Err(Some(name).filter(|name| *name != slot)));
            }
            Err(CommitError::Conflict(_) | CommitError::Exists(_)) => return Ok(Err(None)),
            Err(other) => return Err(other.into()),
        };
        lane.version += 1;
        let [lane_lease, slot_lease] = leases.as_slice() else {
            return Err(AppError::Broken("two leases were taken and not given".into()).into());
        };
        let guards = [lane_lease.guard(), slot_lease.guard()];
        Ok(Ok(Box::new(LaneAcquisition {
            lane,
            kept: QuestionRecord { question, version },
            guards,
        })))
    }

    fn new_question(
        &self,
        request: &LaneAskRequest<'_>,
        id: &InquiryId,
        lane: &Lane,
        now: Timestamp,
    ) -> ProviderQuestion {
        let (run, provider, text) = (request.context.run_id(), request.provider, request.question);
        let mut question =
            ProviderQuestion::begin(id.clone(), lane, request.who, run, provider, text, now);
        question.session = request.session.map(str::to_owned);
        question.project.clone_from(&self.options().project);
        question
    }

    /// Waits until the lease is released, or is worth another look.
    async fn wait_until_freed(&self, lease: &str) -> Result<(), LaneError> {
        let mut freed = self.runtime.store().hub().subscribe(HubTopic::Lease(lease.to_owned()));
        let _ = tokio::time::timeout(POLL, freed.next()).await;
        while self.runtime.store().lease(lease).await?.is_some_and(|(_, lapsed)| !lapsed) {
            let _ = tokio::time::timeout(POLL, freed.next()).await;
        }
        Ok(())
    }
}
