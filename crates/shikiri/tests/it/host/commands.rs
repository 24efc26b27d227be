//! The host's commands as scripts use them: what they print, their exit codes, and where secrets
//! do not go.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use shikiri_testkit::{Cli, Ended};
use tempfile::TempDir;

use super::raw::{Raw, Says};
use crate::PROGRAM;

/// A folder with a store of its own.
struct Desk {
    folder: TempDir,
    cli: Cli,
}

impl Desk {
    fn new() -> Self {
        let folder = TempDir::new().unwrap();
        let cli = Cli::new(PROGRAM, folder.path()).env("SHIKIRI_TRUST", "1");
        Self { folder, cli }
    }

    fn with(servers: Value) -> Self {
        let desk = Self::new();
        fs::write(desk.path().join(".mcp.json"), json!({ "mcpServers": servers }).to_string())
            .unwrap();
        desk
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    /// A command to its end, off the threads on which servers answer.
    fn run(&self, words: &[&str]) -> Ended {
        tokio::task::block_in_place(|| self.cli.run(words))
    }
}

async fn decent() -> Raw {
    Raw::start(|_| Says::Usual).await
}

/// A port at which no process listens.
fn nowhere() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    format!("http://{}/mcp", listener.local_addr().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_and_tools_are_listed_for_people_and_for_programs() {
    let server = decent().await;
    let desk = Desk::with(json!({
        "旅": { "url": server.url }, "gone": { "url": nowhere() }, "odd": { "url": "file:///" },
    }));
    let listed = desk.run(&["host", "list"]).done();
    let of = |name: &str| listed.stdout.lines().find(|line| line.contains(name)).unwrap();
    assert!(of("旅").contains("2025-11-25") && of("旅").contains("1 tool"), "{}", listed.stdout);
    assert!(of("gone").contains("cannot be reached"), "{}", listed.stdout);
    assert!(listed.stderr.contains("server \"odd\""), "{}", listed.stderr);

    let listed = desk.run(&["host", "list", "--json"]).done().json();
    let items = listed["items"].as_array().unwrap();
    let of = |name: &str| items.iter().find(|item| item["server"] == name).unwrap();
    assert_eq!(
        *of("旅"),
        json!({
            "server": "旅", "address": server.url, "reachable": true, "protocol": "2025-11-25",
            "name": "raw", "version": "1", "tools": 1, "remarks": [],
        })
    );
    assert_eq!((&of("gone")["reachable"], items.len()), (&json!(false), 2));

    let tools = desk.run(&["host", "tools", "旅", "--json"]).done().json();
    let tool = json!({
        "server": "旅", "tool": "t", "title": null, "description": "works",
        "input_schema": { "type": "object" },
    });
    assert_eq!(tools, json!({ "items": [tool] }));
    let tools = desk.run(&["host", "tools"]).done();
    assert!(tools.stdout.lines().any(|line| line.starts_with("旅") && line.ends_with("works")));
}

#[tokio::test(flavor = "multi_thread")]
async fn every_failure_has_its_exit_code_and_one_line_with_the_next_step() {
    let server = decent().await;
    let desk = Desk::with(json!({ "it": { "url": server.url }, "gone": { "url": nowhere() } }));
    desk.run(&["host", "call", "who", "t"]).refused(4, &["no server \"who\"", "it"]);
    desk.run(&["host", "call", "it", "tt"]).refused(4, &["no tool \"tt\""]);
    desk.run(&["host", "tools", "who"]).refused(4, &["no server \"who\""]);
    desk.run(&["host", "call", "gone", "t"]).refused(5, &["gone: cannot be reached"]);
    desk.run(&["host", "resume", "hcl_1"]).refused(4, &["hcl_1"]);
    desk.run(&["host", "call", "it", "t", "--args", "[1]"]).refused(2, &["--args"]);
    desk.run(&["host", "call", "it", "t", "--arg", "x"]).refused(2, &["name=value"]);
    desk.run(&["host", "call", "t"]).refused(2, &["SERVER TOOL"]);
    desk.run(&["host", "--url", "ftp://x", "list"]).refused(2, &["http://"]);
    desk.run(&["host"]).refused(2, &["terminal"]);
    desk.run(&["host", "--config", "none.json", "list"]).refused(2, &["none.json", "--config"]);

    let alone = Desk::with(json!({ "gone": { "url": nowhere() } }));
    for words in [&["host", "list"][..], &["host", "tools"]] {
        let ended = alone.run(words);
        assert_eq!(ended.code, 5, "{ended:?}");
        let ended = alone.run(&[words, &["--json"]].concat());
        assert_eq!(ended.code, 5, "as a program is told it: {ended:?}");
    }
    fs::write(alone.path().join(".mcp.json"), "{").unwrap();
    alone.run(&["host", "list"]).refused(2, &[".mcp.json", "mend the file"]);

    // Without any server, what is kept can still be looked at.
    let empty = Desk::new();
    empty.run(&["host", "list"]).refused(4, &[".mcp.json", "--url"]);
    let tokens = empty.run(&["host", "tokens", "list", "--json"]).done().json();
    assert_eq!(tokens, json!({ "items": [] }));
    let cleaned = empty.run(&["host", "tokens", "clean"]).done();
    assert_eq!(cleaned.stderr, "0 calls forgotten\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn headers_are_filled_in_from_the_environment_wherever_they_are_written() {
    let server = decent().await;
    let header = json!({ "Authorization": "Bearer ${HOST_TEST_KEY}" });
    let mut desk = Desk::with(json!({ "file": { "url": server.url, "headers": header } }));
    desk.cli = desk.cli.clone().env("HOST_TEST_KEY", "s3cret");
    let words = ["--type", "http", "--url", &server.url, "--header", "X-Key: ${HOST_TEST_KEY}"];
    desk.run(&[&["servers", "create", "kept", "--allow-private", "true"], &words[..]].concat())
        .done();
    desk.run(&["host", "call", "file", "t"]).done();
    desk.run(&["host", "call", "kept", "t"]).done();
    let flag = ["host", "--url", &server.url, "--header", "X-Flag: ${HOST_TEST_KEY}", "call", "t"];
    desk.run(&flag).done();
    let calls = server.seen("tools/call");
    assert_eq!(calls[0].header("authorization"), Some("bearer s3cret"));
    assert_eq!(calls[1].header("x-key"), Some("s3cret"));
    assert_eq!(calls[2].header("x-flag"), Some("s3cret"));

    let without = Cli::new(PROGRAM, desk.path()).env("SHIKIRI_TRUST", "1");
    let ended = tokio::task::block_in_place(|| without.run(&flag));
    ended.refused(2, &["X-Flag", "HOST_TEST_KEY is not set"]);
    let ended = tokio::task::block_in_place(|| without.run(&["host", "call", "file", "t"]));
    assert_eq!(ended.code, 4, "{ended:?}");
    assert!(ended.stderr.contains("HOST_TEST_KEY is not set"), "{}", ended.stderr);
}

/// The key of a server of ours goes to this machine by itself, and nowhere else.
#[tokio::test(flavor = "multi_thread")]
async fn a_key_is_sent_only_where_it_belongs() {
    let server = decent().await;
    let mut desk = Desk::new();
    desk.cli = desk.cli.clone().env("SHIKIRI_KEY", "s3cret");
    desk.run(&["host", "--url", &server.url, "call", "t"]).done();
    assert_eq!(server.seen("tools/call")[0].header("authorization"), Some("bearer s3cret"));
    // This machine by a name that is not known to be it.
    let port = server.url.rsplit(':').next().unwrap();
    let elsewhere = format!("http://0.0.0.0:{port}");
    desk.run(&["host", "--url", &elsewhere, "call", "t"]).done();
    assert_eq!(server.seen("tools/call")[1].header("authorization"), None);
}

/// What a variable holds is for the program alone: it is neither shown nor kept.
#[tokio::test(flavor = "multi_thread")]
async fn secrets_of_a_program_are_neither_shown_nor_kept() {
    let script = r#"while IFS= read -r line; do
        id=$(printf '%s' "$line" | sed -n 's/.*"id":"\([^"]*\)".*/\1/p')
        say() { printf '{"jsonrpc":"2.0","id":"%s","result":%s}\n' "$id" "$1"; }
        case "$line" in
            *'"initialize"'*) say '{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"p","version":"1"}}' ;;
            *'"tools/list"'*) say '{"tools":[{"name":"t","inputSchema":{"type":"object"}}]}' ;;
            *'"tools/call"'*) say "{\"content\":[{\"type\":\"text\",\"text\":\"length $(printf %s "$1" | wc -c) $(printf %s "$KEY" | wc -c)\"}]}" ;;
            *'"id"'*) printf '{"jsonrpc":"2.0","id":"%s","error":{"code":-32601,"message":"no"}}\n' "$id" ;;
        esac
    done"#;
    let mut desk = Desk::with(json!({ "p": {
        "command": "sh", "args": ["-c", script, "it", "${HOST_TEST_KEY}"],
        "env": { "KEY": "${HOST_TEST_KEY}" },
    } }));
    let secret = "s3cret-of-a-program";
    desk.cli = desk.cli.clone().env("HOST_TEST_KEY", secret).env("SHIKIRI_LOG", "trace");
    let called = desk.run(&["host", "call", "p", "t"]).done();
    let length = secret.len();
    assert_eq!(called.stdout, format!("length {length} {length}\n"), "the program has it");
    let listed = desk.run(&["host", "list", "--json"]).done();
    assert!(listed.stdout.contains("${HOST_TEST_KEY}"), "{}", listed.stdout);
    for ended in [called, listed, desk.run(&["host", "list"]), desk.run(&["host", "tools"])] {
        assert!(!ended.stdout.contains(secret) && !ended.stderr.contains(secret), "{ended:?}");
    }
    for entry in fs::read_dir(desk.path().join(".shikiri")).unwrap() {
        let path = entry.unwrap().path();
        let bytes = if path.is_file() { fs::read(&path).unwrap() } else { Vec::new() };
        let is_there = bytes.windows(secret.len()).any(|part| part == secret.as_bytes());
        assert!(!is_there, "it lies in {}", path.display());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn arguments_are_read_as_the_tool_wants_them() {
    let server = Raw::start(|seen| match seen.method() {
        "tools/list" => Says::Result(json!({ "tools": [{ "name": "t", "inputSchema": {
            "type": "object",
            "properties": { "id": { "type": "string" }, "n": { "type": "integer" } },
        } }] })),
        _ => Says::Usual,
    })
    .await;
    let desk = Desk::with(json!({ "it": { "url": server.url } }));
    let words = ["--args", r#"{"id": "x", "all": [1]}"#, "--arg", "id=123", "--arg", "n=5"];
    let more = ["--arg", "free={\"a\": true}", "--arg", "text=東京"];
    desk.run(&[&["host", "call", "it", "t"], &words[..], &more].concat()).done();
    desk.run(&["host", "call", "it", "t"]).done();
    let calls = server.seen("tools/call");
    assert_eq!(
        calls[0].body["params"]["arguments"],
        json!({ "id": "123", "n": 5, "all": [1], "free": { "a": true }, "text": "東京" })
    );
    assert_eq!(calls[1].body["params"]["arguments"], json!({}));
}
