//! Many agents at once: no answer goes astray, no question is sent twice.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde_json::Value;
use shikiri_testkit::{Cli, Hello, McpClient, Rng, TestApp, long};

use super::{answer, call, history, process, text};
use crate::PROGRAM;

/// Agents and the questions of each.
fn size() -> (usize, usize) {
    if long() { (50, 100) } else { (12, 12) }
}

fn settings(sent: &Path) -> [(&'static str, String); 4] {
    [
        ("SHIKIRI_PAGES", format!("offline:{}", sent.display())),
        ("SHIKIRI_MAX_AGENTS", "100".to_owned()),
        ("SHIKIRI_MAX_QUEUED_QUESTIONS", "1000".to_owned()),
        ("SHIKIRI_QUESTION_WAIT_SECONDS", "3000".to_owned()),
    ]
}

/// What one agent saw of its own.
struct Seen {
    lane: String,
    urls: BTreeSet<String>,
    count: usize,
}

impl Seen {
    fn new() -> Self {
        Self { lane: String::new(), urls: BTreeSet::new(), count: 0 }
    }

    /// The answer must be to this very question, in this lane.
    fn take(&mut self, question: &str, told: &Value) {
        let lane = text(told, "lane");
        assert!(self.lane.is_empty() || self.lane == lane, "{lane} is not {}", self.lane);
        lane.clone_into(&mut self.lane);
        for part in [&told["chatgpt"], &told["gemini"], told] {
            if let Some(said) = part["answer"].as_str() {
                assert!(said.contains(&format!("\nlane: {lane}\n")), "{said}");
                assert!(said.ends_with(&format!("question: {question}")), "{said}");
                self.urls.insert(text(part, "url").to_owned());
            }
        }
        self.count += 1;
    }
}

/// What one agent asks: at one provider, the other, or both; some answers take a moment.
fn plan(agent: usize, turns: usize, rng: &mut Rng) -> Vec<(&'static str, String)> {
    let question = |turn: usize| {
        let tools = ["ask_chatgpt_web", "ask_gemini_web", "ask_chatgpt_gemini_web"];
        let tool = if turn == 0 { tools[2] } else { *rng.pick(&tools) };
        let wish = if rng.one_in(4) { rng.range(1, 40) } else { 0 };
        (tool, format!("#offline delay_ms={wish}\n質問 {turn} of agent {agent}"))
    };
    (0..turns).map(question).collect()
}

fn plans(test: &str) -> Vec<Vec<(&'static str, String)>> {
    let mut rng = Rng::seeded(test);
    let (agents, turns) = size();
    (0..agents).map(|agent| plan(agent, turns, &mut rng)).collect()
}

/// No two agents share a chat, everything is in history once and was sent once.
fn check(cli: &Cli, sent: &Path, all: &[Seen], plans: &[Vec<(&str, String)>]) {
    let mut owners: BTreeMap<&str, &str> = BTreeMap::new();
    for (seen, plan) in all.iter().zip(plans) {
        assert_eq!((seen.count, seen.urls.len()), (plan.len(), 2), "{}", seen.lane);
        for url in &seen.urls {
            let other = owners.insert(url, &seen.lane);
            assert_eq!(other, None, "{url} is of two");
        }
    }
    let is_both = |(tool, _): &&(&str, String)| *tool == "ask_chatgpt_gemini_web";
    let asked = |plan: &Vec<(&str, String)>| plan.len() + plan.iter().filter(is_both).count();
    let lines: Vec<Value> = std::fs::read_to_string(sent)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(lines.len(), plans.iter().map(asked).sum::<usize>(), "sent");
    let different: BTreeSet<String> = lines
        .iter()
        .map(|line| format!("{} {} {}", line["lane"], line["provider"], line["question"]))
        .collect();
    assert_eq!(different.len(), lines.len(), "something was sent twice");
    for line in &lines {
        assert_eq!(owners.get(text(line, "chat")), Some(&text(line, "lane")), "cross-delivery");
    }
    if lines.len() <= 1_000 {
        let history = history(cli, &[]);
        assert_eq!(history.len(), lines.len());
        assert!(history.iter().all(|line| line["status"] == "answered"));
    }
}

/// Each agent a process of its own, all on one file.
#[test]
fn many_processes_at_once_never_cross() {
    let folder = tempfile::tempdir().unwrap();
    let sent = folder.path().join("sent");
    let plans = plans("many_processes_at_once_never_cross");
    let cli = settings(&sent)
        .iter()
        .fold(Cli::new(PROGRAM, folder.path()), |cli, (name, value)| cli.env(name, value));
    let all: Vec<Seen> = std::thread::scope(|scope| {
        let start = |plan| {
            let (cli, plan): (&Cli, &Vec<(&str, String)>) = (&cli, plan);
            scope.spawn(move || {
                let mut client = process(cli, "claude-code");
                let mut seen = Seen::new();
                for (tool, question) in plan {
                    let told = answer(&client.result("tools/call", call(tool, question)));
                    seen.take(question, &told);
                }
                assert_eq!(client.end().0, 0);
                seen
            })
        };
        let started: Vec<_> = plans.iter().map(start).collect();
        started.into_iter().map(|agent| agent.join().unwrap()).collect()
    });
    check(&cli, &sent, &all, &plans);
}

/// All of them connections to one server, with one client name.
#[tokio::test(flavor = "multi_thread")]
async fn many_connections_at_once_never_cross() {
    let folder = tempfile::tempdir().unwrap();
    let sent = folder.path().join("sent");
    let plans = plans("many_connections_at_once_never_cross");
    let app = settings(&sent)
        .into_iter()
        .fold(TestApp::new(PROGRAM), |app, (name, value)| app.env(name, value))
        .start()
        .await;
    let started: Vec<_> = plans
        .iter()
        .cloned()
        .map(|plan| {
            let client = app.client();
            tokio::spawn(async move {
                let hello = Hello { name: "claude-code".to_owned(), ..Hello::default() };
                let mcp = McpClient::open(&client, hello).await;
                let mut seen = Seen::new();
                for (tool, question) in &plan {
                    let told = mcp.result("tools/call", call(tool, question)).await;
                    seen.take(question, &answer(&told));
                }
                seen
            })
        })
        .collect();
    let mut all = Vec::new();
    for agent in started {
        all.push(agent.await.unwrap());
    }
    check(&app.cli(), &sent, &all, &plans);
}
