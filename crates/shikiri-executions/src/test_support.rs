//! The service on its own store, for tests of this crate.

use std::path::Path;
use std::sync::Arc;

use shikiri_runtime::{Runtime, RuntimeOptions};
use shikiri_store::sqlite::{SqliteOptions, SqliteStore};
use shikiri_tenancy::{ConnectionOptions, Tenancy};

use crate::execution::EngineRegistry;
use crate::{ExecutionOptions, Executions};

/// Database and files below `folder`, with the tenant `local`.
pub(crate) async fn executions_in(folder: &Path) -> Executions {
    let store = SqliteStore::open(&folder.join("state.db"), SqliteOptions::default()).unwrap();
    let options = RuntimeOptions { data: Some(folder.join("data")), ..RuntimeOptions::default() };
    let runtime = Runtime::new(Arc::new(store), Vec::new(), options);
    let tenancy = Tenancy::new(runtime, ConnectionOptions::default());
    tenancy.ensure_local_tenant().await.unwrap();
    Executions::new(tenancy, EngineRegistry::default(), ExecutionOptions::default())
}
