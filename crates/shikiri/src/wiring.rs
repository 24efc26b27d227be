//! The one file that names concrete types: which store, which agents. It opens the store and
//! brings a fresh one to life (tenant `local`, admin key).

use std::sync::Arc;

use shikiri_app::run::Agent;
use shikiri_app::{App, AppError, AppOptions};
use shikiri_model::ids::TenantId;
use shikiri_store::postgres::{PostgresOptions, PostgresStore};
use shikiri_store::sqlite::{self, SqliteOptions, SqliteStore};
use shikiri_store::{Store, StoreError, SystemClock};

use crate::config::{Config, Durability};
use crate::data_folder;
use crate::exit::{Exit, Failure};
use crate::store_url::StoreUrl;

/// The agents of a plain server.
pub fn agents() -> Vec<Arc<dyn Agent>> {
    shikiri_app::agents::samples()
}

/// Everything a command or a server works with. Makes what is missing.
pub async fn open_app(config: &Config, agents: Vec<Arc<dyn Agent>>) -> Result<App, Failure> {
    data_folder::prepare(&config.data_folder())?;
    let store = open_store(config).await?;
    let options = AppOptions {
        node_lease: config.node_lease,
        retention: config.retention,
        ..AppOptions::default()
    };
    let app = App::new(store, agents, options);
    bring_to_life(&app, config).await?;
    Ok(app)
}

/// Opens the store, making or migrating it if needed.
pub async fn open_store(config: &Config) -> Result<Arc<dyn Store>, Failure> {
    config.store.check()?;
    match &config.store {
        StoreUrl::Sqlite(path) => {
            let path = path.clone();
            let durability = match config.durability {
                Durability::Full => sqlite::Durability::Full,
                Durability::Normal => sqlite::Durability::Normal,
            };
            let options = SqliteOptions { clock: Arc::new(SystemClock), durability };
            let opening = tokio::task::spawn_blocking(move || SqliteStore::open(&path, options));
            let opened = opening.await.map_err(|error| Failure::told(Exit::Failed, error))?;
            Ok(Arc::new(opened.map_err(not_opened)?))
        }
        StoreUrl::Postgres(url) => {
            let mut options = PostgresOptions::default();
            if let Some(connections) = config.postgres_connections {
                options.max_connections = connections;
            }
            Ok(Arc::new(PostgresStore::connect(url, options).await.map_err(not_opened)?))
        }
    }
}

/// A store that cannot be opened is unavailable, whatever the reason; the message has the next
/// step.
fn not_opened(error: StoreError) -> Failure {
    Failure::told(Exit::Unavailable, error)
}

async fn bring_to_life(app: &App, config: &Config) -> Result<(), Failure> {
    // Looked for first: a command that only reads should not write.
    match app.tenant(&TenantId::local()).await {
        Err(AppError::NotFound { .. }) => app.ensure_local_tenant().await?,
        found => drop(found?),
    }
    let key = data_folder::admin_key(&config.key_file(), || Ok(App::mint_secret()?))?;
    Ok(app.ensure_admin_key(&key).await?)
}
