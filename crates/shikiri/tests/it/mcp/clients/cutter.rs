//! A proxy that cuts connections in the middle of a message.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// Passes everything on, until the wanted words have come from the server often enough: then the
/// connection ends halfway through them.
pub(super) struct Cutter {
    port: u16,
    plan: Arc<Mutex<Plan>>,
    accepting: JoinHandle<()>,
}

struct Plan {
    words: &'static [u8],
    /// How often the words must come, for each cut.
    counts: VecDeque<usize>,
    /// Since the last cut.
    seen: usize,
}

impl Cutter {
    pub(super) async fn start(server: u16, words: &'static [u8], counts: &[usize]) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let counts = counts.iter().copied().collect();
        let plan = Arc::new(Mutex::new(Plan { words, counts, seen: 0 }));
        let shared = Arc::clone(&plan);
        let accepting = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                // It ends with either side.
                tokio::spawn(pass(client, server, Arc::clone(&shared)));
            }
        });
        Self { port, plan, accepting }
    }

    pub(super) fn url(&self) -> String {
        format!("http://127.0.0.1:{}/mcp", self.port)
    }

    /// Whether every cut was made.
    pub(super) fn is_done(&self) -> bool {
        lock(&self.plan).counts.is_empty()
    }
}

impl Drop for Cutter {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

impl Plan {
    /// Where in what came last the connection is to end, if it is.
    fn cut(&mut self, line: &mut Vec<u8>, came: &[u8]) -> Option<usize> {
        let before = line.len();
        line.extend_from_slice(came);
        let mut from = 0;
        while let Some(found) = find(&line[from..], self.words) {
            let start = from + found;
            from = start + self.words.len();
            self.seen += 1;
            if Some(&self.seen) == self.counts.front() {
                self.counts.pop_front();
                self.seen = 0;
                return Some((start + self.words.len() / 2).saturating_sub(before));
            }
        }
        // What may be the beginning of the words, to be looked at again.
        let kept = line.len().saturating_sub(self.words.len() - 1).max(from);
        line.drain(..kept);
        None
    }
}

fn find(text: &[u8], words: &[u8]) -> Option<usize> {
    text.windows(words.len()).position(|window| window == words)
}

async fn pass(client: TcpStream, server: u16, plan: Arc<Mutex<Plan>>) {
    let Ok(server) = TcpStream::connect(("127.0.0.1", server)).await else { return };
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let answers = async {
        let (mut line, mut part) = (Vec::new(), vec![0; 16 * 1024]);
        loop {
            let count = from_server.read(&mut part).await.unwrap_or(0);
            let came = &part[..count];
            let cut = lock(&plan).cut(&mut line, came);
            let passed = to_client.write_all(&came[..cut.unwrap_or(count)]).await;
            if count == 0 || cut.is_some() || passed.is_err() {
                return;
            }
        }
    };
    tokio::select! {
        () = answers => {}
        _ = tokio::io::copy(&mut from_client, &mut to_server) => {}
    }
}

fn lock(plan: &Mutex<Plan>) -> MutexGuard<'_, Plan> {
    plan.lock().unwrap_or_else(PoisonError::into_inner)
}

#[test]
fn words_are_found_wherever_a_packet_ends() {
    let mut plan = Plan { words: b"word", counts: [2, 1].into(), seen: 0 };
    let (mut first, mut second) = (Vec::new(), Vec::new());
    let parts: [&[u8]; 4] = [b"a wo", b"rd, a w", b"or", b"d and more"];
    let cuts: Vec<_> = parts.iter().map(|part| plan.cut(&mut first, part)).collect();
    assert_eq!(cuts, [None, None, None, Some(0)]);
    assert_eq!(plan.cut(&mut second, b"a word, a word"), Some(4));
    assert!(plan.counts.is_empty());
}
