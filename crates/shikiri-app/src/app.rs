//! `App`: the store, the agents and the settings, held by every door.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use shikiri_model::audit::AuditOrigin;
use shikiri_model::confinement::ConfinementPolicy;
use shikiri_model::event::{Seq, StreamId};
use shikiri_model::ids::{Entropy, TenantId};
use shikiri_model::record::{Document, Expect, RecordChange, Stored};
use shikiri_model::team::TeamLimits;
use shikiri_store::{Commit, CommitError, Store, StoreError, StoreExt};

use crate::connections::ConnectionCounts;
use crate::error::AppError;
use crate::execution::Engines;
use crate::gate::limits::Slots;
use crate::hooks::{Claims, HookFiles};
use crate::lane::{LaneOptions, Lanes, PageDriver};
use crate::metered::{Counters, Metered};
use crate::run::{Agent, Agents, Here};
use crate::sealing::{SealedStore, SealingKeys};
use crate::storage::StorageCounters;
use crate::team::{Arrivals, Tries};
use crate::watch::Watch;
use crate::workspace::Workspaces;

/// How often a use case starts over when somebody else changed the record first.
const MAX_TRIES: u32 = 50;

#[derive(Clone, Debug)]
pub struct AppOptions {
    /// After this long without renewal, a node's runs are taken over.
    pub node_lease: Duration,
    /// Runs that one node works on at once.
    pub max_runs: usize,
    /// How long a run that was asked to stop may take to do so.
    pub cancel_grace: Duration,
    /// Events of ended streams are kept this long.
    pub retention: Duration,
    /// A connection ends when it was not used for so long.
    pub connection_idle: Duration,
    /// Connections that one principal may have; past that, its idlest ones end.
    pub max_connections: usize,
    /// Where files of conversations and engines lie; without it there are none.
    pub data: Option<PathBuf>,
    /// Bytes that one workspace may hold for more to be put in.
    pub max_workspace: u64,
    /// How long an engine may work on one execution.
    pub execution_timeout: Duration,
    /// How long a node that leaves waits for executions to end by themselves.
    pub drain_wait: Duration,
    /// How long a request waits for its conversation.
    pub lock_wait: Duration,
    /// How long a conversation stays locked by an execution that does not renew it.
    pub lock_lease: Duration,
    /// What engines see of this process's environment.
    pub engine_env: Environment,
    /// Which confinement of engines is good enough.
    pub confinement_policy: ConfinementPolicy,
    /// How long sessions, delegations and dialogues of teams may stay open.
    pub team: TeamLimits,
    pub lanes: LaneOptions,
}

/// Variables and their values, which may be secrets: printed, only the names are shown.
#[derive(Clone, Default)]
pub struct Environment(pub BTreeMap<String, String>);

impl fmt::Debug for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

impl Default for AppOptions {
    fn default() -> Self {
        Self {
            node_lease: Duration::from_secs(15),
            max_runs: 1_024,
            cancel_grace: Duration::from_secs(10),
            retention: Duration::from_secs(30 * 24 * 3_600),
            connection_idle: Duration::from_secs(24 * 3_600),
            max_connections: 4_096,
            data: None,
            max_workspace: 1024 * 1024 * 1024,
            execution_timeout: Duration::from_secs(300),
            drain_wait: Duration::from_secs(5),
            lock_wait: Duration::from_secs(5),
            lock_lease: Duration::from_secs(600),
            engine_env: Environment::default(),
            confinement_policy: ConfinementPolicy::default(),
            team: TeamLimits::default(),
            lanes: LaneOptions::default(),
        }
    }
}

#[derive(Clone)]
pub struct App {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) agents: Arc<Agents>,
    pub(crate) options: Arc<AppOptions>,
    pub(crate) connection_counts: Arc<ConnectionCounts>,
    pub(crate) here: Arc<Here>,
    pub(crate) workspaces: Arc<Workspaces>,
    pub(crate) engines: Engines,
    pub(crate) execution_slots: Arc<Slots>,
    pub(crate) claims: Arc<Claims>,
    pub(crate) hook_files: Option<Arc<dyn HookFiles>>,
    pub(crate) tries: Arc<Tries>,
    pub(crate) lanes: Arc<Lanes>,
    pub(crate) arrivals: Arc<Arrivals>,
    pub(crate) storage: Arc<StorageCounters>,
    /// Who makes the changes that are made through this handle.
    pub(crate) origin: Arc<AuditOrigin>,
    /// None in a store that seals nothing, as tests have it.
    pub(crate) sealing: Option<Arc<SealingKeys>>,
    /// Shows secrets as they are stored.
    pub(crate) bare_store: Arc<dyn Store>,
    counters: Arc<Counters>,
}

