//! The tables and views of both databases, as snapshots: people read them with SQL, and older nodes
//! share them during an upgrade.

use shikiri_store::sqlite::{SqliteOptions, SqliteStore};

use crate::postgres_world::database;
use crate::world::connect;

const SQLITE: &str = "SELECT o.type || ' ' || o.name || '.' || c.name || ' ' || c.type
    FROM sqlite_master o, pragma_table_xinfo(o.name) c
    WHERE o.type IN ('table', 'view') AND o.name NOT LIKE 'sqlite_%'
    ORDER BY o.name, c.cid";
const POSTGRES: &str = "SELECT lower(t.table_type) || ' ' || t.table_name || '.' || c.column_name
        || ' ' || c.data_type
    FROM information_schema.tables t JOIN information_schema.columns c USING (table_schema, table_name)
    WHERE t.table_schema = 'public' ORDER BY t.table_name, c.ordinal_position";

#[tokio::test]
#[expect(clippy::disallowed_methods, reason = "reads the tables as any other program would")]
async fn columns_of_sqlite() {
    let folder = tempfile::TempDir::new().unwrap();
    let path = folder.path().join("state.db");
    drop(SqliteStore::open(&path, SqliteOptions::default()).unwrap());
    let file = rusqlite::Connection::open(&path).unwrap();
    let mut statement = file.prepare(SQLITE).unwrap();
    let columns = statement.query_map((), |row| row.get::<_, String>(0)).unwrap();
    let columns: Vec<String> = columns.collect::<Result<_, _>>().unwrap();
    insta::assert_snapshot!(columns.join("\n"));
}

#[tokio::test]
async fn columns_of_postgres() {
    let Some(database) = database().await else { return };
    drop(database.node().await);
    let mut connection = connect(database.url()).await;
    let columns: Vec<String> =
        sqlx::query_scalar(POSTGRES).fetch_all(&mut connection).await.unwrap();
    insta::assert_snapshot!(columns.join("\n"));
}
