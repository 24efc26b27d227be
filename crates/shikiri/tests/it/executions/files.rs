//! Files of a conversation over HTTP: byte for byte, confined to their workspace, whole or not at
//! all.

use std::collections::BTreeSet;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use reqwest::Method;
use serde_json::{Value, json};
use shikiri_testkit::{Answer, Client, TestApp, until};
use tokio::io::AsyncWriteExt as _;

use super::kit::Talk;
use crate::PROGRAM;
use crate::wire::Wire;

const MIB: usize = 1024 * 1024;
const LIMIT: usize = 100 * MIB;

/// A conversation and the folder of its files.
struct Desk {
    app: TestApp,
    talk: Talk,
}

impl Desk {
    async fn new() -> Self {
        let app = TestApp::new(PROGRAM).start().await;
        let talk = Talk::start(&app.tenant("writer").await).await;
        Self { app, talk }
    }

    fn client(&self) -> &Client {
        &self.talk.tenant.client
    }

    fn path(&self, file: &str) -> String {
        self.talk.path(&format!("/files/{file}"))
    }

    fn folder(&self) -> PathBuf {
        self.app.data_folder().join("workspaces").join(&self.talk.id)
    }

    fn uploads(&self) -> usize {
        std::fs::read_dir(self.app.data_folder().join("workspaces/.uploads")).unwrap().count()
    }

    async fn put(&self, file: &str, bytes: impl Into<reqwest::Body>) -> Answer {
        let request = self.client().request(Method::PUT, &self.path(file)).body(bytes);
        self.client().send(request).await
    }

    async fn get(&self, file: &str) -> Answer {
        self.client().get(&self.path(file)).await
    }

    async fn list(&self) -> Value {
        self.client().get(&self.talk.path("/files")).await.expect(200)
    }

    async fn names(&self) -> Vec<String> {
        let list = self.list().await;
        let names = list["items"].as_array().unwrap().iter();
        names.map(|file| file["path"].as_str().unwrap().to_owned()).collect()
    }