impl App {
    pub fn new(store: Arc<dyn Store>, agents: Vec<Arc<dyn Agent>>, options: AppOptions) -> Self {
        let (counters, storage) = (Arc::<Counters>::default(), Arc::<StorageCounters>::default());
        let metered =
            Metered { store, counters: Arc::clone(&counters), storage: Arc::clone(&storage) };
        let store: Arc<dyn Store> = Arc::new(metered);
        Self {
            sealing: None,
            bare_store: Arc::clone(&store),
            store,
            agents: Arc::new(Agents::new(agents)),
            options: Arc::new(options),
            connection_counts: Arc::default(),
            here: Arc::default(),
            workspaces: Arc::default(),
            engines: Engines::default(),
            execution_slots: Arc::new(Slots::new("executions", usize::MAX)),
            claims: Arc::default(),
            hook_files: None,
            tries: Arc::default(),
            lanes: Arc::default(),
            arrivals: Arc::default(),
            storage,
            origin: Arc::new(AuditOrigin::system()),
            counters,
        }
    }

    /// With engines for executions.
    #[must_use]
    pub fn with_engines(mut self, engines: Engines) -> Self {
        self.engines = engines;
        self
    }

    /// With what puts questions to the providers' pages.
    #[must_use]
    pub fn with_pages(mut self, pages: Arc<dyn PageDriver>) -> Self {
        self.lanes = Arc::new(Lanes::new(pages));
        self
    }

    /// With a key that seals the secrets of records.
    #[must_use]
    pub fn with_sealing(mut self, keys: Arc<SealingKeys>) -> Self {
        let store = Arc::clone(&self.bare_store);
        self.store = Arc::new(SealedStore { store, keys: Arc::clone(&keys) });
        self.sealing = Some(keys);
        self
    }

    /// With what hooks find on the disk.
    #[must_use]
    pub fn with_hook_files(mut self, files: Arc<dyn HookFiles>) -> Self {
        self.hook_files = Some(files);
        self
    }

    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    pub fn options(&self) -> &AppOptions {
        &self.options
    }

    pub fn counters(&self) -> &Arc<Counters> {
        &self.counters
    }

    /// Follows a stream: first what is there after `after`, then what comes.
    pub async fn watch(
        &self,
        tenant: &TenantId,
        stream: StreamId,
        after: Seq,
    ) -> Result<Watch, StoreError> {
        Watch::start(Arc::clone(&self.store), tenant.clone(), stream, after).await
    }

    /// Changes a record by a pure function, starting over when somebody else was first.
    pub(crate) async fn update<T: Document + Clone + Send + Sync>(
        &self,
        tenant: &TenantId,
        id: &str,
        change: impl Fn(&mut T) -> Result<(), AppError> + Send,
    ) -> Result<Stored<T>, AppError> {
        for _ in 0..MAX_TRIES {
            let Some(mut stored) = self.store.load::<T>(tenant, id).await? else {
                return Err(AppError::not_found(T::KIND, id));
            };
            let before = stored.value.clone();
            change(&mut stored.value)?;
            let put = RecordChange::put(&stored.value, Expect::Version(stored.version))?;
            let mut commit = Commit::new().record(put);
            commit.appends.extend(self.audit(Some(&before), Some(&stored.value))?);
            match self.store.commit(commit).await {
                Ok(committed) => {
                    stored.version += 1;
                    stored.updated_at = committed.at;
                    return Ok(stored);
                }
                Err(CommitError::Conflict(_)) => {}
                Err(other) => return Err(other.into()),
            }
        }
        Err(busy(T::KIND, id))
    }
}

pub(crate) fn busy(kind: &str, id: &str) -> AppError {
    AppError::Unavailable(format!("{kind} {id} is changing too fast: try again"))
}

pub(crate) fn max_tries() -> u32 {
    MAX_TRIES
}

/// Fresh randomness for an id.
pub(crate) fn entropy() -> Result<Entropy, AppError> {
    random()
}

pub(crate) fn random<const N: usize>() -> Result<[u8; N], AppError> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes)
        .map_err(|e| AppError::Broken(format!("the system gave no randomness: {e}")))?;
    Ok(bytes)
}
