//! Real connections: timeouts, drain, what arrives when.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use serde_json::json;
use shikiri_testkit::until;
use shikiri_web::WebOptions;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::world::World;

pub(crate) struct Connection {
    stream: TcpStream,
    seen: String,
}

/// Sends a GET, with a key if it is not empty.
pub(crate) async fn connect(address: SocketAddr, key: &str, path: &str) -> Connection {
    let mut connection = open(address).await;
    let key =
        if key.is_empty() { String::new() } else { format!("Authorization: Bearer {key}\r\n") };
    connection.send(&format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n{key}\r\n")).await;
    connection
}

async fn open(address: SocketAddr) -> Connection {
    Connection { stream: TcpStream::connect(address).await.unwrap(), seen: String::new() }
}

impl Connection {
    async fn send(&mut self, text: &str) {
        self.stream.write_all(text.as_bytes()).await.unwrap();
    }

    /// Reads on; false at the end.
    async fn read(&mut self) -> bool {
        let mut piece = vec![0; 16 * 1024];
        let reading = self.stream.read(&mut piece);
        let read = tokio::time::timeout(Duration::from_secs(15), reading).await.expect("silence");
        let count = read.unwrap_or(0);
        self.seen.push_str(&String::from_utf8_lossy(&piece[..count]));
        count > 0
    }

    /// Everything up to and with those words.
    pub(crate) async fn until(&mut self, words: &str) -> String {
        while !self.seen.contains(words) {
            assert!(self.read().await, "{words:?} never came: {}", self.seen);
        }
        self.seen.clone()
    }

    pub(crate) async fn head(&mut self) -> String {
        self.until("\r\n\r\n").await
    }

    pub(crate) async fn until_end(&mut self) -> String {
        while self.read().await {}
        self.seen.clone()
    }
}

#[tokio::test]
async fn a_half_sent_request_is_closed_within_ten_seconds() {
    let world = World::new().await;
    let serving = world.serve(WebOptions::default()).await;
    let key = &world.admin;
    let post = format!(
        "POST /v1/tenants HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {key}\r\n\
         Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{{\"id\":"
    );
    let halves = [String::new(), "GET /healthz HTTP/1.1\r\nHo".to_owned(), post];
    let closed = halves.map(|half| async move {
        let mut connection = open(serving.address).await;
        connection.send(&half).await;
        let begun = Instant::now();
        let answer = connection.until_end().await;
        assert!(begun.elapsed() < Duration::from_secs(10), "{half:?}");
        answer
    });
    let [first, second, third] = closed;
    let (first, second, third) = tokio::join!(first, second, third);
    assert_eq!((first.as_str(), second.as_str()), ("", ""));
    assert!(third.contains("408") && third.contains("REQUEST_TIMEOUT"), "{third}");
}

#[tokio::test]
async fn one_connection_serves_many_requests() {
    let world = World::new().await;
    let serving = world.serve(WebOptions::default()).await;
    let mut connection = open(serving.address).await;
    for _ in 0..3 {
        connection.seen.clear();
        connection.send("GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").await;
        connection.until(r#"{"status":"ok"}"#).await;
    }
}

#[tokio::test]
async fn a_large_body_gets_its_answer_although_it_is_refused() {
    let world = World::new().await;
    let serving = world.serve(WebOptions::default()).await;
    let body = "x".repeat(5 << 20);
    let mut connection = open(serving.address).await;
    let head = format!(
        "POST /v1/tenants HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {}\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        world.admin,
        body.len()
    );
    connection.send(&head).await;
    connection.send(&body).await;
    connection.until("PAYLOAD_TOO_LARGE").await;
}

#[tokio::test]
async fn a_draining_server_ends_streams_resumably_and_idle_connections_at_once() {
    let world = World::new().await;
    let serving = world.serve(WebOptions::default()).await;
    let run = world.run("local", "echo", json!({})).await;
    let path = format!("/v1/tenants/local/runs/{run}/events");
    let mut reader = connect(serving.address, &world.admin, &path).await;
    reader.until("event: queued").await;
    let mut idle = connect(serving.address, "", "/readyz").await;
    idle.until("\"ready\"").await;
    let mut fresh = open(serving.address).await;
    let mut slow = open(serving.address).await;
    slow.send("GET /readyz HTTP/1.1\r\nHost: localhost\r\n").await;
    tokio::time::sleep(Duration::from_millis(100)).await;

    let begun = Instant::now();
    serving.drain.cancel();
    let story = reader.until_end().await;
    // The body ends as it should, without a terminal event.
    assert!(story.contains(": draining\n\n") && story.ends_with("0\r\n\r\n"), "{story}");
    assert!(!story.contains("event: result") && !story.contains("event: error"), "{story}");
    idle.until_end().await;
    fresh.until_end().await;
    assert!(begun.elapsed() < Duration::from_secs(2));
    assert!(TcpStream::connect(serving.address).await.is_err(), "no new connections");
    // What was under way is answered: unready.
    slow.send("\r\n").await;
    let answer = slow.until_end().await;
    assert!(answer.starts_with("HTTP/1.1 503") && answer.contains("\"draining\""), "{answer}");
    tokio::time::timeout(Duration::from_secs(10), serving.ended).await.unwrap().unwrap().unwrap();
}

#[tokio::test]
async fn a_reader_that_is_stuck_does_not_hold_up_the_drain() {
    let world = World::new().await;
    let serving = world.serve(WebOptions::default()).await;
    let run = world.run("local", "echo", json!({})).await;
    let text = "x".repeat(1 << 20);
    for _ in 0..20 {
        world.append("local", &run, json!({ "text": text }), false).await;
    }
    let path = format!("/v1/tenants/local/runs/{run}/events");
    let _stuck = connect(serving.address, &world.admin, &path).await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    serving.drain.cancel();
    tokio::time::timeout(Duration::from_secs(10), serving.ended).await.unwrap().unwrap().unwrap();
}

#[tokio::test]
async fn a_full_house_says_so() {
    let world = World::new().await;
    let options = WebOptions { max_connections: 2, ..WebOptions::default() };
    let serving = world.serve(options).await;
    let (mut first, mut second) = (open(serving.address).await, open(serving.address).await);
    first.send("GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").await;
    first.until("ok").await;
    second.send("GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").await;
    second.until("ok").await;
    let refused = open(serving.address).await.until_end().await;
    assert!(refused.starts_with("HTTP/1.1 503"), "{refused}");
    drop(first);
    until("the place of the closed connection is free", async || {
        let mut again = open(serving.address).await;
        again.send("GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").await;
        again.until_end().await.contains("200 OK")
    })
    .await;
}
