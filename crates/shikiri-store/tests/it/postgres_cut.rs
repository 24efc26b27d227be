//! A connection that breaks exactly at COMMIT. The caller is told that the outcome is unknown,
//! and the store does not try again by itself: it might write twice.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use shikiri_store::{Commit, CommitError, Store as _, StoreError};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::postgres_world::{database, node};
use crate::words::{append, numbered, read_after, write};

const PASS: u8 = 0;
/// The server never hears COMMIT.
const CUT_BEFORE: u8 = 1;
/// The server commits, and its answer is lost.
const CUT_AFTER: u8 = 2;

/// Stands between a node and its server, and cuts once when told.
struct Wire {
    address: String,
    plan: Arc<AtomicU8>,
}

impl Wire {
    async fn to(server: String) -> Self {
        let entrance = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = entrance.local_addr().unwrap().to_string();
        let plan = Arc::new(AtomicU8::new(PASS));
        let shared = Arc::clone(&plan);
        tokio::spawn(async move {
            while let Ok((client, _)) = entrance.accept().await {
                let server = TcpStream::connect(&server).await.unwrap();
                tokio::spawn(carry(client, server, Arc::clone(&shared)));
            }
        });
        Self { address, plan }
    }
}

async fn carry(client: TcpStream, server: TcpStream, plan: Arc<AtomicU8>) {
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let answers = tokio::spawn(async move {
        let _ = tokio::io::copy(&mut from_server, &mut to_client).await;
    });
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(length @ 1..) = from_client.read(&mut buffer).await {
        let message = &buffer[..length];
        if message.starts_with(b"Q") && message.windows(6).any(|word| word == b"COMMIT") {
            let cut = plan.swap(PASS, Ordering::SeqCst);
            if cut == CUT_BEFORE {
                break;
            }
            if cut == CUT_AFTER {
                answers.abort();
                let _ = answers.await;
                let _ = to_server.write_all(message).await;
                return;
            }
        }
        if to_server.write_all(message).await.is_err() {
            break;
        }
    }
    answers.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cut_at_commit_is_told_as_unknown_and_never_written_twice() {
    let Some(database) = database().await else { return };
    let (credentials, rest) = database.url().rsplit_once('@').unwrap();
    let (server, name) = rest.split_once('/').unwrap();
    let wire = Wire::to(server.to_owned()).await;
    let store = node(&format!("{credentials}@{}/{name}", wire.address)).await;
    write(&store, "s", &["first"]).await;

    for (cut, text) in [(CUT_BEFORE, "not heard"), (CUT_AFTER, "not answered")] {
        wire.plan.store(cut, Ordering::SeqCst);
        let outcome = store.commit(Commit::new().append(append("s", &[text]))).await;
        let unknown = matches!(outcome, Err(CommitError::Store(StoreError::Unknown(_))));
        assert!(unknown, "{text}: {outcome:?}");
        // The same store goes on.
        write(&store, "s", &[&format!("after {text}")]).await;
    }
    let expected = ["first", "after not heard", "not answered", "after not answered"];
    assert_eq!(read_after(&store, "s", 0).await, numbered(1, &expected));
}
