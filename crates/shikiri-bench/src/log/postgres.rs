//! A database of its own on the server that the tests use.

use std::str::FromStr as _;

use anyhow::{Context, Result};
use shikiri_store::{Clock, SystemClock};
use sqlx::postgres::PgConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _, Executor as _, PgConnection};

pub(crate) struct ScratchDatabase {
    server: String,
    name: String,
    url: String,
}

impl ScratchDatabase {
    pub(crate) async fn create(server: &str) -> Result<Self> {
        let name = format!("bench_{}_{}", SystemClock.now().as_millis(), std::process::id());
        execute(server, format!("CREATE DATABASE {name}")).await?;
        let options = PgConnectOptions::from_str(server)?.database(&name);
        let url = options.to_url_lossy().to_string();
        Ok(Self { server: server.to_owned(), name, url })
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    pub(crate) async fn remove(self) -> Result<()> {
        execute(&self.server, format!("DROP DATABASE {} WITH (FORCE)", self.name)).await
    }
}

async fn execute(server: &str, sql: String) -> Result<()> {
    let options = PgConnectOptions::from_str(server).context("SHIKIRI_TEST_POSTGRES")?;
    let mut connection = PgConnection::connect_with(&options).await?;
    connection.execute(sqlx::query(AssertSqlSafe(sql))).await?;
    Ok(connection.close().await?)
}
