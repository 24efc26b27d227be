//! A new store for one test: a SQLite file or a PostgreSQL database, with a clock that the test
//! controls.

use std::path::PathBuf;
use std::sync::Arc;

use shikiri_model::time::Timestamp;
use shikiri_store::postgres::{PostgresOptions, PostgresStore};
use shikiri_store::sqlite::{SqliteDurability, SqliteOptions, SqliteStore};
use shikiri_store::{Clock, FakeClock, Store};
use tempfile::TempDir;

use crate::database::{TestDatabase, have_postgres};

/// The store's data, removed with this value, and its clock.
#[derive(Debug)]
pub struct TestStore {
    pub clock: Arc<FakeClock>,
    place: Place,
}

#[derive(Debug)]
enum Place {
    File(TempDir),
    Database(TestDatabase),
}

/// The path of a file or the address of a database.
#[derive(Clone, Debug)]
pub enum StorePlace {
    File(PathBuf),
    Database(String),
}

impl TestStore {
    pub fn sqlite() -> Self {
        Self::at(Place::File(TempDir::new().expect("a temporary folder")))
    }

    /// On a new database of the test server; ask `have_postgres` first.
    pub async fn postgres() -> Self {
        Self::at(Place::Database(TestDatabase::create().await))
    }

    /// One store of each kind. Prints a notice if a test has no PostgreSQL.
    pub async fn each(test: &str) -> Vec<Self> {
        let mut stores = vec![Self::sqlite()];
        if have_postgres(test) {
            stores.push(Self::postgres().await);
        }
        stores
    }

    fn at(place: Place) -> Self {
        // 2026-11-15T20:00:00Z
        let start = Timestamp::from_millis(1_794_772_800_000);
        Self { clock: Arc::new(FakeClock::starting_at(start)), place }
    }

    /// A separate handle, like that of another process or node.
    pub async fn open(&self) -> Arc<dyn Store> {
        match self.place() {
            StorePlace::File(path) => {
                // A killed process loses nothing with this; only a power failure would.
                let durability = SqliteDurability::Normal;
                let options = SqliteOptions { clock: self.clock.clone(), durability };
                let store = SqliteStore::open(&path, options);
                Arc::new(store.expect("a SQLite store"))
            }
            StorePlace::Database(url) => {
                let clock: Arc<dyn Clock> = self.clock.clone();
                let options = PostgresOptions { clock: Some(clock), max_connections: 6 };
                let store = PostgresStore::connect(&url, options).await;
                Arc::new(store.expect("a PostgreSQL store"))
            }
        }
    }

    pub async fn two_handles(&self) -> (Arc<dyn Store>, Arc<dyn Store>) {
        (self.open().await, self.open().await)
    }

    pub fn backend(&self) -> &'static str {
        match self.place {
            Place::File(_) => "sqlite",
            Place::Database(_) => "postgres",
        }
    }

    /// The location of the data, for tests that read it directly.
    pub fn place(&self) -> StorePlace {
        match &self.place {
            // A name with non-ASCII characters, which are valid in file names.
            Place::File(folder) => StorePlace::File(folder.path().join("台帳.db")),
            Place::Database(database) => StorePlace::Database(database.url().to_owned()),
        }
    }

    /// The clock's current time.
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }
}
