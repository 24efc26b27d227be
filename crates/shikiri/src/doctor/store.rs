//! The database: does it open, is its schema ours, is it sound?

use std::path::Path;

use shikiri_runtime::sealing::{SealingKeys, SealingState};
use shikiri_sqlite::{DatabaseOptions, OpenError, SqliteDatabase};

use super::{Finding, Verdict};
use crate::config::Config;
use crate::store_url::StoreUrl;
use crate::wiring::{self, Access};

const DATABASE: &str = "database";
const SEALING: &str = "sealing key";

pub(super) async fn database(config: &Config) -> Finding {
    match &config.store {
        StoreUrl::Sqlite(path) => {
            let path = path.clone();
            let looked = tokio::task::spawn_blocking(move || embedded(&path)).await;
            looked.unwrap_or_else(|error| fail(error.to_string()))
        }
        StoreUrl::Postgres(_) => postgres(config).await,
    }
}

fn embedded(path: &Path) -> Finding {
    let database = match SqliteDatabase::open_reader(path, &DatabaseOptions::default()) {
        Ok(database) => database,
        Err(OpenError::Missing(_)) => {
            let text = format!("{} is not there yet; `shikiri serve` makes it", path.display());
            return Finding::new(DATABASE, Verdict::Info, text);
        }
        Err(error) => return fail(error.to_string()),
    };
    let checked = database.query_row("PRAGMA quick_check(1)", [], |row| row.get::<_, String>(0));
    match checked {
        Ok(word) if word == "ok" => sound(path),
        Ok(problem) => fail(format!(
            "{} is damaged ({problem}): run `shikiri db check`, restore a backup",
            path.display()
        )),
        Err(error) => fail(format!("{} cannot be read: {error}", path.display())),
    }
}

fn sound(path: &Path) -> Finding {
    let schema = shikiri_sqlite::migrate::latest_version();
    let text = format!("{} opens, schema {schema}, quick check ok", path.display());
    Finding::new(DATABASE, Verdict::Ok, text)
}

async fn postgres(config: &Config) -> Finding {
    let store = match wiring::open_store(config, Access::Read).await {
        Ok(store) => store,
        Err(failure) => return fail(failure.to_string()),
    };
    match store.probe().await {
        Ok(()) => {
            let text = format!("{} answers and takes writes", config.store);
            Finding::new(DATABASE, Verdict::Ok, text)
        }
        Err(error) => fail(error.to_string()),
    }
}

/// Whether the key that seals secrets belongs to the store.
pub(super) async fn sealing(config: &Config) -> Finding {
    let keys = SealingKeys::new(config.sealing_key());
    let shown = keys.path().display();
    let Ok(store) = wiring::open_store(config, Access::Read).await else {
        return Finding::new(SEALING, Verdict::Info, "the store cannot be looked at");
    };
    match keys.state(&*store).await {
        Ok(SealingState::Fits) => {
            let text = format!("{shown} is the store's: keep a copy apart from its backups");
            Finding::new(SEALING, Verdict::Ok, text)
        }
        Ok(SealingState::Unused) => {
            let text = format!("{shown} is not used yet; `shikiri serve` makes it");
            Finding::new(SEALING, Verdict::Info, text)
        }
        Err(error) => Finding::new(SEALING, Verdict::Fail, error.to_string()),
    }
}

fn fail(text: String) -> Finding {
    Finding::new(DATABASE, Verdict::Fail, text)
}
