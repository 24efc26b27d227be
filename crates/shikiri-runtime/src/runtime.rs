//! `Runtime`: the store, the agents and the settings that every domain's service works with.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use shikiri_model::audit::AuditOrigin;
use shikiri_model::event::{Seq, StreamId};
use shikiri_model::ids::{Entropy, TenantId};
use shikiri_store::{Store, StoreError};

use crate::error::AppError;
use crate::metered_store::{MeteredStore, ProcessMetrics};
use crate::run::{AgentRegistry, DurableAgent, LocalWorker};
use crate::sealing::{SealedStore, SealingKeys};
use crate::storage::StorageCounters;
use crate::watch::Watch;

/// How often a use case tries again after a conflicting write.
const MAX_TRIES: u32 = 50;

#[derive(Clone, Debug)]
pub struct RuntimeOptions {
    /// After this long without renewal, a node's runs are taken over.
    pub node_lease: Duration,
    /// Runs that one node works on at once.
    pub max_runs: usize,
    /// How long a run that was asked to stop may take to do so.
    pub cancel_grace: Duration,
    /// Events of ended streams are kept this long.
    pub retention: Duration,
    /// How long a node that leaves waits for runs that cannot be put back in the queue.
    pub drain_wait: Duration,
    /// The folder for files of conversations, engines and nodes. Without it there are none.
    pub data: Option<PathBuf>,
}

impl Default for RuntimeOptions {
    fn default() -> Self {
        Self {
            node_lease: Duration::from_secs(15),
            max_runs: 1_024,
            cancel_grace: Duration::from_secs(10),
            retention: Duration::from_secs(30 * 24 * 3_600),
            drain_wait: Duration::from_secs(5),
            data: None,
        }
    }
}

/// Cheap to clone: the clones share everything but the origin of their changes.
#[derive(Clone)]
pub struct Runtime {
    pub store: Arc<dyn Store>,
    pub agents: Arc<AgentRegistry>,
    pub options: Arc<RuntimeOptions>,
    pub local_worker: Arc<LocalWorker>,
    pub storage: Arc<StorageCounters>,
    /// The author of changes made through this handle, as the audit log names it.
    pub origin: Arc<AuditOrigin>,
    /// None if the store seals nothing, as in tests.
    pub sealing: Option<Arc<SealingKeys>>,
    /// Returns secrets as they are stored.
    pub bare_store: Arc<dyn Store>,
    metrics: Arc<ProcessMetrics>,
}

impl Runtime {
    pub fn new(
        store: Arc<dyn Store>,
        agents: Vec<Arc<dyn DurableAgent>>,
        options: RuntimeOptions,
    ) -> Self {
        let (metrics, storage) =
            (Arc::<ProcessMetrics>::default(), Arc::<StorageCounters>::default());
        let metered =
            MeteredStore { store, counters: Arc::clone(&metrics), storage: Arc::clone(&storage) };
        let store: Arc<dyn Store> = Arc::new(metered);
        Self {
            sealing: None,
            bare_store: Arc::clone(&store),
            store,
            agents: Arc::new(AgentRegistry::new(agents)),
            options: Arc::new(options),
            local_worker: Arc::default(),
            storage,
            origin: Arc::new(AuditOrigin::system()),
            metrics,
        }
    }

    /// Seals the secrets of records with these keys.
    #[must_use]
    pub fn with_sealing(mut self, keys: Arc<SealingKeys>) -> Self {
        let store = Arc::clone(&self.bare_store);
        self.store = Arc::new(SealedStore { store, keys: Arc::clone(&keys) });
        self.sealing = Some(keys);
        self
    }

    /// The same runtime, whose changes are audited as made by `origin`.
    #[must_use]
    pub fn acting_as(&self, origin: AuditOrigin) -> Self {
        Self { origin: Arc::new(origin), ..self.clone() }
    }

    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    pub fn options(&self) -> &RuntimeOptions {
        &self.options
    }

    pub fn metrics(&self) -> &Arc<ProcessMetrics> {
        &self.metrics
    }

    /// Follows a stream: first the stored events after `after`, then new ones as they are committed.
    pub async fn watch(
        &self,
        tenant: &TenantId,
        stream: StreamId,
        after: Seq,
    ) -> Result<Watch, StoreError> {
        Watch::start(Arc::clone(&self.store), tenant.clone(), stream, after).await
    }
}

pub fn busy(kind: &str, id: &str) -> AppError {
    AppError::Unavailable(format!("{kind} {id} is changing too fast: try again"))
}

pub fn max_tries() -> u32 {
    MAX_TRIES
}

/// Fresh randomness for an id.
pub fn entropy() -> Result<Entropy, AppError> {
    random()
}

pub fn random<const N: usize>() -> Result<[u8; N], AppError> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes)
        .map_err(|e| AppError::Broken(format!("the system gave no randomness: {e}")))?;
    Ok(bytes)
}
