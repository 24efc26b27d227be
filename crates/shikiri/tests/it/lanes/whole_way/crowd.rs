//! Many agents ask at once, each several questions, at one provider, the other, and both.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use shikiri_testkit::{ChatSite, Hello, McpClient, Rng, long};

use super::super::{answer, call, history, process, text};
use super::Home;

const TOOLS: [(&str, &[&str]); 3] = [
    ("ask_chatgpt_web", &["chatgpt"]),
    ("ask_gemini_web", &["gemini"]),
    ("ask_chatgpt_gemini_web", &["chatgpt", "gemini"]),
];

/// Agents and the questions of each.
fn size() -> (usize, usize) {
    if long() { (20, 10) } else { (6, 4) }
}

/// What one agent will ask: a tool and a question each time.
fn plan(agent: usize, questions: usize, rng: &mut Rng) -> Vec<(usize, String)> {
    let question = |number: usize| {
        // Each asks at both in any case: what is to be seen in the end is the same for all.
        let tool = if number == 0 { 2 } else { rng.index(TOOLS.len()) };
        (tool, format!("agent {agent} question {number} レーン words={}", rng.range(10, 150)))
    };
    (0..questions).map(question).collect()
}

/// What one agent saw.
struct Seen {
    lane: String,
    /// Where it was answered, by provider.
    urls: BTreeMap<&'static str, Value>,
}

impl Seen {
    fn new() -> Self {
        Self { lane: String::new(), urls: BTreeMap::new() }
    }

    /// The answer is whole, to this very question, and says whose it is, from where and how long it
    /// took; it is marked as what it is, also for who reads nothing but the text.
    fn take(&mut self, (tool, question): &(usize, String), result: &Value) {
        let told = answer(result);
        let lane = text(&told, "lane").to_owned();
        assert!(self.lane.is_empty() || self.lane == lane, "{lane} is not {}", self.lane);
        self.lane = lane;
        assert_eq!((&told["agent"], &told["instance"]), (&json!("crowd"), &json!(self.lane)));
        assert_eq!(told["untrusted"], true);
        assert!(text(&result["content"][0], "text").contains("not to be trusted"), "{result}");
        let providers = TOOLS[*tool].1;
        for provider in providers {
            let part = if providers.len() == 1 { &told } else { &told[*provider] };
            assert_eq!(part["answer"], ChatSite::answer_to(question), "{provider}");
            let times = &part["timings"];
            let total = times["total_ms"].as_u64().unwrap_or_else(|| panic!("no time in {part}"));
            assert!(total > 0 && times["wait_response_ms"].as_u64() <= Some(total), "{times}");
            let url = self.urls.entry(provider).or_insert_with(|| part["url"].clone());
            assert_eq!(*url, part["url"], "it has one chat at {provider}");
        }
    }

    /// What the agent is told of itself.
    fn check_info(&self, result: &Value) {
        let info = answer(result);
        assert_eq!((&info["lane"], &info["is_open"]), (&json!(self.lane), &json!(true)));
        for (provider, url) in &self.urls {
            assert_eq!(info["threads"][provider]["url"], *url);
        }
    }
}

/// At the site: everything arrived once, in the chat of its sender, in its order.
fn check(home: &Home, plans: &[Vec<(usize, String)>], all: &[Seen]) {
    let log = home.site.log();
    let mut arrived = 0;
    for (plan, seen) in plans.iter().zip(all) {
        for provider in ["chatgpt", "gemini"] {
            let asked = plan.iter().filter(|(tool, _)| TOOLS[*tool].1.contains(&provider));
            let asked: Vec<_> = asked.map(|(_, question)| question.as_str()).collect();
            let chat = &log.chats[home.chat(&seen.urls[provider])];
            let found: Vec<_> = chat.iter().map(|(question, _)| question.trim()).collect();
            assert_eq!(found, asked, "{} at {provider}", seen.lane);
            arrived += asked.len();
        }
    }
    assert_eq!(log.sends.len(), arrived, "something was sent twice");
    assert_eq!(log.chats.len(), 2 * all.len(), "each has one chat at each");
    let written = tokio::task::block_in_place(|| history(&home.cli(), &[]));
    assert_eq!(written.len(), arrived);
    assert!(written.iter().all(|line| line["status"] == "answered" && line["sent"] == "yes"));
}

fn settings() -> [(&'static str, &'static str); 2] {
    [("SHIKIRI_MAX_AGENTS", "30"), ("SHIKIRI_QUESTION_WAIT_SECONDS", "1000")]
}

/// Rows 0.1, 0.15: each agent a process of its own, all in one browser.
#[tokio::test(flavor = "multi_thread")]
async fn processes_that_ask_at_once_get_their_own_answers_from_a_real_browser() {
    let mut rng = Rng::seeded("processes at once in a real browser");
    let Some(home) = Home::start().await else { return };
    let (agents, questions) = size();
    let plans: Vec<_> = (0..agents).map(|agent| plan(agent, questions, &mut rng)).collect();
    let cli = settings().iter().fold(home.cli(), |cli, (name, value)| cli.env(name, value));
    let ask_all = |plan: &[(usize, String)]| {
        let mut client = process(&cli, "crowd");
        let mut seen = Seen::new();
        for asked in plan {
            let params = call(TOOLS[asked.0].0, &asked.1);
            seen.take(asked, &client.result("tools/call", params));
        }
        assert_eq!(seen.lane, format!("crowd-{}", client.pid()));
        seen.check_info(&client.result("tools/call", json!({ "name": "lane_info" })));
        assert_eq!(client.end().0, 0);
        seen
    };
    let all: Vec<Seen> = tokio::task::block_in_place(|| {
        std::thread::scope(|scope| {
            let started: Vec<_> = plans.iter().map(|plan| scope.spawn(|| ask_all(plan))).collect();
            started.into_iter().map(|agent| agent.join().unwrap()).collect()
        })
    });
    check(&home, &plans, &all);
}

/// Rows 0.1, 0.15: all of them clients of one server, with one client name.
#[tokio::test(flavor = "multi_thread")]
async fn connections_that_ask_at_once_get_their_own_answers_from_a_real_browser() {
    let mut rng = Rng::seeded("connections at once in a real browser");
    let Some(home) = Home::start().await else { return };
    let (agents, questions) = size();
    let plans: Vec<_> = (0..agents).map(|agent| plan(agent, questions, &mut rng)).collect();
    let server = settings().iter().fold(home.server(), |app, (name, value)| app.env(name, value));
    let app = server.start().await;
    let ask_all = |plan: Vec<(usize, String)>| {
        let client = app.client();
        async move {
            let hello = Hello { name: "crowd".to_owned(), ..Hello::default() };
            let mcp = McpClient::open(&client, hello).await;
            let mut seen = Seen::new();
            for asked in &plan {
                let params = call(TOOLS[asked.0].0, &asked.1);
                seen.take(asked, &mcp.result("tools/call", params).await);
            }
            seen.check_info(&mcp.result("tools/call", json!({ "name": "lane_info" })).await);
            seen
        }
    };
    let started: Vec<_> = plans.iter().map(|plan| tokio::spawn(ask_all(plan.clone()))).collect();
    let mut all = Vec::new();
    for agent in started {
        all.push(agent.await.unwrap());
    }
    check(&home, &plans, &all);
}
