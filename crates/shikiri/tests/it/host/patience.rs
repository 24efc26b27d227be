//! How long a person waits, and what a server is told when the wait is over: time limits, Ctrl-C,
//! streams that lead nowhere, keys that are missing, calls that became runs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use shikiri_testkit::{Cli, Ended, Follower, Signal};
use tempfile::TempDir;

use super::raw::{Raw, Says, Seen, answer, event};
use crate::PROGRAM;

const PATIENCE: Duration = Duration::from_secs(60);
/// What is not waited for is far quicker, on a busy machine too.
const QUICK: Duration = Duration::from_secs(15);

struct Desk {
    _folder: TempDir,
    cli: Cli,
}

impl Desk {
    fn new() -> Self {
        let folder = TempDir::new().unwrap();
        let cli = Cli::new(PROGRAM, folder.path());
        Self { _folder: folder, cli }
    }

    fn run(&self, words: &[&str]) -> Ended {
        tokio::task::block_in_place(|| self.cli.run(words))
    }

    fn start(&self, server: &Raw, words: &[&str]) -> Follower {
        self.cli.start(&[&["host", "--url", &server.url], words].concat())
    }

    /// The calls that can be taken up.
    fn open(&self) -> Vec<Value> {
        let listed = self.run(&["host", "tokens", "list", "--json"]).done().json();
        listed["items"].as_array().unwrap().clone()
    }
}

fn wait(process: &mut Follower) -> i32 {
    tokio::task::block_in_place(|| process.wait(PATIENCE))
}

