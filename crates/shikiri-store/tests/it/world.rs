//! The worlds in which a story is told: a fresh SQLite file and a fresh PostgreSQL database,
//! with a clock that the story moves.

use std::io::Write as _;
use std::str::FromStr as _;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Once};

use shikiri_model::time::Timestamp;
use shikiri_store::postgres::{PostgresOptions, PostgresStore};
use shikiri_store::sqlite::{SqliteOptions, SqliteStore};
use shikiri_store::{Clock as _, FakeClock, Store, SystemClock};
use sqlx::postgres::PgConnectOptions;
use sqlx::{Connection as _, PgConnection};
use tempfile::TempDir;

const SERVER: &str = "SHIKIRI_TEST_POSTGRES";

pub(crate) struct World {
    pub(crate) clock: Arc<FakeClock>,
    place: Place,
}

pub(crate) enum Place {
    File(TempDir),
    Database(TestDatabase),
}

/// Tells the story in every world.
pub(crate) async fn on_both(story: impl AsyncFn(World)) {
    for world in World::each().await {
        eprintln!("on {}:", world.backend());
        story(world).await;
    }
}

impl World {
    pub(crate) async fn each() -> Vec<Self> {
        let mut worlds = vec![Self::at(Place::File(TempDir::new().unwrap()))];
        if let Some(database) = TestDatabase::create().await {
            worlds.push(Self::at(Place::Database(database)));
        }
        worlds
    }

    fn at(place: Place) -> Self {
        // 2026-11-15T20:00:00Z
        let start = Timestamp::from_millis(1_794_772_800_000);
        Self { clock: Arc::new(FakeClock::starting_at(start)), place }
    }

    /// A handle of its own, as another process or node would have.
    pub(crate) async fn open(&self) -> Arc<dyn Store> {
        match &self.place {
            Place::File(folder) => {
                let options = SqliteOptions { clock: self.clock.clone(), ..Default::default() };
                Arc::new(SqliteStore::open(&folder.path().join("台帳.db"), options).unwrap())
            }
            Place::Database(database) => {
                let clock = Some(self.clock.clone() as Arc<dyn shikiri_store::Clock>);
                let options = PostgresOptions { clock, max_connections: 6 };
                Arc::new(PostgresStore::connect(&database.url, options).await.unwrap())
            }
        }
    }

    pub(crate) async fn two_handles(&self) -> (Arc<dyn Store>, Arc<dyn Store>) {
        (self.open().await, self.open().await)
    }

    pub(crate) fn backend(&self) -> &'static str {
        match self.place {
            Place::File(_) => "sqlite",
            Place::Database(_) => "postgres",
        }
    }

    pub(crate) fn place(&self) -> &Place {
        &self.place
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }
}

/// A database of its own on the test server, dropped with this value.
pub(crate) struct TestDatabase {
    pub(crate) url: String,
    server: String,
    name: String,
}

impl TestDatabase {
    /// None, and a loud word about it, if there is no server.
    async fn create() -> Option<Self> {
        static TOLD: Once = Once::new();
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let Ok(server) = std::env::var(SERVER) else {
            assert!(
                std::env::var("CI").as_deref() != Ok("true"),
                "{SERVER} is not set: with CI=true the PostgreSQL half cannot be skipped"
            );
            TOLD.call_once(|| {
                // Not `eprintln!`, which the test harness keeps to itself.
                let _ = writeln!(
                    std::io::stderr(),
                    "\nSKIPPED: the PostgreSQL half of every story ({SERVER} is not set)"
                );
            });
            return None;
        };
        let name = format!(
            "story_{}_{}_{}",
            SystemClock.now().as_millis(),
            std::process::id(),
            COUNT.fetch_add(1, Ordering::Relaxed)
        );
        let mut connection = connect(&server).await;
        // An order of text that is not that of the bytes, as many servers have.
        let foreign_order = format!(
            "CREATE DATABASE {name} TEMPLATE template0 ENCODING 'UTF8' \
             LOCALE_PROVIDER icu ICU_LOCALE 'en-US'"
        );
        if execute(&mut connection, foreign_order).await.is_err() {
            execute(&mut connection, format!("CREATE DATABASE {name}")).await.unwrap();
        }
        connection.close().await.unwrap();
        Some(Self { url: with_database(&server, &name), server, name })
    }
}

impl Drop for TestDatabase {
    fn drop(&mut self) {
        let (server, name) = (self.server.clone(), self.name.clone());
        // On a thread of its own: a story that fails unwinds inside its runtime.
        let dropping = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.unwrap().block_on(async {
                let mut connection = connect(&server).await;
                let sql = format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)");
                execute(&mut connection, sql).await.unwrap();
            });
        });
        if dropping.join().is_err() {
            eprintln!("could not drop the database {}", self.name);
        }
    }
}

pub(crate) async fn connect(url: &str) -> PgConnection {
    let options = PgConnectOptions::from_str(url).expect("a PostgreSQL URL");
    PgConnection::connect_with(&options).await.expect("the PostgreSQL server of the tests")
}

async fn execute(connection: &mut PgConnection, sql: String) -> Result<(), sqlx::Error> {
    sqlx::raw_sql(sqlx::AssertSqlSafe(sql)).execute(connection).await.map(drop)
}

fn with_database(server: &str, name: &str) -> String {
    let (address, parameters) = server.split_once('?').unwrap_or((server, ""));
    let (host, _) = address.rsplit_once('/').expect("a URL that names a database");
    let question_mark = if parameters.is_empty() { "" } else { "?" };
    format!("{host}/{name}{question_mark}{parameters}")
}