    /// A request whose target no HTTP client would send as it is.
    async fn raw(&self, method: &str, target: &str) -> String {
        let mut wire = Wire::open(self.app.port()).await;
        wire.send(&format!(
            "{method} {target} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {}\r\n\
             Content-Length: 3\r\nConnection: close\r\n\r\nnew",
            self.talk.tenant.key
        ))
        .await;
        let answer = wire.rest(Duration::from_secs(30)).await.expect("an answer");
        String::from_utf8_lossy(&answer).into_owned()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn files_come_back_as_they_went_in_under_any_name() {
    let desk = Desk::new().await;
    assert_eq!(desk.list().await, json!({ "items": [], "next_cursor": null }));
    let bytes: Vec<u8> = (0..300_000_u32).map(|number| (number * 7 % 256) as u8).collect();
    for name in ["報告書/二〇二六年 十一月.md", "a b+c&d=e#f?.txt", "100%.bin", "..."] {
        let encoded: Vec<String> = name.split('/').map(encode).collect();
        let at = encoded.join("/");
        let made = desk.put(&at, bytes.clone()).await;
        let file = made.expect(201);
        assert_eq!((&file["path"], &file["size"]), (&json!(name), &json!(300_000)));
        assert_eq!(made.header("location").unwrap(), desk.path(&at));
        let read = desk.get(&at).await;
        assert_eq!((read.status, read.body == bytes), (200, true), "{name}");
        assert_eq!(read.header("content-type"), Some("application/octet-stream"));
        assert_eq!(read.header("content-length"), Some("300000"));
        assert_eq!(read.header("x-content-type-options"), Some("nosniff"));
        let saved_as = format!("attachment; filename*=UTF-8''{}", encoded.last().unwrap());
        assert_eq!(read.header("content-disposition"), Some(saved_as.as_str()));
    }
    let list = desk.list().await;
    let first = &list["items"][0];
    assert_eq!((&first["path"], &first["size"]), (&json!("..."), &json!(300_000)), "{list}");
    assert!(first["modified_at"].as_str().unwrap().ends_with('Z'), "{list}");
    assert_eq!(desk.names().await.len(), 4);

    assert_eq!(desk.put("...", "").await.expect(200)["size"], 0, "a new version");
    assert_eq!(desk.get("...").await.body, b"");
    assert_eq!(desk.client().delete(&desk.path("...")).await.status, 204);
    desk.get("...").await.problem(404);
    desk.client().delete(&desk.path("...")).await.problem(404);
    assert_eq!(desk.names().await.len(), 3);
}

fn encode(part: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    let each = part.bytes().map(|byte| match plain(byte) {
        true => char::from(byte).to_string(),
        false => format!("%{byte:02X}"),
    });
    each.collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn no_spelling_of_a_path_leaves_the_workspace() {
    let desk = Desk::new().await;
    desk.put("kept", "kept").await.expect(201);
    let key = std::fs::read(desk.app.data_folder().join("admin.key")).unwrap();
    let long_name = "a".repeat(256);
    let long_path = "a/".repeat(513);
    let spellings = [
        "../../admin.key",
        "..%2F..%2Fadmin.key",
        "%2e%2e/%2e%2e/admin.key",
        "%2E%2E%2F%2E%2E%2Fadmin.key",
        "a/../../../admin.key",
        "./kept",
        "a//b",
        "/etc/passwd",
        "%2Fetc%2Fpasswd",
        "//etc/passwd",
        "..%5C..%5Cadmin.key",
        "..\\..\\admin.key",
        "..%00/admin.key",
        "kept%00.txt",
        "kept%0A",
        "kept%0d%0aX-Evil:%201",
        "a%7fb",
        "a/",
        "..",
        ".",
        "%2e%2e",
        &long_name,
        &long_path,
    ];
    for spelling in spellings {
        for method in ["GET", "PUT", "DELETE"] {
            let answer = desk.raw(method, &desk.path(spelling)).await;
            assert!(answer.starts_with("HTTP/1.1 400"), "{method} {spelling}: {answer}");
            assert!(answer.contains("INVALID_REQUEST"), "{method} {spelling}: {answer}");
        }
    }
    // What is no text names nothing.
    for spelling in ["%ff%fe", "%c0%ae%c0%ae/admin.key"] {
        let answer = desk.raw("PUT", &desk.path(spelling)).await;
        assert!(answer.starts_with("HTTP/1.1 404"), "{spelling}: {answer}");
    }
    // Decoded once and not twice: a strange name, and one of ours.
    let answer = desk.raw("PUT", &desk.path("%252e%252e%252fadmin.key")).await;
    assert!(answer.starts_with("HTTP/1.1 201"), "{answer}");
    assert_eq!(desk.names().await, ["%2e%2e%2fadmin.key", "kept"]);
    assert_eq!(std::fs::read(desk.app.data_folder().join("admin.key")).unwrap(), key);
    assert_eq!(desk.get("kept").await.body, b"kept");
}

#[tokio::test(flavor = "multi_thread")]
async fn links_and_pipes_that_an_agent_left_lead_nowhere() {
    let desk = Desk::new().await;
    desk.put("real/file", "inside").await.expect(201);
    let (folder, data) = (desk.folder(), desk.app.data_folder());
    symlink(data.join("admin.key"), folder.join("key")).unwrap();
    symlink("../../admin.key", folder.join("relative")).unwrap();
    symlink(&data, folder.join("data")).unwrap();
    symlink("../data", folder.join("real/again")).unwrap();
    symlink("circle", folder.join("circle")).unwrap();
    symlink("real", folder.join("inner")).unwrap();
    assert!(Command::new("mkfifo").arg(folder.join("pipe")).status().unwrap().success());
    let key = std::fs::read(data.join("admin.key")).unwrap();
    for path in ["key", "relative", "data/admin.key", "real/again/admin.key"] {
        desk.get(path).await.problem(400);
    }
    for path in ["data/admin.key", "data/new", "real/again/workspaces/new"] {
        desk.put(path, "evil").await.problem(400);
        desk.client().delete(&desk.path(path)).await.problem(400);
    }
    let start = Instant::now();
    for path in ["circle", "pipe", "data/../key"] {
        let status = desk.get(path).await.status;
        assert!(matches!(status, 400 | 404), "{path}: {status}");
    }
    assert!(start.elapsed() < Duration::from_secs(30), "waited for a pipe: {:?}", start.elapsed());
    // Not even a link that stays inside is followed.
    desk.get("inner/file").await.problem(400);
    assert_eq!(desk.get("real/file").await.body, b"inside");
    assert_eq!(desk.names().await, ["real/file"]);
    // In its own place, a link gives way to a file.
    desk.put("key", "mine").await.expect(201);
    assert_eq!(desk.get("key").await.body, b"mine");
    assert_eq!(std::fs::read(data.join("admin.key")).unwrap(), key);
    assert!(!data.join("new").exists() && !data.join("workspaces/new").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_has_at_most_a_hundred_mebibytes_and_never_lies_in_memory() {
    let mut desk = Desk::new().await;
    let too_large = desk.put("large", vec![0; LIMIT + 1]).await.problem(413);
    assert_eq!(too_large["code"], "PAYLOAD_TOO_LARGE");
    let pieces =
        futures_util::stream::iter((0..=100).map(|_| Ok::<_, std::io::Error>(vec![1; MIB])));
    desk.put("large", reqwest::Body::wrap_stream(pieces)).await.problem(413);
    desk.get("large").await.problem(404);
    assert_eq!(desk.uploads(), 0);
    assert_eq!(desk.put("large", vec![2; LIMIT]).await.expect(201)["size"], LIMIT);
    let read = desk.get("large").await;
    assert!(read.status == 200 && read.body == vec![2; LIMIT]);
    let peak = peak_memory(desk.app.server().pid());
    assert!(peak.is_none_or(|peak| peak < LIMIT), "{peak:?} bytes of memory");
}

/// In bytes; None where the system does not say.
fn peak_memory(pid: u32) -> Option<usize> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kilobytes: usize = line.trim().trim_end_matches(" kB").parse().ok()?;
    eprintln!("files: the server's memory was at most {} MiB", kilobytes / 1024);
    Some(kilobytes * 1024)
}

#[tokio::test(flavor = "multi_thread")]
async fn what_breaks_off_or_stops_leaves_nothing() {
    let desk = Desk::new().await;
    desk.put("file", "old").await.expect(201);
    let head = format!(
        "PUT {} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {}\r\n\
         Content-Length: 1000000\r\n\r\n",
        desk.path("file"),
        desk.talk.tenant.key
    );
    let mut cut = Wire::open(desk.app.port()).await;
    let mut stopped = Wire::open(desk.app.port()).await;
    for wire in [&mut cut, &mut stopped] {
        wire.send(&head).await;
        wire.send(&"new".repeat(10_000)).await;
    }
    let patience = Duration::from_secs(40);
    until("both are on their way", async || desk.uploads() == 2).await;
    let start = Instant::now();
    cut.0.shutdown().await.unwrap();
    drop(cut);
    until("the cut one is gone", async || desk.uploads() == 1).await;
    let answer = stopped.rest(patience).await.expect("an answer");
    assert!(answer.starts_with(b"HTTP/1.1 408"), "{}", String::from_utf8_lossy(&answer));
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
    assert_eq!(desk.uploads(), 0);
    assert_eq!(desk.get("file").await.body, b"old");
    assert_eq!(desk.names().await, ["file"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn writers_at_once_leave_one_whole_version_and_readers_see_no_other() {
    let desk = Desk::new().await;
    let version = |number: u8| vec![b'a' + number; MIB];
    desk.put("file", version(0)).await.expect(201);
    let writers = futures_util::future::join_all((0..16).map(|number| {
        let desk = &desk;
        async move { desk.put("file", version(number)).await.expect(200)["size"].clone() }
    }));
    let readers = futures_util::future::join_all((0..16).map(|_| desk.get("file")));
    let (sizes, read) = tokio::join!(writers, readers);
    assert!(sizes.iter().all(|size| *size == MIB), "{sizes:?}");
    let last = desk.get("file").await;
    for answer in read.iter().chain([&last]) {
        let letters: BTreeSet<u8> = answer.body.iter().copied().collect();
        assert_eq!((answer.body.len(), letters.len()), (MIB, 1), "a mixture was read");
    }
    assert_eq!(desk.names().await, ["file"]);
    assert_eq!(desk.uploads(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn files_belong_to_their_conversation_and_tenant() {
    let desk = Desk::new().await;
    desk.put("file", "mine").await.expect(201);
    let stranger = desk.app.tenant("stranger").await;
    let own = Talk::start(&stranger).await;
    // The writer's conversation under both roofs, and one that does not exist.
    let places = [
        (desk.path("file"), "TENANT_NOT_FOUND"),
        (
            stranger.path(&format!("/conversations/{}/files/file", desk.talk.id)),
            "CONVERSATION_NOT_FOUND",
        ),
        (stranger.path("/conversations/cnv_0/files/file"), "CONVERSATION_NOT_FOUND"),
        (own.path("/files/file"), "NOT_FOUND"),
    ];
    for (path, code) in places {
        for method in [Method::GET, Method::DELETE] {
            let answer = stranger.client.send(stranger.client.request(method, &path)).await;
            assert_eq!(answer.problem(404)["code"], code, "{path}");
        }
        if code != "NOT_FOUND" {
            let request = stranger.client.request(Method::PUT, &path).body("theirs");
            assert_eq!(stranger.client.send(request).await.problem(404)["code"], code, "{path}");
            let list = path.trim_end_matches("/file");
            assert_eq!(stranger.client.get(list).await.problem(404)["code"], code, "{list}");
        }
    }
    assert_eq!(desk.get("file").await.body, b"mine");
    assert_eq!(desk.names().await, ["file"]);
}
