//! Death while questions are put: nothing that was committed is lost, nothing is sent twice, and
//! history says what is known.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use shikiri_testkit::{
    Cli, Rng, Signal, StdioClient, TestDatabase, have_postgres, long, signal, until_blocking,
};

use super::{ask, call, exported, history, process, text};
use crate::PROGRAM;

/// Where a process is killed.
const LANE_POINTS: [&str; 7] = [
    "lane.before_open",
    "lane.before_begin",
    "lane.after_begin",
    "lane.before_sending",
    "lane.after_sending",
    "lane.before_finish",
    "lane.after_finish",
];

/// What the successor makes of the question: asked by it after all or answered before, or one of
/// of which it is unknown whether it was sent.
fn end_after(point: &str) -> &'static str {
    match point {
        "lane.after_sending" | "lane.before_finish" => "failed",
        _ => "answered",
    }
}

struct World {
    folder: tempfile::TempDir,
    database: Option<TestDatabase>,
}

impl World {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap(), database: None }
    }

    /// A program whose process is missed in a while, but not because the machine is busy.
    fn cli(&self) -> Cli {
        let cli = Cli::new(PROGRAM, self.folder.path());
        let cli = match &self.database {
            Some(database) => cli.store(database.url()),
            None => cli,
        };
        cli.env("SHIKIRI_PAGES", format!("offline:{}", self.folder.path().join("sent").display()))
            .env("SHIKIRI_AGENT_ID", "phoenix")
            .env("SHIKIRI_NODE_LEASE_SECONDS", "5")
    }

    /// How often each question was sent.
    fn sent(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.folder.path().join("sent")).unwrap_or_default();
        let question = |line: &str| {
            let line: Value = serde_json::from_str(line).unwrap();
            text_of(&line, "question")
        };
        text.lines().map(question).collect()
    }
}

fn text_of(value: &Value, name: &str) -> String {
    text(value, name).to_owned()
}

