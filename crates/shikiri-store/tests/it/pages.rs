//! Reading in pages: bounded, and never empty while there is more.

use shikiri_model::event::Chunk;
use shikiri_store::{Commit, Store};

use crate::words::{acme, append, read_after, stream, write};
use crate::world::on_both;

async fn page(store: &dyn Store, after: u64, max_bytes: usize) -> Vec<Chunk> {
    store.read(&acme(), &stream("s"), after, max_bytes).await.unwrap().chunks
}

#[tokio::test]
async fn pages_are_bounded_by_bytes_and_lead_to_the_head() {
    on_both(async |world| {
        let store = world.open().await;
        let text = "字".repeat(300);
        for _ in 0..60 {
            write(&*store, "s", &[&text]).await;
        }
        let one = page(&*store, 0, 1).await[0].body().len();
        for max_bytes in [0, 1, one, 4 * one, 10 * one + 7, 1 << 20, usize::MAX] {
            let mut cursor = 0;
            let mut pages = 0;
            while cursor < 60 {
                let chunks = page(&*store, cursor, max_bytes).await;
                assert!(!chunks.is_empty(), "an empty page after {cursor} of {max_bytes} bytes");
                // It may be the last chunk that crosses the bound.
                let size: usize = chunks[1..].iter().map(|chunk| chunk.body().len()).sum();
                assert!(size <= max_bytes, "{size} bytes where {max_bytes} are allowed");
                for chunk in chunks {
                    assert_eq!(chunk.first_seq(), cursor + 1);
                    cursor = chunk.last_seq();
                }
                pages += 1;
            }
            let least = 60 * one / max_bytes.clamp(one, 60 * one);
            assert!(pages <= 2 * least + 1, "{pages} pages of {max_bytes} bytes");
        }
    })
    .await;
}

#[tokio::test]
async fn an_event_larger_than_the_page_comes_alone() {
    on_both(async |world| {
        let store = world.open().await;
        let large = "大".repeat(700_000);
        write(&*store, "s", &["前"]).await;
        write(&*store, "s", &[&large]).await;
        write(&*store, "s", &["後"]).await;
        let chunks = page(&*store, 1, 1000).await;
        assert_eq!(chunks.iter().map(Chunk::last_seq).collect::<Vec<_>>(), [2]);
        assert!(chunks[0].body().contains(&large));
        assert_eq!(read_after(&*store, "s", 0).await.len(), 3);
    })
    .await;
}

#[tokio::test]
async fn a_cursor_inside_a_chunk_is_served_from_that_chunk() {
    on_both(async |world| {
        let store = world.open().await;
        let texts: Vec<_> = (1..=9).map(|n| format!("第{n}")).collect();
        let texts: Vec<_> = texts.iter().map(String::as_str).collect();
        store.commit(Commit::new().append(append("s", &texts))).await.unwrap();
        write(&*store, "s", &["第10"]).await;
        for after in 0..=10 {
            let seqs: Vec<_> = read_after(&*store, "s", after).await.iter().map(|e| e.0).collect();
            assert_eq!(seqs, (after + 1..=10).collect::<Vec<_>>());
            let first = page(&*store, after, 1).await;
            assert_eq!(first.is_empty(), after == 10);
        }
    })
    .await;
}

#[tokio::test]
async fn a_large_commit_lies_in_several_chunks_and_is_read_whole() {
    on_both(async |world| {
        let store = world.open().await;
        let text = "長".repeat(5_000);
        let texts = vec![text.as_str(); 80];
        assert_eq!(write(&*store, "s", &texts).await, (1, 80));
        assert!(page(&*store, 0, usize::MAX).await.len() > 1);
        let seqs: Vec<_> = read_after(&*store, "s", 0).await.iter().map(|e| e.0).collect();
        assert_eq!(seqs, (1..=80).collect::<Vec<_>>());
    })
    .await;
}
