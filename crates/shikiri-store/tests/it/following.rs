//! A reader that subscribes, reads, then follows: it sees everything once, in order.

use std::sync::Arc;

use futures_util::future::join_all;
use shikiri_model::event::{Chunk, Seq};
use shikiri_store::{Commit, HubSubscription, HubTopic, HubWake, Store};
use tokio::time::timeout;

use crate::words::{SECOND, acme, append, closing, stream, write};
use crate::world::on_both;

/// The smallest honest reader: what the hub does not give it whole, it reads from the store.
struct Reader {
    store: Arc<dyn Store>,
    news: HubSubscription,
    seen: Vec<(Seq, String)>,
    closed: bool,
}

impl Reader {
    async fn start(store: Arc<dyn Store>) -> Self {
        let news = store.hub().subscribe(HubTopic::Stream(stream("流")));
        let mut reader = Self { store, news, seen: Vec::new(), closed: false };
        reader.catch_up().await;
        reader
    }

    fn cursor(&self) -> Seq {
        self.seen.last().map_or(0, |(seq, _)| *seq)
    }

    async fn catch_up(&mut self) {
        loop {
            let name = stream("流");
            let Ok(page) = self.store.read(&acme(), &name, self.cursor(), 8 * 1024).await else {
                return; // Not written to yet.
            };
            page.chunks.iter().for_each(|chunk| self.take(chunk));
            self.closed = page.extent.closed;
            if self.cursor() >= page.extent.head {
                return;
            }
        }
    }

    fn take(&mut self, chunk: &Chunk) {
        let after = self.cursor();
        self.seen.extend(chunk.events_after(after).map(|e| (e.seq, e.data.to_owned())));
    }

    /// Follows to the end of the stream.
    async fn follow(mut self) -> Vec<(Seq, String)> {
        while !self.closed {
            let news = timeout(20 * SECOND, self.news.next()).await.expect("a wake-up");
            for wake in news {
                match wake {
                    HubWake::Chunk { chunk, closes } if chunk.first_seq() <= self.cursor() + 1 => {
                        self.take(&chunk);
                        self.closed |= closes;
                    }
                    _ => self.catch_up().await,
                }
            }
        }
        self.catch_up().await;
        self.seen
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn followers_see_everything_once_while_four_writers_on_two_handles_append() {
    on_both(async |world| {
        let (one, two) = world.two_handles().await;
        let mut readers = Vec::new();
        for store in [&one, &two, &one, &two] {
            let store = store.clone();
            readers.push(tokio::spawn(async move { Reader::start(store).await.follow().await }));
        }
        let writers = (0..4).map(|writer| {
            let store = if writer % 2 == 0 { one.clone() } else { two.clone() };
            tokio::spawn(async move {
                for n in 0..60 {
                    write(&*store, "流", &[&format!("作家{writer}の第{n}"), "続き"]).await;
                }
            })
        });
        let writers = tokio::spawn(join_all(writers));
        // One comes in the middle.
        tokio::time::sleep(SECOND / 20).await;
        let late = Reader::start(two.clone()).await;
        readers.push(tokio::spawn(late.follow()));
        writers.await.unwrap().into_iter().for_each(|writer| writer.unwrap());
        one.commit(Commit::new().append(closing(append("流", &["終"])))).await.unwrap();

        let stored = crate::words::read_after(&*one, "流", 0).await;
        assert_eq!(stored.len(), 4 * 60 * 2 + 1);
        for reader in readers {
            assert_eq!(reader.await.unwrap(), stored);
        }
    })
    .await;
}

#[tokio::test]
async fn a_commit_reaches_a_subscriber_of_its_own_handle_as_a_chunk() {
    on_both(async |world| {
        let store = world.open().await;
        let mut news = store.hub().subscribe(HubTopic::Stream(stream("流")));
        write(&*store, "流", &["速報"]).await;
        let wakes = timeout(5 * SECOND, news.next()).await.unwrap();
        let HubWake::Chunk { chunk, closes } = &wakes[0] else { panic!("{wakes:?}") };
        assert_eq!((chunk.first_seq(), *closes), (1, false));
        assert!(chunk.body().contains("速報"));
        let page = store.read(&acme(), &stream("流"), 0, 1000).await.unwrap();
        assert_eq!(
            page.chunks,
            std::slice::from_ref(chunk),
            "a live reader and a replay see the same bytes"
        );
    })
    .await;
}

#[tokio::test]
async fn closing_wakes_followers_on_every_handle_also_without_an_event() {
    on_both(async |world| {
        let (one, two) = world.two_handles().await;
        write(&*one, "流", &["一"]).await;
        let readers: Vec<_> = join_all([Reader::start(one.clone()), Reader::start(two.clone())])
            .await
            .into_iter()
            .map(|reader| tokio::spawn(reader.follow()))
            .collect();
        // Nothing else must be under way that would wake them by chance.
        tokio::time::sleep(SECOND / 4).await;
        one.commit(Commit::new().append(closing(append("流", &[])))).await.unwrap();
        for reader in readers {
            assert_eq!(reader.await.unwrap().len(), 1);
        }
    })
    .await;
}

#[tokio::test]
async fn a_reader_that_fell_far_behind_still_gets_everything() {
    on_both(async |world| {
        let store = world.open().await;
        let reader = Reader::start(store.clone()).await;
        for n in 0..150 {
            write(&*store, "流", &[&format!("第{n}")]).await;
        }
        store.commit(Commit::new().append(closing(append("流", &["終"])))).await.unwrap();
        let seqs: Vec<_> = reader.follow().await.into_iter().map(|(seq, _)| seq).collect();
        assert_eq!(seqs, (1..=151).collect::<Vec<_>>());
    })
    .await;
}
