//! Putting a question: one at a time in a lane and provider, written down before it is sent, and
//! never sent twice.
//!
//! A run asks each provider once, under an id made of both. However often the run is carried, it
//! finds what an earlier attempt wrote: an end is an end, a question that was not sent is asked
//! again, and one that may have been sent is not.

use shikiri_model::ids::TenantId;
use shikiri_model::lane::{Identity, Inquiry, Sent};
use shikiri_model::lease::{Guard, LeaseChange};
use shikiri_model::record::{Expect, RecordChange, Stored};
use shikiri_store::{Commit, CommitError, StoreExt};
use tokio::sync::watch;
use tokio::time::Instant;

use super::begin::Begun;
use super::driver::{AskError, Cause, Question};
use super::open::key_of;
use super::refusal::{LaneCode, LaneError, told};
use super::witness::{Follower, Meter, show};
use crate::app::App;
use crate::failpoint;
use crate::run::Context;

/// What is asked, by whom.
pub(super) struct Order<'a> {
    pub(super) context: &'a Context,
    pub(super) who: &'a Identity,
    /// Under which the caller is logged in, as far as anything says so.
    pub(super) session: Option<&'a str>,
    pub(super) provider: &'a str,
    pub(super) question: &'a str,
    pub(super) meter: &'a Meter,
}

impl Order<'_> {
    pub(super) fn tenant(&self) -> &TenantId {
        self.context.tenant()
    }
}

impl App {
    /// Puts the question and returns what came of it, which is written down by then.
    pub(super) async fn ask_in_lane(&self, order: &Order<'_>) -> Result<Inquiry, LaneError> {
        let id = Inquiry::id_of(order.context.run_id(), order.provider)
            .ok_or_else(|| unknown_provider(order.provider))?;
        let mut known = self.store.load::<Inquiry>(order.tenant(), id.as_str()).await?;
        if let Some(stored) = known.take_if(|stored| stored.value.is_over()) {
            return Ok(stored.value);
        }
        if known.is_some() {
            self.free_what_died(order, &id).await?;
        }
        if let Some(stored) = known.take_if(|stored| stored.value.sent != Sent::No) {
            return self.lose_track_of(stored).await;
        }
        self.check_provider(order.provider)?;
        let options = &self.options.lanes;
        let _waiting = self.lanes.queue.enter(options.max_queued)?;
        let turn = async {
            let lane = order.who.lane_holder();
            let turn = self.lanes.queue.turn(&lane, order.provider).await;
            self.begin(order, &id).await.map(|begun| (turn, begun))
        };
        let begun = tokio::select! {
            begun = tokio::time::timeout(options.queue_wait, turn) => begun,
            () = order.context.cancelled() => {
                return Err(LaneCode::Cancelled.because("cancelled before it was asked").into());
            }
        };
        let (_turn, begun) = begun.map_err(|_| {
            let seconds = options.queue_wait.as_secs();
            LaneCode::QueueFull.because(format!(
                "the question waited {seconds} seconds and was not asked: too many are under way"
            ))
        })??;
        failpoint::hit("lane.after_begin");
        self.put(order, begun).await
    }

    fn check_provider(&self, provider: &str) -> Result<(), LaneError> {
        let providers = self.lanes.pages.providers();
        match providers.iter().find(|known| known.id == provider) {
            Some(known) if known.is_enabled => Ok(()),
            Some(known) => {
                let message = format!("{} is switched off", known.name);
                Err(LaneCode::UnknownProvider.because(message).into())
            }
            None => Err(unknown_provider(provider)),
        }
    }

    /// Has the driver put it, and writes down what came of it.
    async fn put(&self, order: &Order<'_>, begun: Begun) -> Result<Inquiry, LaneError> {
        let Begun { lane, kept, guards } = begun;
        let (stage, stages) = watch::channel(None);
        let follower = Follower {
            app: self,
            context: order.context,
            kept: tokio::sync::Mutex::new(kept),
            guards: guards.to_vec(),
            stage,
        };
        let mut question = Question {
            lane: key_of(&lane.value),
            provider: order.provider.to_owned(),
            text: order.question.to_owned(),
            url: lane.value.url(order.provider).map(str::to_owned),
            tab: lane.value.tab(order.provider).map(str::to_owned),
        };
        let mut was_gone = false;
        let outcome = loop {
            let asked = tokio::select! {
                asked = self.lanes.pages.ask(&question, &follower) => asked,
                () = self.keep(&guards) => Err(AskError::unsent(Cause::GivenUp)),
                never = show(order.context, order.provider, order.meter, stages.clone()) => match never {},
                () = order.context.cancelled() => Err(AskError::unsent(Cause::GivenUp)),
            };
            // The driver says what it saw; what was written down before counts in any case.
            let may_be_sent = follower.kept.lock().await.inquiry.sent == Sent::Unknown;
            match asked {
                Err(gone) if gone.cause == Cause::ThreadGone && !was_gone && !may_be_sent => {
                    was_gone = true;
                    question.url = None;
                }
                Err(mut error) if error.sent == Sent::No && error.cause == Cause::GivenUp => {
                    error.sent = if may_be_sent { Sent::Unknown } else { Sent::No };
                    break Err(error);
                }
                other => break other,
            }
        };
        let kept = follower.kept.into_inner();
        failpoint::hit("lane.before_finish");
        let finished = self.finish(lane, kept, &guards, outcome, was_gone).await;
        failpoint::hit("lane.after_finish");
        finished
    }

    /// Renews the leases until they are lost.
    async fn keep(&self, guards: &[Guard; 2]) {
        let ttl = self.options.lanes.lease;
        let mut renewed = Instant::now();
        loop {
            tokio::time::sleep(ttl / 3).await;
            let mut commit = Commit::new();
            for guard in guards {
                commit = commit.lease(LeaseChange::Renew { guard: guard.clone(), ttl });
            }
            match self.store.commit(commit).await {
                Ok(_) => renewed = Instant::now(),
                Err(CommitError::Store(_)) if renewed.elapsed() < ttl => {}
                Err(_) => return,
            }
        }
    }

    /// An earlier attempt died around sending: whether the provider has the question, nobody knows,
    /// and so it is not sent again.
    async fn lose_track_of(&self, stored: Stored<Inquiry>) -> Result<Inquiry, LaneError> {
        let Stored { version, value: mut inquiry, .. } = stored;
        let message = "the process that asked died while the question was under way: it may have \
                       been sent and was not sent again; look at the chat before asking anew";
        let now = self.store.now().await?;
        inquiry.failed(told(LaneCode::UnknownOutcome, message), Sent::Unknown, None, now);
        let put = RecordChange::put(&inquiry, Expect::Version(version))?;
        match self.store.commit(Commit::new().record(put)).await {
            Ok(_) => Ok(inquiry),
            Err(CommitError::Conflict(_)) => {
                Ok(self.inquiry(&inquiry.tenant, &inquiry.id).await?.value)
            }
            Err(other) => Err(other.into()),
        }
    }
}

fn unknown_provider(provider: &str) -> LaneError {
    let shown: String = provider.chars().take(40).collect();
    LaneCode::UnknownProvider.because(format!("there is no provider {shown:?}")).into()
}
