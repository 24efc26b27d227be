//! What the PostgreSQL tests stand on: nodes on real time, and a follower as a live reader is.

use shikiri_model::event::{Chunk, Seq};
use shikiri_store::postgres::{PostgresOptions, PostgresStore};
use shikiri_store::{HubSubscription, HubTopic, HubWake, Store};
use shikiri_testkit::{TestDatabase, have_postgres};

use crate::words::{acme, stream};

/// A fresh database; none (and said so) if there is no server.
pub(crate) async fn database() -> Option<Database> {
    if !have_postgres("a test of several nodes") {
        return None;
    }
    Some(Database(TestDatabase::create().await))
}

pub(crate) struct Database(TestDatabase);

impl Database {
    pub(crate) fn url(&self) -> &str {
        self.0.url()
    }

    pub(crate) async fn node(&self) -> PostgresStore {
        node(self.url()).await
    }
}

/// A node as in production: the database's time.
pub(crate) async fn node(url: &str) -> PostgresStore {
    let options = PostgresOptions { max_connections: 6, ..PostgresOptions::default() };
    PostgresStore::connect(url, options).await.unwrap()
}

/// A live reader of one of acme's streams: replays, then follows.
pub(crate) struct Follower<'a> {
    store: &'a dyn Store,
    name: String,
    news: HubSubscription,
    pub(crate) seen: Vec<(Seq, String)>,
}

impl<'a> Follower<'a> {
    pub(crate) fn of(store: &'a dyn Store, name: &str) -> Self {
        let news = store.hub().subscribe(HubTopic::Stream(stream(name)));
        Self { store, name: name.to_owned(), news, seen: Vec::new() }
    }

    /// Until it has seen this event.
    pub(crate) async fn reach(&mut self, seq: Seq) {
        self.look().await;
        while self.cursor() < seq {
            for wake in self.news.next().await {
                match wake {
                    // This node's chunk may come before the news of another node's.
                    HubWake::Chunk { chunk, .. } if chunk.first_seq() <= self.cursor() + 1 => {
                        self.take(&chunk);
                    }
                    _ => self.look().await,
                }
            }
        }
    }

    fn cursor(&self) -> Seq {
        self.seen.last().map_or(0, |(seq, _)| *seq)
    }

    fn take(&mut self, chunk: &Chunk) {
        let fresh = chunk.events_after(self.cursor()).map(|e| (e.seq, e.data.to_owned()));
        self.seen.extend(fresh.collect::<Vec<_>>());
    }

    /// A store that is away for a moment is asked again, as a real reader would do.
    async fn look(&mut self) {
        loop {
            let read = self.store.read(&acme(), &stream(&self.name), self.cursor(), 1 << 20).await;
            match read {
                Ok(page) => {
                    page.chunks.iter().for_each(|chunk| self.take(chunk));
                    if self.cursor() >= page.extent.head {
                        return;
                    }
                }
                Err(shikiri_store::StoreError::NoStream(_)) => return,
                Err(shikiri_store::StoreError::Unavailable(_)) => {}
                Err(other) => panic!("{other}"),
            }
        }
    }
}
