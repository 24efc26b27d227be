//! Some seconds of nonsense against a living server: random ids, cursors, paths and bodies. It may
//! refuse, in its own words; it may not fail, hang up or fall over.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use shikiri_testkit::{Rng, Tenant, TestApp, long};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::PROGRAM;

const WORKERS: u64 = 4;
/// Refused requests, without which it would prove little.
const ENOUGH: u64 = 200;
const LONGEST: Duration = Duration::from_secs(120);

#[tokio::test(flavor = "multi_thread")]
async fn random_ids_cursors_and_bodies_are_refused_without_harm() {
    let mut rng = Rng::seeded("fuzz");
    let time = Duration::from_secs(if long() { 300 } else { 6 });
    let mut app = TestApp::new(PROGRAM).start().await;
    let pid = app.server().pid();
    let tenant = app.tenant("fuzzed").await;
    let untouched = app.tenant("untouched").await;
    let run = untouched.start_run("long_running_agent", json!({ "steps": 2, "step_ms": 1 })).await;
    untouched.reader(&run, shikiri_testkit::Cut::End).rest().await;
    let before = state(&app, &untouched).await;
    let mut workers = JoinSet::new();
    for _ in 0..WORKERS {
        workers.spawn(send_nonsense(tenant.clone(), rng.fork(), time));
    }
    let mut tally = [0_u64; 6];
    for worker in workers.join_all().await {
        for (sum, count) in tally.iter_mut().zip(worker) {
            *sum += count;
        }
    }
    assert_eq!(app.server().ended(), None, "the server ended");
    assert_eq!(app.server().pid(), pid);
    assert_eq!(app.client().get("/readyz").await.status, 200);
    assert_eq!(state(&app, &untouched).await, before, "another tenant's things changed");
    assert!(!app.log().contains("panicked"), "{}", app.log());
    eprintln!("fuzz: 2xx {}, 4xx {} answers in {time:?} or more", tally[2], tally[4]);
    assert!(tally[4] > ENOUGH && tally[2] > 0, "too few: {tally:?}");
}

async fn state(app: &TestApp, tenant: &Tenant) -> Vec<Value> {
    let mut state = Vec::new();
    for path in ["", "/keys", "/runs"] {
        let mut answer = app.client().get(&tenant.path(path)).await.expect(200);
        // The bytes that a tenant uses are counted a moment later.
        answer.as_object_mut().unwrap().remove("use");
        state.push(answer);
    }
    state
}

/// How many answers there were of each hundred. On a busy machine it goes on until there are some.
async fn send_nonsense(tenant: Tenant, mut rng: Rng, time: Duration) -> [u64; 6] {
    let start = Instant::now();
    let mut tally = [0; 6];
    let too_few = |tally: &[u64; 6]| tally[4] <= ENOUGH / WORKERS || tally[2] == 0;
    while start.elapsed() < time || too_few(&tally) && start.elapsed() < LONGEST {
        let request = request(&tenant, &mut rng);
        let status = status_of(&tenant, &request).await;
        assert!(
            (200..500).contains(&status) || status == 0,
            "{status} for {:?}",
            String::from_utf8_lossy(&request)
        );
        tally[usize::from(status / 100)] += 1;
    }
    tally
}

/// Sends the bytes on a connection of their own. 0 stands for a connection that was closed without
/// an answer, which only what is not HTTP may get.
async fn status_of(tenant: &Tenant, request: &[u8]) -> u16 {
    let address = tenant.client.base().trim_start_matches("http://");
    let mut stream = TcpStream::connect(address).await.expect("a server that listens");
    // A server may answer and close before it has read everything.
    let _ = stream.write_all(request).await;
    let mut head = Vec::new();
    let read = async {
        let mut part = [0; 256];
        while head.len() < 12 {
            match stream.read(&mut part).await {
                Ok(count) if count > 0 => head.extend_from_slice(&part[..count]),
                _ => break,
            }
        }
    };
    let answered = tokio::time::timeout(Duration::from_secs(20), read).await;
    let shown = String::from_utf8_lossy(request);
    assert!(answered.is_ok(), "no answer to {shown:?}");
    // Only these bytes: the rest may end in the middle of a character.
    let digits = head.get(9..12).and_then(|digits| std::str::from_utf8(digits).ok());
    let status = digits.and_then(|digits| digits.parse().ok());
    status.unwrap_or_else(|| panic!("hung up on {shown:?} after {head:?}"))
}

fn request(tenant: &Tenant, rng: &mut Rng) -> Vec<u8> {
    let path = path(tenant, rng);
    let method = *rng.pick(&["GET", "GET", "GET", "POST", "POST", "PATCH", "DELETE", "PUT"]);
    // Its own record and keys stay, so that the walk goes on.
    let method = if method == "DELETE" && !path.contains("/runs/") { "GET" } else { method };
    let mut head = format!(
        "{method} {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {}\r\n\
         Connection: close\r\n",
        tenant.key
    );
    if rng.one_in(3) {
        head.push_str(&format!("Last-Event-ID: {}\r\n", header_text(&cursor(rng))));
    }
    let body = if method == "GET" { Vec::new() } else { body(rng) };
    if !body.is_empty() {
        head.push_str(&format!("Content-Length: {}\r\n", body.len()));
        let kind = *rng.pick(&["application/json", "application/json", "text/plain", "x"]);
        head.push_str(&format!("Content-Type: {kind}\r\n"));
    }
    let mut request = format!("{head}\r\n").into_bytes();
    request.extend(body);
    request
}

