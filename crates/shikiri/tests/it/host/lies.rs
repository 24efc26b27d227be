//! Servers that are slow, lie, flood us or die: a clear line for each, no hang, and the others go
//! on.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use shikiri_testkit::Cli;
use tempfile::TempDir;

use super::raw::{Raw, Says, Seen, answer};
use crate::PROGRAM;

/// What is waited for in vain is given up after twenty seconds; a busy machine adds to that.
const PATIENCE: Duration = Duration::from_secs(50);
const MIB: usize = 1024 * 1024;
const EVIL: &str = "\u{1b}]0;pwned\u{7}\u{1b}[2J\u{9b}1m";

fn html() -> Says {
    Says::Status("200 OK", "content-type: text/html\r\n", "<html>hello</html>".to_owned())
}

fn is_first(seen: &Seen) -> bool {
    matches!(seen.method(), "initialize" | "server/discover")
}

/// A name of ours, what the server says, and the words by which that is told.
type Lie = (&'static str, fn(&Seen) -> Says, &'static str);

/// What a server does that cannot be listed.
fn unlistable() -> Vec<Lie> {
    vec![
        ("silent", |_| Says::Silence, "did not answer within"),
        ("html", |_| html(), "no JSON (text/html)"),
        ("broken", |_| Says::Status("500 Oh", "", EVIL.to_owned()), "answered with status 500"),
        (
            "moved",
            |_| Says::Status("307 Go", "location: http://10.0.0.1/mcp\r\n", String::new()),
            "sends us on to http://10.0.0.1/mcp",
        ),
        ("absent", |_| Says::Status("404 No", "", String::new()), "no MCP server at this address"),
        ("hasty", |_| Says::HangUp, "cut off"),
        (
            "confused",
            |_| Says::Document(answer(&json!("another"), "x")),
            "no answer to what it was asked",
        ),
        ("list", |_| Says::Document(json!([])), "no answer to what it was asked"),
        (
            "old",
            |seen| match seen.method() {
                "initialize" => Says::Result(json!({ "protocolVersion": format!("1999{EVIL}") })),
                _ => Says::Usual,
            },
            "it speaks \"1999\", which we do not",
        ),
        (
            "shapeless",
            |seen| match seen.method() {
                "tools/list" => Says::Result(json!({ "tools": 3 })),
                _ => Says::Usual,
            },
            "its list of tools is no list",
        ),
        (
            "deep",
            |seen| match seen.method() {
                "tools/list" => Says::Bytes("[".repeat(100_000).into_bytes()),
                _ => Says::Usual,
            },
            "no JSON",
        ),
        (
            "huge",
            |seen| match is_first(seen) {
                true => Says::Bytes(vec![b' '; 17 * MIB]),
                false => Says::Usual,
            },
            "more than 16 MiB",
        ),
        (
            "humming",
            |seen| match is_first(seen) {
                true => Says::Endless(String::new(), ": hm\n\n".to_owned()),
                false => Says::Usual,
            },
            "did not answer within",
        ),
        (
            "chatty",
            |seen| match seen.method() {
                "tools/list" => {
                    let log = json!({ "method": "notifications/message", "params": {} });
                    Says::Endless(String::new(), format!("data: {log}\n\n"))
                }
                _ => Says::Usual,
            },
            "did not answer within",
        ),
    ]
}

