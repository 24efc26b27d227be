//! The browser bridge with a real Chromium, against a chat page of our own that tells how long it
//! took itself, from the click to the last letter. What the question took beyond that is ours:
//! looking, typing, sending, noticing the end, reading.

use std::path::Path;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use async_trait::async_trait;
use shikiri_browser::{BrowserBridge, BrowserOptions, plan_browser};
use shikiri_lanes::{AskStage, LaneKey, PageDriver as _, PageQuestion, SendGate, SendRefusal};
use shikiri_model::ids::TenantId;
use shikiri_testkit::ChatSite;

use crate::figure::{Figure, Goal, median, percentile};
use crate::world::World;

const QUESTIONS: usize = 20;
const NAME: &str = "the bridge beside the page's own time, per question";
const MOST_MS: f64 = 150.0;

struct AlwaysSend;

#[async_trait]
impl SendGate for AlwaysSend {
    async fn before_send(&self) -> Result<(), SendRefusal> {
        Ok(())
    }

    fn report_stage(&self, _: AskStage) {}
}

pub(super) fn measure(world: &World) -> Result<Vec<Figure>> {
    let folder = world.scratch().join("bridge");
    std::fs::create_dir_all(&folder)?;
    let options = options(&folder);
    let figure = Figure::new(format!("{NAME}, p50"), "ms", Vec::new()).goal(Goal::AtMost(MOST_MS));
    if let Err(error) = plan_browser(&options) {
        return Ok(vec![figure.missing(error.to_string())]);
    }
    let rounds = world.runtime.block_on(rounds(&folder, options, world.rounds()))?;
    let middle = rounds.iter().map(|times| median(times)).collect();
    let slow = rounds.iter().map(|times| percentile(times, 95)).collect();
    Ok(vec![Figure { samples: middle, ..figure }, Figure::new(format!("{NAME}, p95"), "ms", slow)])
}

fn options(folder: &Path) -> BrowserOptions {
    BrowserOptions {
        folder: folder.to_owned(),
        chrome_bin: std::env::var_os("SHIKIRI_CHROME_BIN").map(Into::into),
        is_headless: true,
        ..BrowserOptions::default()
    }
}

/// Milliseconds beyond the page's own, question by question, round by round.
async fn rounds(folder: &Path, options: BrowserOptions, count: usize) -> Result<Vec<Vec<f64>>> {
    let manner = serde_json::json!({ "marked": true, "editor": "editable", "piece_ms": 15 });
    let site = ChatSite::start([("bench", manner)]).await;
    std::fs::write(folder.join("providers.toml"), site.providers())?;
    let bridge = BrowserBridge::new(options);
    let lane = LaneKey { tenant: TenantId::local(), lane: "bench".to_owned() };
    // The first question starts the browser and begins the chat, which is not what is measured.
    let mut asked = PageQuestion {
        lane,
        provider: "bench".to_owned(),
        text: "to begin with".to_owned(),
        url: None,
        tab: None,
    };
    let begun = bridge.ask(&asked, &AlwaysSend).await.context("the first question")?;
    (asked.url, asked.tab) = (begun.url, begun.tab);
    let mut rounds = Vec::new();
    for round in 0..count {
        let mut times = Vec::new();
        for number in 0..QUESTIONS {
            asked.text = format!("round {round} question {number} words=60");
            let began = Instant::now();
            let answer = bridge.ask(&asked, &AlwaysSend).await?.answer;
            let all = began.elapsed().as_secs_f64() * 1e3;
            ensure!(answer == ChatSite::answer_to(&asked.text), "a wrong answer: {answer}");
            site.until("the page's own time", |log| log.own_ms.contains_key(&asked.text)).await;
            let own = site.log().own_ms.get(&asked.text).copied().unwrap_or_default();
            times.push(all - own);
        }
        rounds.push(times);
    }
    Ok(rounds)
}