/// What may stand in a header at all: the rest is the HTTP library's to refuse.
fn header_text(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).collect()
}

fn path(tenant: &Tenant, rng: &mut Rng) -> String {
    let own = rng.one_in(2);
    let owner = if own { tenant.id.clone() } else { id(rng) };
    let rest = match rng.range(0, 9) {
        0 => String::new(),
        1 => "/runs".to_owned(),
        2 => "/keys".to_owned(),
        3 => format!("/runs/{}", id(rng)),
        4 => format!("/runs/{}/events", id(rng)),
        5 => format!("/runs/{}/cancel", id(rng)),
        6 => format!("/runs/{}/answers", id(rng)),
        7 => format!("/keys/{}", id(rng)),
        _ => format!("/{}/{}", id(rng), id(rng)),
    };
    // A made-up tenant gets no writes that could make a key useless or a name strange.
    let query = match rng.range(0, 4) {
        0 => format!("?after={}", encode(&cursor(rng))),
        1 => format!("?cursor={}&limit={}", encode(&cursor(rng)), encode(&cursor(rng))),
        2 => format!("?{}={}", id(rng), id(rng)),
        _ => String::new(),
    };
    format!("/v1/tenants/{owner}{rest}{query}")
}

fn id(rng: &mut Rng) -> String {
    let known =
        ["local", "untouched", "_system", "run_0", "key_0", "q_0", "..", ".", "%00", "%2e%2e"];
    match rng.range(0, 3) {
        0 => (*rng.pick(&known)).to_owned(),
        1 => {
            let length = rng.range(0, 130);
            (0..length).map(|_| *rng.pick(&['a', 'Z', '0', '_', '-', '.', '~'])).collect()
        }
        _ => encode(&text(rng, 20)),
    }
}

fn cursor(rng: &mut Rng) -> String {
    match rng.range(0, 6) {
        0 => rng.next().to_string(),
        1 => format!("-{}", rng.range(0, 100)),
        2 => format!("{:x}.{}", rng.next(), text(rng, 5)),
        3 => format!("{}.run_{}", u64::MAX, rng.next()),
        4 => rng.range(0, 5).to_string(),
        _ => text(rng, 12),
    }
}

fn text(rng: &mut Rng, longest: u64) -> String {
    let odd = [
        'a', '1', ' ', '"', '\\', '\'', '\0', '\n', '%', '/', 'é', '日', '\u{202e}', '😀', '{', ';',
    ];
    let length = rng.range(0, longest + 1);
    (0..length).map(|_| *rng.pick(&odd)).collect()
}

fn encode(text: &str) -> String {
    text.bytes()
        .map(|b| {
            if b.is_ascii_alphanumeric() { char::from(b).to_string() } else { format!("%{b:02x}") }
        })
        .collect()
}

fn body(rng: &mut Rng) -> Vec<u8> {
    match rng.range(0, 6) {
        0 => (0..rng.range(0, 200)).map(|_| rng.next().to_le_bytes()[0]).collect(),
        1 => "[".repeat(usize::try_from(rng.range(1, 5_000)).unwrap_or(1)).into_bytes(),
        2 => {
            let mut text = document(rng).to_string().into_bytes();
            let at = rng.index(text.len());
            text[at] ^= 1 << rng.range(0, 8);
            text
        }
        3 => value(rng, 6).to_string().into_bytes(),
        _ => document(rng).to_string().into_bytes(),
    }
}

/// Like what a route takes, with something odd in it.
fn document(rng: &mut Rng) -> Value {
    let mut document = match rng.range(0, 5) {
        0 => json!({ "name": "x", "system_prompt": "y", "limits": {} }),
        1 => json!({ "agent": "long_running_agent", "input": { "steps": 1, "step_ms": 0 } }),
        2 => json!({ "input": { "steps": 3 } }),
        3 => json!({ "question_id": "q_0", "action": "accept", "content": {} }),
        _ => json!({ "name": "key" }),
    };
    if let Some(fields) = document.as_object_mut() {
        let names: Vec<String> = fields.keys().cloned().collect();
        let name = if rng.one_in(4) { text(rng, 8) } else { rng.pick(&names).clone() };
        // Limits and status of the fuzzed tenant itself are the admin's to set.
        fields.insert(name, value(rng, 4));
    }
    document
}

fn value(rng: &mut Rng, depth: u64) -> Value {
    match rng.range(0, if depth == 0 { 6 } else { 8 }) {
        0 => Value::Null,
        1 => rng.one_in(2).into(),
        2 => rng.next().into(),
        3 => (-1_i64).into(),
        4 => json!(1e300),
        5 => text(rng, 40).into(),
        6 => (0..rng.range(0, 4)).map(|_| value(rng, depth - 1)).collect(),
        _ => (0..rng.range(0, 4)).map(|_| (text(rng, 6), value(rng, depth - 1))).collect(),
    }
}
