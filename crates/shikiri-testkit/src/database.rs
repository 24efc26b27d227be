//! A PostgreSQL database for one test, on the server that `SHIKIRI_TEST_POSTGRES` names.

use std::str::FromStr as _;

use sqlx::postgres::PgConnectOptions;
use sqlx::{Connection as _, PgConnection};

use crate::rng::Rng;

const SERVER: &str = "SHIKIRI_TEST_POSTGRES";

/// Whether there is a PostgreSQL for the tests. Prints a notice if not, and fails with `CI=true`.
pub fn have_postgres(test: &str) -> bool {
    let have = std::env::var_os(SERVER).is_some();
    if !have {
        crate::skip(test, &format!("{SERVER} is not set"));
    }
    have
}

/// A database of its own, dropped with this value.
#[derive(Debug)]
pub struct TestDatabase {
    url: String,
    server: String,
    name: String,
}

impl TestDatabase {
    pub async fn create() -> Self {
        let server = std::env::var(SERVER).unwrap_or_else(|_| panic!("{SERVER} is not set"));
        Self::create_on(&server).await
    }

    /// On a given server.
    pub async fn create_on(server: &str) -> Self {
        let name = format!("test_{}_{:016x}", std::process::id(), Rng::random().next());
        // Its text order differs from the byte order, as on many servers.
        let in_words = format!(
            "CREATE DATABASE {name} TEMPLATE template0 ENCODING 'UTF8' \
             LOCALE_PROVIDER icu ICU_LOCALE 'en-US'"
        );
        if execute(server, &in_words).await.is_err() {
            execute(server, &format!("CREATE DATABASE {name}")).await.expect("a new database");
        }
        Self { url: with_database(server, &name), server: server.to_owned(), name }
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    /// Every row of every table, as JSON lines.
    pub async fn text_of_all_rows(&self) -> String {
        let options = PgConnectOptions::from_str(&self.url).expect("its URL");
        let mut connection = PgConnection::connect_with(&options).await.expect("a connection");
        let tables = "SELECT quote_ident(table_name) FROM information_schema.tables \
                      WHERE table_schema = 'public' AND table_type = 'BASE TABLE'";
        let tables = sqlx::query_scalar::<_, String>(tables).fetch_all(&mut connection).await;
        let mut text = String::new();
        for table in tables.expect("the tables") {
            let rows = sqlx::AssertSqlSafe(format!("SELECT row_to_json(t)::text FROM {table} t"));
            let rows = sqlx::query_scalar::<_, String>(rows).fetch_all(&mut connection).await;
            text.extend(rows.expect("the rows").iter().flat_map(|row| [row.as_str(), "\n"]));
        }
        text
    }
}

impl Drop for TestDatabase {
    fn drop(&mut self) {
        let (server, name) = (self.server.clone(), self.name.clone());
        // On its own thread: a failed test unwinds inside its runtime.
        let dropping = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let runtime = runtime.expect("a runtime");
            let sql = format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)");
            runtime.block_on(execute(&server, &sql)).expect("the database dropped");
        });
        if dropping.join().is_err() {
            eprintln!("could not drop the database {}", self.name);
        }
    }
}

async fn execute(server: &str, sql: &str) -> Result<(), sqlx::Error> {
    let options = PgConnectOptions::from_str(server)?;
    let mut connection = PgConnection::connect_with(&options).await?;
    sqlx::raw_sql(sqlx::AssertSqlSafe(sql.to_owned())).execute(&mut connection).await?;
    connection.close().await
}

fn with_database(server: &str, name: &str) -> String {
    let (address, parameters) = server.split_once('?').unwrap_or((server, ""));
    let (host, _) = address.rsplit_once('/').expect("a URL that names a database");
    let question_mark = if parameters.is_empty() { "" } else { "?" };
    format!("{host}/{name}{question_mark}{parameters}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_database_in_a_url_is_replaced_and_the_rest_kept() {
        assert_eq!(with_database("postgres://u:p@h:1/x", "y"), "postgres://u:p@h:1/y");
        assert_eq!(with_database("postgres://h/x?a=b/c", "y"), "postgres://h/y?a=b/c");
    }
}
