//! First starts, and starts that cannot succeed: one line each, that says what to do next and
//! never shows the password.

use shikiri_store::postgres::{MIGRATIONS, PostgresOptions, PostgresStore};
use shikiri_store::{Store as _, StoreError};

use crate::postgres_world::{database, node};
use crate::words::{read_after, write};
use crate::world::connect;

async fn refusal(url: &str) -> String {
    let refused = PostgresStore::connect(url, PostgresOptions::default()).await;
    let text = refused.map(drop).expect_err("a refusal").to_string();
    assert!(!text.contains('\n'), "{text:?} is more than one line");
    text
}

#[tokio::test(flavor = "multi_thread")]
async fn eight_nodes_start_at_once_on_an_empty_database() {
    let Some(database) = database().await else { return };
    let url = database.url().to_owned();
    let starts: Vec<_> = (0..8)
        .map(|n| {
            let url = url.clone();
            tokio::spawn(async move {
                let node = node(&url).await;
                write(&node, "s", &["x"]).await;
                write(&node, &format!("s{n}"), &["x"]).await;
            })
        })
        .collect();
    for start in starts {
        start.await.unwrap();
    }
    assert_eq!(read_after(&database.node().await, "s", 0).await.len(), 8);
    let mut connection = connect(&url).await;
    let applied: i64 = sqlx::query_scalar("SELECT count(*) FROM schema_version")
        .fetch_one(&mut connection)
        .await
        .unwrap();
    assert_eq!(applied, MIGRATIONS.len() as i64);
}

#[tokio::test]
async fn a_newer_schema_is_refused_and_left_alone() {
    let Some(database) = database().await else { return };
    drop(database.node().await);
    let mut connection = connect(database.url()).await;
    let sql = "INSERT INTO schema_version (version, applied_at) VALUES (999, 'later')";
    sqlx::query(sql).execute(&mut connection).await.unwrap();
    let known = MIGRATIONS[MIGRATIONS.len() - 1].number;
    assert_eq!(
        refusal(database.url()).await,
        format!("made by a newer Shikiri (schema 999, this one knows {known}): upgrade this node")
    );
}

#[tokio::test]
async fn a_schema_that_a_newer_program_brought_meanwhile_fails_the_probe() {
    let Some(database) = database().await else { return };
    let node = database.node().await;
    node.probe().await.unwrap();
    let mut connection = connect(database.url()).await;
    let sql = "INSERT INTO schema_version (version, applied_at) VALUES (999, 'later')";
    sqlx::query(sql).execute(&mut connection).await.unwrap();
    let told = node.probe().await.unwrap_err();
    assert!(matches!(told, StoreError::Broken(_)), "{told:?}");
    assert!(told.to_string().contains("newer Shikiri (schema 999"), "{told}");
}

#[tokio::test]
async fn looking_at_an_older_schema_tells_of_it_and_migrates_nothing() {
    let Some(database) = database().await else { return };
    let look = || PostgresStore::connect_current(database.url(), PostgresOptions::default());
    let refused = look().await.map(drop).unwrap_err();
    let needed = MIGRATIONS[MIGRATIONS.len() - 1].number;
    assert_eq!(
        refused.to_string(),
        format!(
            "the database has the older schema 0 (this Shikiri needs {needed}): \
             run `shikiri db migrate`"
        )
    );
    let mut connection = connect(database.url()).await;
    let made: i64 = sqlx::query_scalar(
        "SELECT count(*) FROM information_schema.tables WHERE table_schema = 'public'",
    )
    .fetch_one(&mut connection)
    .await
    .unwrap();
    assert_eq!(made, 0, "tables were made");

    drop(database.node().await);
    look().await.unwrap().probe().await.unwrap();
    let sql = "INSERT INTO schema_version (version, applied_at) VALUES (999, 'later')";
    sqlx::query(sql).execute(&mut connection).await.unwrap();
    let refused = look().await.map(drop).unwrap_err().to_string();
    assert!(refused.contains("newer Shikiri (schema 999"), "{refused}");
}

