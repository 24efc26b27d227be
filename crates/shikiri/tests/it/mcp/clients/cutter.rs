//! A proxy that cuts connections in the middle of a message.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// Passes everything on, until words have come from the server often enough: then the connection
/// ends halfway through them.
pub(super) struct Cutter {
    port: u16,
    plan: Arc<Mutex<Plan>>,
    accepting: JoinHandle<()>,
}

struct Plan {
    /// The words for each cut, and how often they must come.
    cuts: VecDeque<Place>,
    /// Since the last cut.
    seen: usize,
}

type Place = (&'static [u8], usize);

impl Cutter {
    pub(super) async fn start(server: u16, cuts: &[Place]) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let cuts = cuts.iter().copied().collect();
        let plan = Arc::new(Mutex::new(Plan { cuts, seen: 0 }));
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
        lock(&self.plan).cuts.is_empty()
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
        let &(words, count) = self.cuts.front()?;
        let before = line.len();
        line.extend_from_slice(came);
        let mut from = 0;
        while let Some(found) = find(&line[from..], words) {
            let start = from + found;
            from = start + words.len();
            self.seen += 1;
            if self.seen == count {
                self.cuts.pop_front();
                self.seen = 0;
                return Some((start + words.len() / 2).saturating_sub(before));
            }
        }
        // What may be the beginning of the words, to be looked at again.
        let kept = line.len().saturating_sub(words.len() - 1).max(from);
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
    let cuts: [Place; 2] = [(b"word", 2), (b"more", 1)];
    let mut plan = Plan { cuts: cuts.into(), seen: 0 };
    let (mut first, mut second) = (Vec::new(), Vec::new());
    let parts: [&[u8]; 4] = [b"a wo", b"rd, a w", b"or", b"d and more"];
    let cuts: Vec<_> = parts.iter().map(|part| plan.cut(&mut first, part)).collect();
    assert_eq!(cuts, [None, None, None, Some(0)]);
    assert_eq!(plan.cut(&mut second, b"a word, and more"), Some(14));
    assert_eq!(plan.cut(&mut second, b"a word, and more"), None, "every cut was made");
}