/// Programs, by what a shell runs.
const PROGRAMS: [(&str, &str, &str); 6] = [
    ("dying", r"printf '\033]0;pwned\007no \233 licence\n' >&2; exit 3", "last words: no"),
    ("wordless", "exit 0", "ended without a word"),
    ("nonsense", "exec yes nonsense", "prints what is no message"),
    ("endless line", r"tr '\0' x < /dev/zero; true", "more than 16 MiB"),
    ("deaf", "exec 0<&-; exec sleep 100", "does not listen"),
    ("mute", "exec sleep 100", "did not answer within"),
];

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_cannot_be_listed_is_told_beside_the_others() {
    let folder = TempDir::new().unwrap();
    let mut servers = serde_json::Map::new();
    let mut wanted: Vec<(&str, &str)> = vec![("nowhere", "cannot be reached")];
    let mut raws = Vec::new();
    for (name, part, words) in unlistable() {
        let raw = Raw::start(part).await;
        servers.insert(name.to_owned(), json!({ "url": raw.url }));
        wanted.push((name, words));
        raws.push(raw);
    }
    for (name, script, words) in PROGRAMS {
        servers.insert(name.to_owned(), json!({ "command": "sh", "args": ["-c", script] }));
        wanted.push((name, words));
    }
    servers.insert("missing".to_owned(), json!({ "command": "/no/such/program" }));
    wanted.push(("missing", "could not be started"));
    servers.insert("nowhere".to_owned(), json!({ "url": "http://127.0.0.1:1/mcp" }));
    let good = Raw::start(|_| Says::Usual).await;
    servers.insert("good".to_owned(), json!({ "url": good.url }));
    let file = json!({ "mcpServers": servers }).to_string();
    std::fs::write(folder.path().join(".mcp.json"), file).unwrap();

    let cli = Cli::new(PROGRAM, folder.path()).env("SHIKIRI_TRUST", "1");
    let start = Instant::now();
    let listed = tokio::task::block_in_place(|| cli.run(&["host", "list", "--json"])).done();
    assert!(start.elapsed() < PATIENCE, "{:?}", start.elapsed());
    let listed = listed.json();
    let items = listed["items"].as_array().unwrap();
    let of = |name: &str| items.iter().find(|item| item["server"] == name).unwrap();
    assert_eq!((&of("good")["reachable"], &of("good")["tools"]), (&json!(true), &json!(1)));
    let mut faults = Vec::new();
    for (name, words) in wanted {
        let detail = of(name)["detail"].as_str().unwrap_or("it was listed");
        let is_clean = !detail.contains(char::is_control) && !detail.contains("pwned");
        if !detail.contains(words) || !is_clean || detail.chars().count() > 2_500 {
            faults.push(format!("{name}: {detail:?} for {words:?}"));
        }
    }
    assert!(faults.is_empty(), "{faults:#?}");
}

/// Of a list that is partly nonsense, the rest is offered.
#[tokio::test(flavor = "multi_thread")]
async fn tools_that_make_no_sense_are_left_out_and_named() {
    let object = json!({ "type": "object" });
    let odd = json!([
        { "name": "fine", "inputSchema": object, "description": EVIL },
        { "name": format!("{EVIL}bad"), "inputSchema": object },
        { "name": "", "inputSchema": object },
        { "name": "x".repeat(1_000), "inputSchema": object },
        { "name": "schemaless", "inputSchema": "string" },
        { "name": "marked", "inputSchema": { "properties": {
            "a": { "type": "string", "x-mcp-header": "a b" } } } },
        7,
    ]);
    let odd = Raw::start(move |seen| match seen.method() {
        "tools/list" => Says::Result(json!({ "tools": odd })),
        _ => Says::Usual,
    })
    .await;
    let endless = Raw::start(|seen| match seen.method() {
        "tools/list" => {
            let page =
                seen.body["params"]["cursor"].as_str().unwrap_or("0").parse::<u32>().unwrap();
            let tool = json!({ "name": format!("t{page}"), "inputSchema": { "type": "object" } });
            Says::Result(json!({ "tools": [tool], "nextCursor": (page + 1).to_string() }))
        }
        _ => Says::Usual,
    })
    .await;
    let folder = TempDir::new().unwrap();
    let cli = Cli::new(PROGRAM, folder.path()).env("SHIKIRI_TRUST", "1");
    let list = |url: &str| {
        let words = ["host", "--url", url, "list", "--json"];
        let listed = tokio::task::block_in_place(|| cli.run(&words)).done().json();
        listed["items"][0].clone()
    };
    let listed = list(&odd.url);
    let remarks = listed["remarks"].as_array().unwrap();
    assert_eq!((&listed["tools"], remarks.len()), (&json!(1), 6), "{remarks:#?}");
    assert!(remarks.iter().all(|it| it.as_str().unwrap().contains("left out")), "{remarks:#?}");
    assert!(!listed.to_string().contains("pwned"), "{listed}");
    let listed = list(&endless.url);
    assert_eq!(listed["tools"], 100);
    assert_eq!(listed["remarks"], json!(["its list has no end: 100 pages are read"]));
}