#[tokio::test]
async fn wrong_credentials_are_told_without_the_password() {
    let Some(database) = database().await else { return };
    let (_, address) = database.url().rsplit_once('@').unwrap();
    let text = refusal(&format!("postgres://absent:sesame-7@{address}")).await;
    assert!(text.contains("refused user absent: correct user or password"), "{text}");
    assert!(!text.contains("sesame"), "{text}");

    let (server, _) = database.url().rsplit_once('/').unwrap();
    let text = refusal(&format!("{server}/nowhere")).await;
    assert!(text.contains("has no database nowhere: create it"), "{text}");

    let (_, password) = server.rsplit_once('@').unwrap().0.rsplit_once(':').unwrap();
    assert!(!text.contains(password), "{text}");
    let store = database.node().await;
    assert!(!format!("{store:?}").contains(password), "the password is not for output");
}

#[tokio::test]
async fn a_user_who_may_not_create_tables_is_told_the_grant() {
    let Some(database) = database().await else { return };
    let mut connection = connect(database.url()).await;
    let name = format!("guest_{}", std::process::id());
    let sql = format!(
        "CREATE ROLE {name} LOGIN PASSWORD 'sesame-7'; REVOKE CREATE ON SCHEMA public FROM PUBLIC"
    );
    sqlx::raw_sql(sqlx::AssertSqlSafe(sql)).execute(&mut connection).await.unwrap();
    let (_, address) = database.url().rsplit_once('@').unwrap();
    let text = refusal(&format!("postgres://{name}:sesame-7@{address}")).await;
    let sql = format!("DROP ROLE {name}");
    sqlx::raw_sql(sqlx::AssertSqlSafe(sql)).execute(&mut connection).await.unwrap();
    assert!(text.contains(&format!("GRANT CREATE ON SCHEMA public TO \"{name}\"")), "{text}");
    assert!(!text.contains("sesame"), "{text}");
}

/// Until the tests' server learns TLS, this is the way to see that `sslmode` is obeyed.
#[tokio::test]
async fn a_demand_for_tls_is_not_met_by_a_plain_connection() {
    let Some(database) = database().await else { return };
    let text = refusal(&format!("{}?sslmode=require", database.url())).await;
    assert!(text.contains("no trusted TLS connection") && text.contains("sslmode"), "{text}");
}

#[tokio::test]
async fn a_server_that_is_not_there_is_told_without_the_password() {
    let url = "postgres://ann:sesame-7@127.0.0.1:1/shikiri";
    let refused = PostgresStore::connect(url, PostgresOptions::default()).await;
    let refused = refused.map(drop).expect_err("no server is there");
    assert!(matches!(refused, StoreError::Unavailable(_)), "{refused:?}");
    let text = refused.to_string();
    assert!(text.contains("cannot use PostgreSQL at 127.0.0.1:1"), "{text}");
    assert!(text.contains("start it or correct the store URL"), "{text}");
    assert!(!format!("{refused:?}").contains("sesame"), "{refused:?}");
}

#[tokio::test]
async fn urls_that_cannot_be_read_are_refused_without_showing_them() {
    for url in [
        "mysql://ann:sesame-7@host/db",
        "postgres://ann:sesame-7@host:port/db",
        "postgres://ann:sesame-7/x@host/db",
        "postgres://ann:12/sesame-7@host/db",
        "postgres://ann@host/db?pasword=sesame-7",
        "postgres://ann:sesame-7@host/db?sslmode=perhaps",
        "postgres://ann:sesame-7@[host/db",
        "",
    ] {
        let text = refusal(url).await;
        assert!(text.contains("write it as postgres://user:password@host:5432/database"), "{text}");
        assert!(!text.contains("sesame"), "{text}");
    }
}
