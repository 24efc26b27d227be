//! Where the store of a story lies: a file in a folder of its own, or a database of its own on the
//! test server. A child is told the place; it goes with the [`Home`] that the story keeps.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use shikiri_store::Store;
use shikiri_store::postgres::{PostgresOptions, PostgresStore};
use shikiri_store::sqlite::{SqliteDurability, SqliteOptions, SqliteStore};
use shikiri_testkit::{TestDatabase, have_postgres};
use tempfile::TempDir;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Place {
    File(PathBuf),
    Database(String),
}

impl Place {
    /// As another process or node opens it.
    pub(crate) async fn open(&self) -> Arc<dyn Store> {
        match self {
            Self::File(path) => {
                // A killed process loses nothing by it; only a power cut would.
                let durability = SqliteDurability::Normal;
                let options = SqliteOptions { durability, ..SqliteOptions::default() };
                Arc::new(SqliteStore::open(path, options).unwrap())
            }
            Self::Database(url) => {
                let options = PostgresOptions { max_connections: 5, ..PostgresOptions::default() };
                Arc::new(PostgresStore::connect(url, options).await.unwrap())
            }
        }
    }
}

/// Keeps a place while its story is told.
pub(crate) struct Home {
    folder: TempDir,
    database: Option<TestDatabase>,
}

impl Home {
    pub(crate) fn with_file() -> Self {
        Self { folder: TempDir::new().unwrap(), database: None }
    }

    /// None, and a loud word about it, if there is no server.
    pub(crate) async fn with_database(story: &str) -> Option<Self> {
        if !have_postgres(story) {
            return None;
        }
        let database = Some(TestDatabase::create().await);
        Some(Self { folder: TempDir::new().unwrap(), database })
    }

    pub(crate) fn place(&self) -> Place {
        match &self.database {
            Some(database) => Place::Database(database.url().to_owned()),
            None => Place::File(self.folder.path().join("state.db")),
        }
    }

    /// For what children leave outside the store.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }
}