/// One that speaks the newer era, and answers a call with this.
fn modern(seen: &Seen, result: Value) -> Says {
    match seen.method() {
        "server/discover" => Says::Result(json!({ "supportedVersions": ["2026-07-28"] })),
        "tools/call" => Says::Result(result),
        "tasks/get" => Says::Result(json!({ "taskId": "1", "status": "dreaming" })),
        _ => Says::Usual,
    }
}

fn called(seen: &Seen, says: impl FnOnce() -> Says) -> Says {
    if seen.method() == "tools/call" { says() } else { Says::Usual }
}

/// The same of a call, with how it ends.
type CallLie = (&'static str, fn(&Seen) -> Says, &'static str, &'static str);

/// What becomes of a call.
fn uncallable() -> Vec<CallLie> {
    vec![
        ("number", |s| called(s, || Says::Result(json!(3))), "failed", "no object"),
        (
            "refusal",
            |s| {
                let error = json!({ "code": -32602, "message": format!("{EVIL}no thanks") });
                called(s, || Says::Document(json!({ "id": s.body["id"], "error": error })))
            },
            "failed",
            "no thanks (code -32602)",
        ),
        (
            "both",
            |s| {
                called(s, || {
                    Says::Document(json!({ "id": s.body["id"], "result": {}, "error": {} }))
                })
            },
            "failed",
            "no answer to what it was asked",
        ),
        (
            "another's answer",
            |s| called(s, || Says::Events(format!("data: {}\n\n", answer(&json!("z"), "x")))),
            "lost",
            "is not known",
        ),
        ("dead", |s| called(s, || Says::HangUp), "lost", "is not known"),
        (
            "huge event",
            |s| called(s, || Says::Endless("data: ".to_owned(), "x".repeat(MIB))),
            "failed",
            "more than 16 MiB",
        ),
        (
            "flood",
            |s| {
                let params = json!({ "level": "info", "data": "blah ".repeat(100) });
                let log = json!({ "method": "notifications/message", "params": params });
                called(s, || Says::Endless(String::new(), format!("data: {log}\n\n")))
            },
            "failed",
            "time limit",
        ),
        (
            "nameless task",
            |s| modern(s, json!({ "resultType": "task" })),
            "failed",
            "without an id",
        ),
        (
            "dreaming task",
            |s| modern(s, json!({ "resultType": "task", "taskId": "1" })),
            "failed",
            "no known status",
        ),
        (
            "another task",
            |s| modern(s, json!({ "resultType": "task", "taskId": "2" })),
            "failed",
            "it speaks of another",
        ),
        (
            "no question",
            |s| modern(s, json!({ "resultType": "input_required" })),
            "failed",
            "without saying which",
        ),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_is_lied_about_ends_with_a_clear_line() {
    let mut calls = tokio::task::JoinSet::new();
    for (name, part, state, words) in uncallable() {
        let raw = Raw::start(part).await;
        calls.spawn_blocking(move || {
            let folder = TempDir::new().unwrap();
            let cli = Cli::new(PROGRAM, folder.path()).env("SHIKIRI_TRUST", "1");
            let start = Instant::now();
            let call = ["host", "--url", &raw.url, "call", "t", "--timeout", "8", "--json"];
            let ended = cli.run(&call);
            let is_told = ended.code == 1
                && ended.json()["state"] == state
                && ended.stderr.contains(words)
                && ended.stderr.lines().count() == 1
                && !ended.stderr.contains("pwned");
            let in_time = start.elapsed() < PATIENCE;
            (!is_told || !in_time).then(|| format!("{name}: {:?} {ended:?}", start.elapsed()))
        });
    }
    let faults: Vec<_> = calls.join_all().await.into_iter().flatten().collect();
    assert!(faults.is_empty(), "{faults:#?}");
}

/// A program that dies in the middle of a call, and one that prints nonsense between its messages.
#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_dies_or_prints_nonsense_in_a_call() {
    let script = |call: &str| {
        format!(
            r#"while IFS= read -r line; do
                id=$(printf '%s' "$line" | sed -n 's/.*"id":"\([^"]*\)".*/\1/p')
                say() {{ printf '{{"jsonrpc":"2.0","id":"%s","result":%s}}\n' "$id" "$1"; }}
                case "$line" in
                    *'"initialize"'*) say '{{"protocolVersion":"2025-11-25","capabilities":{{}},"serverInfo":{{"name":"p","version":"1"}}}}' ;;
                    *'"tools/list"'*) say '{{"tools":[{{"name":"t","inputSchema":{{"type":"object"}}}}]}}' ;;
                    *'"tools/call"'*) {call} ;;
                    *'"id"'*) printf '{{"jsonrpc":"2.0","id":"%s","error":{{"code":-32601,"message":"no"}}}}\n' "$id" ;;
                esac
            done"#
        )
    };
    let content = r#"say '{"content":[{"type":"text","text":"all the same"}]}'"#;
    let nonsense = format!(r#"echo 'debug: here'; echo '{{"half":'; echo; {content}"#);
    let servers = json!({
        "dies": { "command": "sh", "args": ["-c", script(r"printf '\033[2Jout of ink\n' >&2; exit 9")] },
        "babbles": { "command": "sh", "args": ["-c", script(&nonsense)] },
    });
    let folder = TempDir::new().unwrap();
    let file = json!({ "mcpServers": servers }).to_string();
    std::fs::write(folder.path().join(".mcp.json"), file).unwrap();
    let cli = Cli::new(PROGRAM, folder.path()).env("SHIKIRI_TRUST", "1");
    let run = |words: &[&str]| tokio::task::block_in_place(|| cli.run(words));
    let ended = run(&["host", "call", "dies", "t", "--json"]);
    ended.refused(1, &["out of ink", "is not known"]);
    assert_eq!(ended.json()["state"], "lost");
    assert!(!ended.stderr.contains('\u{1b}'), "{}", ended.stderr);
    assert_eq!(run(&["host", "call", "babbles", "t"]).done().stdout, "all the same\n");
}

/// A server that asks a thousand things at once gets some answers, and its call goes on.
#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_questions_at_once_are_too_many() {
    let server = Raw::start(|seen| match seen.method() {
        "tools/call" => {
            let ask = |id: usize| {
                let params = json!({ "message": "?", "requestedSchema": { "type": "object" } });
                json!({ "jsonrpc": "2.0", "id": id, "method": "elicitation/create", "params": params })
            };
            let asked: String = (0..1_000).map(|id| format!("data: {}\n\n", ask(id))).collect();
            Says::Events(format!("{asked}data: {}\n\n", seen.answer("enough")))
        }
        _ => Says::Usual,
    })
    .await;
    let folder = TempDir::new().unwrap();
    let cli = Cli::new(PROGRAM, folder.path()).env("SHIKIRI_TRUST", "1");
    let words = ["host", "--url", &server.url, "call", "t", "--json"];
    let ended = tokio::task::block_in_place(|| cli.run(&words)).done();
    assert_eq!(ended.json()["result"]["content"][0]["text"], "enough");
}
