//! The worlds in which a story is told: a fresh SQLite file and a fresh PostgreSQL database,
//! with a clock that the story moves.

use std::str::FromStr as _;

pub(crate) use shikiri_testkit::{StorePlace, TestStore as World};
use sqlx::postgres::PgConnectOptions;
use sqlx::{Connection as _, PgConnection};

/// Tells the story in every world.
pub(crate) async fn on_both(story: impl AsyncFn(World)) {
    for world in World::each("a story of the store").await {
        eprintln!("on {}:", world.backend());
        story(world).await;
    }
}

pub(crate) async fn connect(url: &str) -> PgConnection {
    let options = PgConnectOptions::from_str(url).expect("a PostgreSQL URL");
    PgConnection::connect_with(&options).await.expect("the PostgreSQL server of the tests")
}
