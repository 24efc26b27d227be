//! The two schemas are one schema in two dialects.

use std::collections::BTreeMap;

use sqlx::Row as _;

use crate::world::{StorePlace, World, connect};

#[test]
fn migrations_have_the_same_numbers_and_names_on_both_sides() {
    let sqlite: Vec<_> = shikiri_sqlite::MIGRATIONS.iter().map(|m| (m.number, m.name)).collect();
    let postgres: Vec<_> =
        shikiri_store::postgres::MIGRATIONS.iter().map(|m| (m.number, m.name)).collect();
    assert_eq!(sqlite, postgres);
    let numbers: Vec<_> = sqlite.iter().map(|(number, _)| *number).collect();
    assert_eq!(numbers, (1..=sqlite.len() as u32).collect::<Vec<_>>(), "no number is left out");
}

/// Column by table, with whether it may be empty.
type Tables = BTreeMap<String, BTreeMap<String, bool>>;

#[tokio::test]
async fn every_table_has_the_same_columns_on_both_sides() {
    let mut found = Vec::new();
    for world in World::each("a story of the store").await {
        drop(world.open().await);
        found.push(match world.place() {
            StorePlace::File(path) => sqlite_tables(&path),
            StorePlace::Database(url) => postgres_tables(&url).await,
        });
    }
    for table in ["streams", "events", "leases", "records", "facts"] {
        assert!(found[0].contains_key(table), "{:?}", found[0].keys());
    }
    for other in &found[1..] {
        assert_eq!(found[0], *other);
    }
}

fn sqlite_tables(path: &std::path::Path) -> Tables {
    let database = shikiri_sqlite::SqliteDatabase::open_reader(path, &Default::default()).unwrap();
    let mut statement = database
        .prepare(
            "SELECT t.name, c.name, c.\"notnull\" = 0 AND c.pk = 0
             FROM sqlite_schema t JOIN pragma_table_info(t.name) c
             WHERE t.type = 'table' AND t.name NOT LIKE 'sqlite_%'",
        )
        .unwrap();
    let mut tables = Tables::new();
    let columns =
        statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?))).unwrap();
    for column in columns {
        let (table, name, optional): (String, String, bool) = column.unwrap();
        tables.entry(table).or_default().insert(name, optional);
    }
    tables
}

async fn postgres_tables(url: &str) -> Tables {
    let sql = "SELECT table_name::text, column_name::text, is_nullable = 'YES'
               FROM information_schema.columns NATURAL JOIN information_schema.tables
               WHERE table_schema = current_schema() AND table_type = 'BASE TABLE'";
    let mut tables = Tables::new();
    for row in sqlx::query(sql).fetch_all(&mut connect(url).await).await.unwrap() {
        tables.entry(row.get(0)).or_default().insert(row.get(1), row.get(2));
    }
    tables
}
