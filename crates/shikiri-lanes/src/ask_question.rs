//! Asks a question: one at a time in a lane and provider, recorded before it is sent, and never
//! sent twice.
//!
//! A run asks each provider once, under an id made of both. However often the run is executed, it
//! finds what an earlier attempt wrote. A finished question stays finished, one that was not sent
//! is asked again, and one that may have been sent is not.

use shikiri_model::ids::TenantId;
use shikiri_model::lane::{CallerIdentity, ProviderQuestion, SendStatus};
use shikiri_model::lease::LeaseGuard;
use shikiri_model::record::{ExpectedVersion, RecordChange, StoredDocument};
use shikiri_runtime::run::RunContext;
use shikiri_runtime::{failpoint, keep_leases};
use shikiri_store::{Commit, CommitError, StoreExt};
use tokio::sync::watch;

use super::acquire_lane::LaneAcquisition;
use super::ask_progress::{AskProgressMeter, AskProgressTracker, report_progress};
use super::lane_error::{LaneError, LaneErrorCode, question_error};
use super::open_lane::key_of;
use super::page_driver::{AskError, AskErrorCause, PageQuestion};
use crate::Lanes;

/// What is asked, and by whom.
pub(super) struct LaneAskRequest<'a> {
    pub(super) context: &'a RunContext,
    pub(super) who: &'a CallerIdentity,
    /// The caller's session, if it is known.
    pub(super) session: Option<&'a str>,
    pub(super) provider: &'a str,
    pub(super) question: &'a str,
    pub(super) meter: &'a AskProgressMeter,
}

impl LaneAskRequest<'_> {
    pub(super) fn tenant(&self) -> &TenantId {
        self.context.tenant()
    }
}

impl Lanes {
    /// Asks the question and returns its outcome, which is recorded by then.
    pub(super) async fn ask_in_lane(
        &self,
        request: &LaneAskRequest<'_>,
    ) -> Result<ProviderQuestion, LaneError> {
        let id = ProviderQuestion::id_of(request.context.run_id(), request.provider)
            .ok_or_else(|| unknown_provider(request.provider))?;
        let mut known =
            self.runtime.store().load::<ProviderQuestion>(request.tenant(), id.as_str()).await?;
        if let Some(stored) = known.take_if(|stored| stored.value.is_over()) {
            return Ok(stored.value);
        }
        if known.is_some() {
            self.release_dead_attempt(request, &id).await?;
        }
        if let Some(stored) = known.take_if(|stored| stored.value.sent != SendStatus::No) {
            return self.record_unknown_outcome(stored).await;
        }
        self.check_provider(request.provider)?;
        let options = self.options();
        let _waiting = self.lanes.queue.enter(options.max_queued)?;
        let turn = async {
            let lane = request.who.lane_holder();
            let turn = self.lanes.queue.turn(&lane, request.provider).await;
            self.acquire_lane(request, &id).await.map(|begun| (turn, begun))
        };
        let begun = tokio::select! {
            begun = tokio::time::timeout(options.queue_wait, turn) => begun,
            () = request.context.cancelled() => {
                return Err(LaneErrorCode::Cancelled.because("cancelled before it was asked").into());
            }
        };
        let (_turn, begun) = begun.map_err(|_| {
            let seconds = options.queue_wait.as_secs();
            LaneErrorCode::QueueFull.because(format!(
                "the question waited {seconds} seconds and was not asked: too many are under way"
            ))
        })??;
        failpoint::hit("lane.after_begin");
        self.ask_page(request, begun).await
    }

    fn check_provider(&self, provider: &str) -> Result<(), LaneError> {
        let providers = self.lanes.pages.providers();
        match providers.iter().find(|known| known.id == provider) {
            Some(known) if known.is_enabled => Ok(()),
            Some(known) => {
                let message = format!("{} is switched off", known.name);
                Err(LaneErrorCode::UnknownProvider.because(message).into())
            }
            None => Err(unknown_provider(provider)),
        }
    }

    /// Has the driver ask the question, and records the outcome.
    async fn ask_page(
        &self,
        request: &LaneAskRequest<'_>,
        begun: LaneAcquisition,
    ) -> Result<ProviderQuestion, LaneError> {
        let LaneAcquisition { lane, kept, guards } = begun;
        let (stage, stages) = watch::channel(None);
        let follower = AskProgressTracker {
            lanes: self,
            context: request.context,
            kept: tokio::sync::Mutex::new(kept),
            guards: guards.to_vec(),
            stage,
        };
        let mut question = PageQuestion {
            lane: key_of(&lane.value),
            provider: request.provider.to_owned(),
            text: request.question.to_owned(),
            url: lane.value.url(request.provider).map(str::to_owned),
            tab: lane.value.tab(request.provider).map(str::to_owned),
        };
        let mut was_gone = false;
        let outcome = loop {
            let asked = tokio::select! {
                asked = self.lanes.pages.ask(&question, &follower) => asked,
                () = self.renew_question_leases(&guards) => Err(AskError::unsent(AskErrorCause::GivenUp)),
                never = report_progress(request.context, request.provider, request.meter, stages.clone()) => match never {},
                () = request.context.cancelled() => Err(AskError::unsent(AskErrorCause::GivenUp)),
            };
            // The driver reports what it saw; the record made before sending counts in any case.
            let may_be_sent = follower.kept.lock().await.question.sent == SendStatus::Unknown;
            match asked {
                Err(gone)
                    if gone.cause == AskErrorCause::ThreadGone && !was_gone && !may_be_sent =>
                {
                    was_gone = true;
                    question.url = None;
                }
                Err(mut error)
                    if error.sent == SendStatus::No && error.cause == AskErrorCause::GivenUp =>
                {
                    error.sent = if may_be_sent { SendStatus::Unknown } else { SendStatus::No };
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
    async fn renew_question_leases(&self, guards: &[LeaseGuard; 2]) {
        let ttl = self.options().lease;
        keep_leases(self.runtime.store().as_ref(), guards, ttl, ttl).await;
    }

    /// An earlier attempt died around sending. Whether the provider has the question is unknown, so
    /// it is not sent again.
    async fn record_unknown_outcome(
        &self,
        stored: StoredDocument<ProviderQuestion>,
    ) -> Result<ProviderQuestion, LaneError> {
        let StoredDocument { version, value: mut question, .. } = stored;
        let message = "the process that asked died while the question was under way: it may have \
                       been sent and was not sent again; look at the chat before asking anew";
        let now = self.runtime.store().now().await?;
        question.mark_failed(
            question_error(LaneErrorCode::UnknownOutcome, message),
            SendStatus::Unknown,
            None,
            now,
        );
        let put = RecordChange::put(&question, ExpectedVersion::Version(version))?;
        match self.runtime.store().commit(Commit::new().record(put)).await {
            Ok(_) => Ok(question),
            Err(CommitError::Conflict(_)) => {
                Ok(self.inquiry(&question.tenant, &question.id).await?.value)
            }
            Err(other) => Err(other.into()),
        }
    }
}

fn unknown_provider(provider: &str) -> LaneError {
    let shown: String = provider.chars().take(40).collect();
    LaneErrorCode::UnknownProvider.because(format!("there is no provider {shown:?}")).into()
}
