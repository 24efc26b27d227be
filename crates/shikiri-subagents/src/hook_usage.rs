//! What sessions of Claude Code and their subagents spent. A transcript that was not complete when
//! a hook read it is read again here.

use std::collections::BTreeMap;
use std::sync::Arc;

use shikiri_model::execution::{Cost, PriceList, TokenUsage};
use shikiri_model::hook::{
    EvidenceRequest, HookEvidence, HookInput, HookSession, HookSessionQuery, HookUsageUpdate,
    SubagentQuery, SubagentRecord, TranscriptUsage, UsageRequest,
};
use shikiri_model::ids::TenantId;
use shikiri_model::time::Timestamp;
use shikiri_runtime::AppError;

use crate::hook_reports::{SubagentSpending, SubagentView};
use crate::{Subagents, blocking};

/// The sessions and subagents that are added up.
const MOST: u32 = 100_000;

/// A session: its main agent, and all its agents together.
#[derive(Clone, Debug, PartialEq)]
pub struct HookSessionView {
    pub session: HookSession,
    /// What the main agent spent, as far as it is known.
    pub spent: Option<SubagentSpending>,
    /// With the subagents.
    pub total: Option<SubagentSpending>,
    /// The number of agents whose usage is not known, or not complete.
    pub incomplete: u64,
}

/// What the sessions of a period spent.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HookSpending {
    pub sessions: u64,
    pub subagents: u64,
    /// The cost is None without prices.
    pub by_model: BTreeMap<String, (TokenUsage, Option<Cost>)>,
    pub total: Option<SubagentSpending>,
    /// The number of agents whose usage is not known, or not complete.
    pub incomplete: u64,
}

impl Subagents {
    /// A session; None if no event showed it.
    pub async fn hook_session(
        &self,
        tenant: &TenantId,
        session_id: &str,
    ) -> Result<Option<HookSessionView>, AppError> {
        let session_id = Some(session_id.to_owned());
        let query = HookSessionQuery { session_id, limit: 1, ..HookSessionQuery::default() };
        Ok(self.hook_sessions(tenant, query).await?.pop())
    }

    /// Sessions, newest first.
    pub async fn hook_sessions(
        &self,
        tenant: &TenantId,
        query: HookSessionQuery,
    ) -> Result<Vec<HookSessionView>, AppError> {
        self.check_hook_tenant(tenant).await?;
        let hooks = self.runtime.store().hooks();
        let mut sessions = hooks.sessions(tenant, query).await?;
        self.read_session_usage(tenant, &mut sessions).await?;
        let prices = self.tenancy.prices().await?;
        let mut views = Vec::new();
        for session in sessions {
            let session_id = Some(session.session_id.clone());
            let query = SubagentQuery { session_id, limit: MOST, ..SubagentQuery::default() };
            let mut subagents = hooks.subagents(tenant, query).await?;
            self.read_subagent_usage(tenant, &mut subagents).await?;
            let incomplete = count_incomplete(&subagents) + u64::from(!session.usage_complete);
            let of_subagents = subagents.iter().filter_map(|agent| agent.usage.as_deref());
            let usages = session.usage.as_deref().into_iter().chain(of_subagents);
            views.push(HookSessionView {
                spent: session.usage.as_deref().and_then(|text| spending([text], &prices)),
                total: spending(usages, &prices),
                session,
                incomplete,
            });
        }
        Ok(views)
    }

    /// What the sessions and subagents that began in a period spent.
    pub async fn hook_spending(
        &self,
        tenant: &TenantId,
        from: Option<Timestamp>,
        before: Option<Timestamp>,
    ) -> Result<HookSpending, AppError> {
        self.check_hook_tenant(tenant).await?;
        let hooks = self.runtime.store().hooks();
        let query = HookSessionQuery { from, before, limit: MOST, ..HookSessionQuery::default() };
        let mut sessions = hooks.sessions(tenant, query).await?;
        self.read_session_usage(tenant, &mut sessions).await?;
        let query = SubagentQuery { from, before, limit: MOST, ..SubagentQuery::default() };
        let mut subagents = hooks.subagents(tenant, query).await?;
        self.read_subagent_usage(tenant, &mut subagents).await?;
        let prices = self.tenancy.prices().await?;
        let open = sessions.iter().filter(|session| !session.usage_complete).count();
        let of_sessions = sessions.iter().map(|session| &session.usage);
        let usages: Vec<&str> = of_sessions
            .chain(subagents.iter().map(|agent| &agent.usage))
            .filter_map(|usage| usage.as_deref())
            .collect();
        let by_model = by_model(usages.iter().copied());
        let cost = |model: &str, usage: &TokenUsage| Some(prices.of(model)?.cost(usage));
        Ok(HookSpending {
            sessions: sessions.len() as u64,
            subagents: subagents.len() as u64,
            total: spending(usages, &prices),
            by_model: by_model
                .into_iter()
                .map(|(model, usage)| {
                    let cost = cost(&model, &usage);
                    (model, (usage, cost))
                })
                .collect(),
            incomplete: count_incomplete(&subagents) + open as u64,
        })
    }