/// A server that begins the call of its tool and does not end it: with a stream, or without a word.
async fn endless(with_stream: bool) -> Raw {
    Raw::start(move |seen| match seen.method() {
        "tools/call" if with_stream => Says::Open(format!("data: {}\n\n", seen.progress(1))),
        "tools/call" => Says::Silence,
        _ => Says::Usual,
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_whose_time_is_over_is_told_to_stop() {
    for with_stream in [true, false] {
        let (server, desk) = (endless(with_stream).await, Desk::new());
        let words = ["host", "--url", &server.url, "call", "t", "--timeout", "5", "--json"];
        let ended = desk.run(&words);
        ended.refused(1, &["time limit"]);
        assert_eq!(ended.json()["state"], "failed");
        let told = server.until("notifications/cancelled").await;
        let call = server.seen("tools/call").remove(0);
        assert_eq!(told.body["params"]["requestId"], call.body["id"]);
        assert_eq!(desk.open(), Vec::<Value>::new());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupt_is_heard_though_the_server_says_nothing() {
    for with_stream in [true, false] {
        let (server, desk) = (endless(with_stream).await, Desk::new());
        let mut host = desk.start(&server, &["call", "t"]);
        server.until("tools/call").await;
        let start = Instant::now();
        host.signal(Signal::INT);
        assert_eq!(wait(&mut host), 1, "{}", host.output());
        assert!(start.elapsed() < QUICK, "{:?}", start.elapsed());
        assert!(host.output().contains("t: cancelled"), "{}", host.output());
        server.until("notifications/cancelled").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_is_cancelled_before_it_is_sent_is_not_sent() {
    let server = Raw::start(|seen| match seen.method() {
        "tools/list" => Says::Silence,
        _ => Says::Usual,
    })
    .await;
    let desk = Desk::new();
    let mut host = desk.start(&server, &["call", "t"]);
    server.until("tools/list").await;
    let start = Instant::now();
    host.signal(Signal::INT);
    assert_eq!(wait(&mut host), 1, "{}", host.output());
    assert!(start.elapsed() < QUICK, "{:?}", start.elapsed());
    assert!(host.output().contains("cancelled before it was called"), "{}", host.output());
    assert_eq!(server.seen("tools/call").len(), 0);
    assert_eq!(desk.open(), Vec::<Value>::new());
}

/// A server whose call breaks off after its first event, and that answers when its stream is read
/// on. While `is_closed`, it wants a key.
async fn keyed(is_closed: &Arc<AtomicBool>) -> Raw {
    let is_closed = Arc::clone(is_closed);
    let call = Arc::new(std::sync::Mutex::new(Value::Null));
    Raw::start(move |seen| {
        if is_closed.load(Ordering::Relaxed) {
            return Says::Status("401 Unauthorized", "", String::new());
        }
        match seen.method() {
            "tools/call" => {
                *call.lock().unwrap() = seen.body["id"].clone();
                Says::Open(event(1, &seen.progress(1)))
            }
            "get" if seen.header("last-event-id") == Some("1") => {
                Says::Events(event(2, &answer(&call.lock().unwrap(), "at last")))
            }
            _ => Says::Usual,
        }
    })
    .await
}

/// Row 4.19. The call was made by an address, which need not be named again.
#[tokio::test(flavor = "multi_thread")]
async fn a_call_outlives_a_time_without_the_right_key() {
    let is_closed = Arc::new(AtomicBool::new(false));
    let (server, desk) = (keyed(&is_closed).await, Desk::new());
    let mut host = desk.start(&server, &["call", "t", "--events"]);
    let told = |line: &str| line.contains("\"progress\"").then_some(());
    assert!(host.find(PATIENCE, told).is_some(), "{}", host.output());
    host.kill9();
    let open = desk.open();
    assert_eq!((open.len(), &open[0]["has_cursor"]), (1, &json!(true)));

    is_closed.store(true, Ordering::Relaxed);
    let ended = desk.run(&["host", "resume"]);
    assert_eq!(ended.code, 1, "{ended:?}");
    let id = open[0]["call_id"].as_str().unwrap();
    let refused = desk.run(&["host", "resume", id]);
    refused.refused(3, &["wants a key", "the call is kept", id]);
    assert_eq!(desk.open(), open, "nothing was thrown away");

    is_closed.store(false, Ordering::Relaxed);
    assert_eq!(desk.run(&["host", "resume"]).done().stdout, "at last\n");
    assert_eq!(desk.open(), Vec::<Value>::new());
    assert_eq!(server.seen("tools/call").len(), 1, "it was not called again");
}

/// Some servers answer a resume with a stream that is empty, again and again.
#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_stays_empty_is_given_up() {
    let server = Raw::start(|seen| match seen.method() {
        "tools/call" => Says::Events(format!("retry: 50\n{}", event(1, &seen.progress(1)))),
        "get" if seen.header("last-event-id").is_some() => Says::Events("retry: 50\n\n".to_owned()),
        _ => Says::Usual,
    })
    .await;
    let desk = Desk::new();
    let start = Instant::now();
    let ended = desk.run(&["host", "--url", &server.url, "call", "t", "--json"]);
    assert!(start.elapsed() < QUICK, "{:?}", start.elapsed());
    ended.refused(1, &["again and again without an answer"]);
    let resumes =
        server.seen("get").into_iter().filter(|seen| seen.header("last-event-id").is_some());
    assert_eq!(resumes.count(), 8);
}

/// A proxy that has lost the answer has not said that nothing was done.
#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_was_lost_on_its_way_leaves_the_call_in_doubt() {
    for lost in ["502 Bad Gateway", "504 Gateway Timeout"] {
        let server = Raw::start(move |seen| match seen.method() {
            "tools/call" => Says::Status(lost, "", "<html>nginx</html>".to_owned()),
            _ => Says::Usual,
        })
        .await;
        let desk = Desk::new();
        let ended = desk.run(&["host", "--url", &server.url, "call", "t", "--json"]);
        ended.refused(1, &[&lost[..3], "is not known", "look at the server"]);
        assert_eq!(ended.json()["state"], "lost");
        assert_eq!(server.seen("tools/call").len(), 1);
    }
}

/// Lines that break are no reason to give up a call that gets on.
#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_gets_on_may_break_off_any_number_of_times() {
    const BREAKS: usize = 11;
    let calls = AtomicUsize::new(0);
    let server = Raw::start(move |seen| match seen.method() {
        "tools/list" => Says::Result(json!({ "tools": [{
            "name": "t", "inputSchema": { "type": "object" },
            "annotations": { "idempotentHint": true },
        }] })),
        "tools/call" => match calls.fetch_add(1, Ordering::Relaxed) {
            BREAKS => Says::Document(seen.answer("through")),
            number => {
                let progress = seen.progress(u32::try_from(number).unwrap() + 1);
                Says::Events(format!("data: {progress}\n\n"))
            }
        },
        _ => Says::Usual,
    })
    .await;
    let desk = Desk::new();
    let ended = desk.run(&["host", "--url", &server.url, "call", "t"]).done();
    assert_eq!(ended.stdout, "through\n");
    assert_eq!(server.seen("tools/call").len(), BREAKS + 1);
}

/// Hands the call over to a run, forgets the session once, asks, and ends.
fn handing_over(seen: &Seen, forgets: &AtomicBool, answered: &AtomicBool) -> Says {
    let gives = |content: Value| {
        Says::Result(json!({
            "content": [{ "type": "text", "text": "x" }], "structuredContent": content,
        }))
    };
    let params = &seen.body["params"];
    match (seen.method(), params["name"].as_str()) {
        ("initialize", _) => {
            let result = json!({
                "protocolVersion": "2025-11-25", "capabilities": {},
                "serverInfo": { "name": "raw", "version": "1" },
            });
            let body = json!({ "jsonrpc": "2.0", "id": seen.body["id"], "result": result });
            let headers = "content-type: application/json\r\nmcp-session-id: s1\r\n";
            Says::Status("200 OK", headers, body.to_string())
        }
        ("tools/call", Some("t")) => {
            gives(json!({ "status": "running", "run_id": "run_1", "next_step": "wait for it" }))
        }
        ("tools/call", Some("run_wait")) if forgets.swap(false, Ordering::Relaxed) => {
            Says::Status("404 Not Found", "", String::new())
        }
        ("tools/call", Some("run_wait")) if answered.load(Ordering::Relaxed) => {
            gives(json!({ "status": "completed", "progress": 100, "result": { "booked": true } }))
        }
        ("tools/call", Some("run_wait")) => gives(json!({
            "status": "waiting", "progress": 50, "total": 100, "questions": [{
                "question_id": "q1", "kind": "human", "message": "Sure?",
                "schema": { "type": "object", "properties": { "confirm": { "type": "boolean" } } },
            }],
        })),
        ("tools/call", Some("run_answer")) => {
            answered.store(true, Ordering::Relaxed);
            gives(json!({}))
        }
        _ => Says::Usual,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_became_a_run_is_followed_over_sessions_to_its_end() {
    let (forgets, answered) = (AtomicBool::new(true), AtomicBool::new(false));
    let server = Raw::start(move |seen| handing_over(seen, &forgets, &answered)).await;
    let desk = Desk::new();
    let ended = desk.run(&["host", "--url", &server.url, "call", "t", "--yes", "--events"]).done();
    let events: Vec<Value> =
        ended.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let kinds: Vec<_> = events.iter().map(|event| event["event"].as_str().unwrap()).collect();
    let wanted = ["sent", "run", "progress", "asked", "answered", "progress", "ended"];
    assert_eq!(kinds, wanted, "{events:#?}");
    assert_eq!(events[6]["result"]["structuredContent"], json!({ "booked": true }));
    let of = |name: &str| {
        let calls = server.seen("tools/call").into_iter();
        calls.filter(|seen| seen.body["params"]["name"] == name).collect::<Vec<_>>()
    };
    assert_eq!((of("t").len(), server.seen("initialize").len()), (1, 2));
    let said = &of("run_answer")[0].body["params"]["arguments"];
    let answer = json!({ "action": "accept", "content": { "confirm": true } });
    assert_eq!(*said, json!({ "run_id": "run_1", "question_id": "q1", "answer": answer }));
}

/// The server takes no consent from a tool: the host says where a person answers, and asks once.
#[tokio::test(flavor = "multi_thread")]
async fn a_question_that_only_a_person_may_answer_is_not_asked_again_and_again() {
    let (forgets, answered) = (AtomicBool::new(false), AtomicBool::new(false));
    let server = Raw::start(move |seen| {
        if seen.body["params"]["name"] != "run_answer" {
            return handing_over(seen, &forgets, &answered);
        }
        let why = "a person answers with `shikiri runs answer run_1`";
        let error = json!({ "code": "person_required", "message": why });
        Says::Result(json!({
            "isError": true,
            "content": [{ "type": "text", "text": why }],
            "structuredContent": { "error": error },
        }))
    })
    .await;
    let desk = Desk::new();
    let ended = desk.run(&["host", "--url", &server.url, "call", "t", "--yes", "--events"]);
    assert_ne!(ended.code, 0, "{ended:?}");
    assert!(ended.stderr.contains("shikiri runs answer run_1"), "{}", ended.stderr);
    let answers = server.seen("tools/call").into_iter();
    let answers = answers.filter(|seen| seen.body["params"]["name"] == "run_answer");
    assert_eq!(answers.count(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_host_that_takes_a_call_up_says_how_long_it_waits() {
    let server = Raw::start(|seen| match seen.method() {
        "tools/call" => Says::Open(event(1, &seen.progress(1))),
        "get" if seen.header("last-event-id").is_some() => Says::Open(String::new()),
        _ => Says::Usual,
    })
    .await;
    let desk = Desk::new();
    let mut host = desk.start(&server, &["call", "t", "--events"]);
    let told = |line: &str| line.contains("\"progress\"").then_some(());
    assert!(host.find(PATIENCE, told).is_some(), "{}", host.output());
    host.kill9();
    let start = Instant::now();
    let ended = desk.run(&["host", "resume", "--timeout", "1"]);
    assert!(start.elapsed() < QUICK, "{:?}", start.elapsed());
    assert_eq!(ended.code, 1, "{ended:?}");
    assert!(ended.stderr.contains("time limit"), "{}", ended.stderr);
    server.until("notifications/cancelled").await;
}