/// At each point of a question's way: what the next process finds is true, and it goes on in the
/// same chat.
#[test]
fn a_question_killed_at_any_point_is_sent_at_most_once_and_history_is_honest() {
    for point in LANE_POINTS {
        killed_at(point, &World::new());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_question_killed_at_any_point_is_sent_at_most_once_on_postgresql() {
    if !have_postgres("questions killed at any point") {
        return;
    }
    for point in LANE_POINTS {
        let world = World { database: Some(TestDatabase::create().await), ..World::new() };
        tokio::task::block_in_place(|| killed_at(point, &world));
    }
}

fn killed_at(point: &str, world: &World) {
    let (cli, end) = (world.cli(), end_after(point));
    let mut client = process(&cli, "x");
    // The point before a lane is opened comes up for who has none.
    let first = (point != "lane.before_open").then(|| ask(&mut client, "first"));
    assert_eq!(client.end().0, 0);

    let armed = cli.clone().env("SHIKIRI_FAILPOINT", format!("{point}:1"));
    // The one that dies is waited for, so it is missed sooner.
    let armed = armed.env("SHIKIRI_NODE_LEASE_SECONDS", "2");
    let mut client = process(&armed, "x");
    client.request("tools/call", call("ask_chatgpt_web", "doomed"));
    while client.hear().is_some() {}
    drop(client);

    let mut client = process(&cli, "x");
    let line = until_over(&cli, "doomed", &mut client);
    let times = world.sent().iter().filter(|question| *question == "doomed").count();
    assert_eq!(line["status"], end, "{point}: {line}");
    match end {
        "answered" => assert_eq!(times, 1, "{point}: {line}"),
        _ => {
            assert_eq!(line["error"]["code"], "UNKNOWN_OUTCOME", "{point}: {line}");
            assert_eq!(line["sent"], "unknown", "{point}: {line}");
            assert!(times <= 1, "{point}");
        }
    }
    let next = ask(&mut client, "next");
    if let Some(first) = first {
        assert_eq!(next["url"], first["url"], "{point}");
    }
    assert_eq!(next["url"], line["url"].as_str().map_or(next["url"].clone(), Value::from));
}

/// Waits until the question has an end, which another process gives it.
fn until_over(cli: &Cli, question: &str, client: &mut StdioClient) -> Value {
    until_blocking("the question has an end", || {
        assert_eq!(client.result("ping", json!({})), json!({}));
        let found = history(cli, &[]).into_iter().find(|line| line["question"] == question);
        found.filter(|line| line["status"] != "asking")
    })
}

/// 0d.2: killed again and again at any moment, the store always opens and holds what was answered.
#[test]
fn a_thousand_kills_lose_nothing_that_was_answered() {
    let mut rng = Rng::seeded("a_thousand_kills_lose_nothing_that_was_answered");
    let (agents, kills) = if long() { (4, 1_000) } else { (4, 200) };
    let world = World::new();
    // A process that comes before the last one is missed gets a lane beside it.
    let cli = world.cli().env("SHIKIRI_MAX_AGENTS", "100");
    let mut answered: Vec<(String, String)> = Vec::new();
    // How long a process takes to its answer, at first a guess: kills are spread over all of it.
    let mut whole = 60_000;
    for kill in 0..kills {
        let agent = format!("agent-{}", kill % agents);
        let mut client = process(&cli.clone().env("SHIKIRI_AGENT_ID", &agent), "x");
        let wait = Duration::from_micros(rng.range(0, whole));
        let question = format!("q{kill}");
        let start = Instant::now();
        // Only one that lives can be written to.
        let id = client.request("tools/call", call("ask_chatgpt_web", &question));
        let pid = client.pid();
        let killer = std::thread::spawn(move || {
            std::thread::sleep(wait);
            signal(pid, Signal::KILL);
        });
        while let Some(message) = client.hear() {
            if message["id"] == id {
                let url = text_of(&message["result"]["structuredContent"], "url");
                answered.push((question.clone(), url));
                let took = u64::try_from(start.elapsed().as_micros()).unwrap();
                whole = 2 * took;
            }
        }
        killer.join().unwrap();
        if answered.is_empty() {
            whole += 60_000;
        }
    }
    let mut last = process(&cli, "x");
    let next = ask(&mut last, "after all");
    assert!(next["url"].is_string());
    let lines: Vec<Value> = pages(&cli);
    for (question, url) in &answered {
        let line = lines.iter().find(|line| line["question"] == *question);
        let line = line.unwrap_or_else(|| panic!("{question} is lost"));
        assert_eq!((&line["status"], &line["url"]), (&json!("answered"), &json!(url)));
    }
    let sent = world.sent();
    let different: BTreeSet<_> = sent.iter().collect();
    assert_eq!(different.len(), sent.len(), "something was sent twice");
    assert!(exported(&cli)["version"] == 2);
    cli.run(&["db", "check"]).done();
    let begun = lines.iter().filter(|line| text(line, "question").starts_with('q')).count();
    let (answered, sent) = (answered.len(), sent.len());
    eprintln!("{kills} kills, {begun} begun, {answered} answered, {sent} sent");
    // Otherwise the kills would not be in the middle of anything.
    assert!(answered > 0 && begun > answered, "{begun} begun, {answered} answered");
}

/// A file of thousands of chats, whose import is killed at any moment: all of it is there, or nothing.
#[test]
fn an_import_that_is_killed_took_everything_or_nothing() {
    let mut rng = Rng::seeded("an_import_that_is_killed_took_everything_or_nothing");
    let kills = if long() { 100 } else { 12 };
    let entry = |n: u32| {
        let url = format!("https://chatgpt.com/c/{n}");
        (format!("名前{n}"), json!({ "chatgpt": { "url": url } }))
    };
    let projects: serde_json::Map<String, Value> = (0..3_000).map(entry).collect();
    let (count, file) = (projects.len(), json!({ "projects": projects }).to_string());
    let (mut nothing, mut everything) = (0, 0);
    let mut whole = None;
    for _ in 0..kills {
        let world = World::new();
        let (cli, path) = (world.cli(), world.folder.path().join("v1.json"));
        cli.run(&["lanes", "clean"]).done();
        std::fs::write(&path, &file).unwrap();
        let words = ["lanes", "import", path.to_str().unwrap()];
        let start = Instant::now();
        // The first is left alone, to know how long it takes.
        let Some(whole) = whole else {
            cli.run(&words).done();
            whole = u64::try_from(start.elapsed().as_micros()).ok();
            continue;
        };
        let mut import = cli.start(&words);
        std::thread::sleep(Duration::from_micros(rng.range(whole / 4, whole + whole / 4)));
        import.kill9();
        match exported(&cli)["agents"].as_object().unwrap().len() {
            0 => nothing += 1,
            all if all == count => everything += 1,
            some => panic!("{some} of {count} were taken in"),
        }
        cli.run(&words).done();
        assert_eq!(exported(&cli)["agents"].as_object().unwrap().len(), count);
    }
    eprintln!("{kills} imports, {nothing} took nothing, {everything} everything");
}

/// History of any length.
fn pages(cli: &Cli) -> Vec<Value> {
    let mut all = Vec::new();
    for agent in 0..4 {
        all.extend(history(cli, &["--agent", &format!("agent-{agent}")]));
    }
    all.extend(history(cli, &["--agent", "phoenix"]));
    all
}