    /// Reads again the transcripts of subagents that ended before theirs were complete.
    pub(crate) async fn read_subagent_usage(
        &self,
        tenant: &TenantId,
        subagents: &mut [SubagentRecord],
    ) -> Result<(), AppError> {
        let is_open = |agent: &SubagentRecord| {
            !agent.is_active() && !agent.usage_complete && agent.transcript_path.is_some()
        };
        let open = subagents.iter().filter(|agent| is_open(agent));
        let wanted: Vec<_> = open.map(SubagentRecord::usage_request).collect();
        let found = self.read_transcripts(tenant, wanted).await?;
        let (now, mut updates) = (self.runtime.store().now().await?, Vec::new());
        for (agent_id, found) in found {
            let is_it = |agent: &&mut SubagentRecord| Some(&agent.agent_id) == agent_id.as_ref();
            let Some(agent) = subagents.iter_mut().find(is_it) else { continue };
            let update = agent.usage_update(&found, now);
            agent.usage.clone_from(&update.usage);
            agent.usage_complete = update.usage_complete;
            updates.push(update);
        }
        self.keep(tenant, updates).await;
        Ok(())
    }

    /// The same for main agents. What one spends in a turn that goes on is read as far as it is
    /// written.
    async fn read_session_usage(
        &self,
        tenant: &TenantId,
        sessions: &mut [HookSession],
    ) -> Result<(), AppError> {
        let (now, mut updates) = (self.runtime.store().now().await?, Vec::new());
        for session in sessions.iter_mut().filter(|session| !session.usage_complete) {
            let wanted = vec![session.usage_request()];
            let Some((_, found)) = self.read_transcripts(tenant, wanted).await?.pop() else {
                continue;
            };
            let update = session.usage_update(&found, now);
            session.usage.clone_from(&update.usage);
            session.usage_complete = update.usage_complete;
            updates.push(update);
        }
        self.keep(tenant, updates).await;
        Ok(())
    }

    async fn read_transcripts(
        &self,
        tenant: &TenantId,
        wanted: Vec<UsageRequest>,
    ) -> Result<Vec<(Option<String>, TranscriptUsage)>, AppError> {
        // Only the operator's own sessions have their files on this machine.
        let files = self.hook_files.clone().filter(|_| *tenant == TenantId::local());
        let Some(files) = files.filter(|_| !wanted.is_empty()) else { return Ok(Vec::new()) };
        let files = Arc::clone(&files);
        blocking(move || {
            let mut evidence = HookEvidence::default();
            let want = EvidenceRequest::Usage(wanted);
            files.find(&HookInput::default(), &want, &mut evidence, None);
            evidence.usage
        })
        .await
    }

    /// What was read is right even if it cannot be kept: then it is read again.
    async fn keep(&self, tenant: &TenantId, updates: Vec<HookUsageUpdate>) {
        if updates.is_empty() {
            return;
        }
        drop(self.runtime.store().hooks().update_usage(tenant, updates).await);
    }
}

fn count_incomplete(subagents: &[SubagentRecord]) -> u64 {
    subagents.iter().filter(|agent| !agent.usage_complete).count() as u64
}

fn by_model<'a>(usages: impl IntoIterator<Item = &'a str>) -> BTreeMap<String, TokenUsage> {
    let mut sums: BTreeMap<String, TokenUsage> = BTreeMap::new();
    for text in usages {
        let models: BTreeMap<String, TokenUsage> = serde_json::from_str(text).unwrap_or_default();
        for (model, usage) in models {
            *sums.entry(model).or_default() += usage;
        }
    }
    sums
}

/// The sum over agents and models; None if nothing is known. Without the prices of one model, the
/// cost is not known.
pub(crate) fn spending<'a>(
    usages: impl IntoIterator<Item = &'a str>,
    prices: &PriceList,
) -> Option<SubagentSpending> {
    let by_model = by_model(usages);
    let mut sum = SubagentSpending {
        usage: TokenUsage::default(),
        cost: Some(Cost::default()),
        built_in_of: Vec::new(),
    };
    for (model, usage) in &by_model {
        let cost = prices.of(model).map(|prices| prices.cost(usage));
        if prices.is_built_in(model) {
            sum.built_in_of.push(model.clone());
        }
        sum.cost = sum.cost.zip(cost).map(|(sum, cost)| sum + cost);
        sum.usage += *usage;
    }
    (!by_model.is_empty()).then_some(sum)
}

impl SubagentView {
    pub(crate) fn of_all(
        subagents: Vec<SubagentRecord>,
        prices: &PriceList,
        now: Timestamp,
    ) -> Vec<Self> {
        subagents.into_iter().map(|subagent| Self::new(subagent, prices, now)).collect()
    }
}
