//! Lanes as agents meet them: real processes and connections, and pages that answer without a
//! browser.

mod ask_command;
mod asking;
mod chaos;
mod collision;
mod commands;
mod files;
mod many;
mod returning;
mod rules;
mod subagents;
mod whole_way;

use std::path::Path;

use serde_json::{Value, json};
use shikiri_testkit::{Cli, Hello, McpClient, StdioClient, TestApp, TestDatabase, have_postgres};

use crate::PROGRAM;

/// The program in a folder, with pages that need no browser.
fn cli(root: &Path) -> Cli {
    Cli::new(PROGRAM, root).env("SHIKIRI_PAGES", "offline")
}

/// Tells a story in a folder of its own.
fn on_sqlite(story: impl FnOnce(&Cli, &Path)) {
    let folder = tempfile::tempdir().unwrap();
    story(&cli(folder.path()), folder.path());
}

/// Tells the same with a database of its own beside the folder, if there is a server for it.
async fn on_postgresql(what: &str, story: impl FnOnce(&Cli, &Path)) {
    if !have_postgres(what) {
        return;
    }
    let database = TestDatabase::create().await;
    let folder = tempfile::tempdir().unwrap();
    let cli = cli(folder.path()).store(database.url());
    tokio::task::block_in_place(|| story(&cli, folder.path()));
}

/// A server with such pages.
fn server() -> shikiri_testkit::Builder {
    TestApp::new(PROGRAM).env("SHIKIRI_PAGES", "offline")
}

/// One on each kind of store.
async fn servers(
    what: &str,
    set: impl Fn(shikiri_testkit::Builder) -> shikiri_testkit::Builder,
) -> Vec<TestApp> {
    let mut servers = vec![set(server()).start().await];
    if have_postgres(what) {
        servers.push(set(server().postgres()).start().await);
    }
    servers
}

/// A process of its own for an agent, whose client calls itself so.
fn process(cli: &Cli, client: &str) -> StdioClient {
    let mut process = StdioClient::start(&mut cli.command(&["mcp"]));
    process.initialize(json!({}), client);
    process
}

/// A connection of its own, of a client that calls itself so.
async fn connection(app: &TestApp, client: &str) -> McpClient {
    McpClient::open(&app.client(), Hello { name: client.to_owned(), ..Hello::default() }).await
}

fn call(tool: &str, question: &str) -> Value {
    json!({ "name": tool, "arguments": { "question": question } })
}

/// The structured answer of a call that succeeds.
#[track_caller]
fn answer(result: &Value) -> Value {
    assert_eq!(result["isError"], false, "{result}");
    result["structuredContent"].clone()
}

/// The code of a call that fails.
#[track_caller]
fn refusal(result: &Value) -> String {
    assert_eq!(result["isError"], true, "{result}");
    result["structuredContent"]["error"]["code"].as_str().expect("a code").to_owned()
}

/// Asks over the pipes.
#[track_caller]
fn ask(process: &mut StdioClient, question: &str) -> Value {
    answer(&process.result("tools/call", call("ask_chatgpt_web", question)))
}

fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value[name].as_str().unwrap_or_else(|| panic!("no {name} in {value}"))
}

/// What was asked, newest first.
fn history(cli: &Cli, more: &[&str]) -> Vec<Value> {
    let mut words = vec!["history", "--json"];
    words.extend(more);
    if !more.contains(&"--limit") {
        words.extend(["--limit", "1000"]);
    }
    cli.run(&words).done().json()["items"].as_array().expect("a list").clone()
}

/// The lanes in the form of version 2.
fn exported(cli: &Cli) -> Value {
    cli.run(&["lanes", "export"]).done().json()
}
