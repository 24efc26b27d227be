//! The JSON that commands print, as shapes: after a story in which there is something of everything.

use serde_json::{Value, json};
use shikiri_testkit::{Cli, TestApp};

use super::json_shape::{json_shape, pretty};
use crate::PROGRAM;

/// Commands that make something, each with a name for the id that it gives.
const MAKES: [(&str, &[&str]); 11] = [
    ("tenant", &["tenants", "create", "acme"]),
    ("key", &["keys", "create", "ci", "--tenant", "acme"]),
    ("model", &["models", "create", "m", "--engine", "anthropic", "--env", "A=b"]),
    ("conversation", &["conversations", "create"]),
    ("project", &["projects", "create", "p"]),
    ("hana", &["agents", "add", "hana", "--project", "p", "--kind", "human"]),
    ("mia", &["agents", "add", "mia", "--project", "p", "--spawn", "never"]),
    ("task", &["tasks", "add", "Write it", "--project", "p", "--assignee", "mia"]),
    ("message", &["messages", "send", "hello", "--project", "p", "--from", "hana", "--to", "mia"]),
    (
        "server",
        &["servers", "create", "tools", "--type", "http", "--url", "https://tools.example/mcp"],
    ),
    // Long enough to be under way while the commands below read it; `attach` waits for its end.
    ("run", &["runs", "start", "long_running_agent", "--input", r#"{"steps":1,"step_ms":15000}"#]),
];

/// Commands that read. `{name}` is an id of the above.
const READS: [&[&str]; 38] = [
    &["tenants", "list"],
    &["tenants", "show", "acme"],
    &["keys", "list", "--tenant", "acme"],
    &["models", "list"],
    &["models", "show", "m"],
    &["servers", "list"],
    &["servers", "show", "{server}"],
    &["skills", "list"],
    &["conversations", "list"],
    &["conversations", "show", "{conversation}"],
    &["conversations", "messages", "{conversation}"],
    &["executions", "list"],
    &["executions", "show", "{execution}"],
    &["projects", "list"],
    &["projects", "show", "p"],
    &["agents", "list", "--project", "p"],
    &["agents", "show", "mia"],
    &["tasks", "list", "--project", "p"],
    &["tasks", "show", "{task}", "--project", "p"],
    &["messages", "list", "--project", "p"],
    &["messages", "show", "{message}", "--project", "p"],
    &["delegations", "list", "--project", "p"],
    &["dialogues", "list", "--project", "p"],
    &["runs", "list"],
    &["runs", "show", "{run}"],
    &["usage"],
    &["lanes", "list"],
    &["history"],
    &["subagents"],
    &["hooks", "status"],
    &["hooks", "log"],
    &["hooks", "stats"],
    &["audit"],
    &["status"],
    &["trust", "--list"],
    &["db", "check"],
    &["doctor"],
    &["attach", "{run}"],
];

fn run_json(cli: &Cli, command: &[String]) -> Value {
    let arguments: Vec<&str> = command.iter().map(String::as_str).chain(["--json"]).collect();
    let ended = cli.run(&arguments).done();
    // Events come as one document a line.
    let lines = ended.stdout.lines().map(serde_json::from_str::<Value>);
    serde_json::from_str(&ended.stdout)
        .or_else(|_| lines.collect::<Result<Value, _>>())
        .unwrap_or_else(|error| panic!("{arguments:?}: {error}: {}", ended.stdout))
}

#[tokio::test(flavor = "multi_thread")]
async fn json_of_every_command() {
    let app = TestApp::new(PROGRAM).start().await;
    let printed = tokio::task::block_in_place(|| print_all(&app.cli()));
    insta::assert_snapshot!(pretty(&printed));
}

fn print_all(cli: &Cli) -> Value {
    let (mut ids, mut printed) = (Vec::<(String, String)>::new(), json!({}));
    for (name, command) in MAKES {
        let command: Vec<String> = command.iter().map(ToString::to_string).collect();
        let made = run_json(cli, &command);
        let id = made["id"].as_str().unwrap_or_else(|| panic!("{command:?}: {made}"));
        ids.push((format!("{{{name}}}"), id.to_owned()));
        printed[command[..2].join(" ")] = json_shape(&made);
    }
    let conversation = ids.iter().find(|(name, _)| name == "{conversation}").unwrap().1.clone();
    cli.run(&["run", "hi\n#offline tools=1 subagents=1", "--conversation", &conversation]).done();
    let executions = run_json(cli, &["executions".to_owned(), "list".to_owned()]);
    let execution = executions["items"][0]["id"].as_str().unwrap();
    ids.push(("{execution}".to_owned(), execution.to_owned()));
    for command in READS {
        let with_id = |part: &&str| {
            let id = ids.iter().find(|(name, _)| name == part);
            id.map_or_else(|| part.to_string(), |(_, id)| id.clone())
        };
        let shown = run_json(cli, &command.iter().map(with_id).collect::<Vec<_>>());
        let words = command.iter().take_while(|word| !word.starts_with(['{', '-']));
        let name = words.take(2).copied().collect::<Vec<_>>().join(" ");
        printed[name] = json_shape(&shown);
    }
    printed
}
