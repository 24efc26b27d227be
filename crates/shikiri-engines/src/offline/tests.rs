use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use shikiri_executions::execution::{EngineReceiver, NoTools, ResumeState};
use shikiri_model::execution::{
    MessageProcessor, ModelPrices, PriceList, ProcessorConfig, SpenderKind, TokenPrice, TokenUsage,
    total,
};
use shikiri_model::native::ExecutionLimits;
use shikiri_model::tenant::EgressPolicy;
use shikiri_model::time::Timestamp;
use tokio::time::Instant;

use super::*;

fn order(prompt: &str) -> TurnRequest {
    TurnRequest {
        prompt: prompt.to_owned(),
        system_prompt: String::new(),
        model: Model::offline(),
        subagent_model: Some("small".to_owned()),
        aliases: BTreeMap::new(),
        resume: None,
        servers: Vec::new(),
        skills: Vec::new(),
        tools: Arc::new(NoTools),
        folder: PathBuf::new(),
        home: PathBuf::new(),
        env: BTreeMap::new(),
        secrets: Vec::new(),
        limits: ExecutionLimits::default(),
        prices: PriceList::default(),
        memory: ResumeState::default(),
        egress: EgressPolicy::default(),
        loopback_ports: Vec::new(),
    }
}

/// What became of an order, and what a reader would have seen.
struct Seen {
    ended: Result<(), EngineError>,
    events: Vec<(String, Value)>,
    processor: MessageProcessor,
}

impl Seen {
    fn names(&self) -> Vec<&str> {
        self.events.iter().map(|(name, _)| name.as_str()).collect()
    }

    fn of(&self, name: &str) -> Vec<&Value> {
        let own = self.events.iter().filter(|(kind, _)| kind == name);
        own.map(|(_, data)| data).collect()
    }

    fn text(&self) -> String {
        self.of("text_delta").iter().filter_map(|data| data["text"].as_str()).collect()
    }
}

fn processor() -> MessageProcessor {
    let prices = ModelPrices { input: TokenPrice::from_micros(3), ..ModelPrices::default() };
    let prices = PriceList::new([("offline".to_owned(), prices), ("small".to_owned(), prices)]);
    MessageProcessor::new(ProcessorConfig { turn: 1, prices, ..ProcessorConfig::default() })
}

async fn listen(mut messages: EngineReceiver) -> (Vec<(String, Value)>, MessageProcessor) {
    let (mut events, mut processor) = (Vec::new(), processor());
    while let Some(message) = messages.recv().await {
        for event in processor.process(message, Timestamp::default()) {
            events.push((event.kind().to_owned(), serde_json::from_str(event.data()).unwrap()));
        }
    }
    (events, processor)
}

async fn play(order: TurnRequest, stop: CancellationToken) -> Seen {
    let (told, messages) = EngineSender::channel();
    let (ended, (events, processor)) =
        tokio::join!(OfflineScriptEngine.run(order, told, stop), listen(messages));
    Seen { ended, events, processor }
}

async fn played(prompt: &str) -> Seen {
    play(order(prompt), CancellationToken::new()).await
}

#[tokio::test]
async fn any_input_is_answered_by_an_engine_that_says_what_it_is() {
    let seen = played("  旅行の計画  ").await;
    assert_eq!(seen.ended, Ok(()));
    let expected = "This is the offline engine: no model was asked. It heard: 旅行の計画";
    assert_eq!(seen.text(), expected);
    let finish = seen.processor.finish().unwrap();
    assert_eq!((finish.result.as_str(), finish.is_error), (expected, false));
    assert_eq!(finish.session_id.as_deref(), seen.processor.session_id());
    uuid::Uuid::parse_str(seen.processor.session_id().unwrap()).unwrap();
    let rows = seen.processor.rows();
    let usage = TokenUsage { input_tokens: 10, output_tokens: 20, ..TokenUsage::default() };
    assert_eq!((rows.len(), rows[0].usage), (1, usage));
    assert!(played("#offline evnts=1").await.text().contains("there is no \"evnts\""));
}

#[tokio::test]
async fn a_resumed_session_keeps_its_id() {
    let resumed = TurnRequest { resume: Some("given".to_owned()), ..order("") };
    let seen = play(resumed, CancellationToken::new()).await;
    assert_eq!(seen.of("session_start")[0]["session_id"], "given");
    assert_eq!(seen.processor.finish().unwrap().session_id.as_deref(), Some("given"));
}

#[tokio::test(start_paused = true)]
async fn a_script_is_played_to_the_letter() {
    let begun = Instant::now();
    let seen = played(
        "#offline events=5 chars=7 delay_ms=1000 tools=2 thinking=1 tokens_in=3 tokens_out=4",
    )
    .await;
    assert_eq!(begun.elapsed(), Duration::from_secs(4));
    let tool = ["tool_use", "tool_result"];
    let expected = [&["session_start", "thinking"][..], &tool, &tool, &["text_delta"; 5]].concat();
    assert_eq!(seen.names(), expected);
    for piece in seen.of("text_delta") {
        assert_eq!(piece["text"].as_str().unwrap().chars().count(), 7);
    }
    assert_eq!(seen.text(), "This is the offline engine: no mode");
    assert_eq!(seen.processor.finish().unwrap().result, seen.text());
    assert_eq!(seen.processor.rows()[0].usage.output_tokens, 4);
}

#[tokio::test]
async fn subagents_live_together_and_each_has_its_own_tool_and_bill() {
    let seen = played("#offline subagents=8 events=1").await;
    let (starts, ends) = (seen.of("subagent_start"), seen.of("subagent_end"));
    assert_eq!((starts.len(), ends.len()), (8, 8));
    let last_start = seen.names().iter().rposition(|name| *name == "subagent_start");
    let first_end = seen.names().iter().position(|name| *name == "subagent_end");
    assert!(last_start < first_end, "one ended before all had started");
    for (number, start) in starts.iter().enumerate() {
        let id = &start["tool_use_id"];
        assert_eq!(start["model"], "small");
        let inner = seen.of("tool_use").iter().filter(|t| t["parent_tool_use_id"] == *id).count();
        assert_eq!(inner, 1, "{id}");
        let end = ends.iter().find(|end| end["tool_use_id"] == *id).unwrap();
        let number = number as u64 + 1;
        assert_eq!(end["usage"]["input_tokens"], json!(100 + number));
        assert_eq!(end["usage"]["output_tokens"], json!(10 + number));
    }
    let rows = seen.processor.rows();
    let subagents = rows.iter().filter(|row| row.kind == SpenderKind::Subagent).count();
    assert_eq!((rows.len(), subagents), (9, 8));
    let usage = TokenUsage {
        input_tokens: 10 + 8 * 100 + 36,
        output_tokens: 20 + 8 * 10 + 36,
        ..TokenUsage::default()
    };
    assert_eq!(total(&rows).0, usage);
    let unended = seen.processor.tools().iter().filter(|tool| tool.ended_at.is_none()).count();
    assert_eq!((seen.processor.tools().len(), unended), (16, 0));
}

#[tokio::test]
async fn an_error_comes_after_the_events_and_its_spending() {
    let seen = played("#offline events=3 tokens_in=7 error=\"out of luck\"").await;
    assert_eq!(seen.ended, Err(EngineError::new("out of luck")));
    assert_eq!(seen.of("text_delta").len(), 3);
    assert!(seen.processor.finish().is_none());
    assert_eq!(seen.processor.rows()[0].usage.input_tokens, 7);
    assert_eq!(played("#offline error=boom").await.text(), "");
}

#[tokio::test(start_paused = true)]
async fn it_hangs_until_it_is_stopped_and_tells_what_it_spent() {
    for (line, pieces, output) in
        [("hang=1", 0, 8), ("hang=1 events=2", 2, 8), ("events=8 delay_ms=60000", 4, 4)]
    {
        let stop = CancellationToken::new();
        let (stopper, begun) = (stop.clone(), Instant::now());
        let stopping = async move {
            tokio::time::sleep(Duration::from_secs(200)).await;
            stopper.cancel();
        };
        let playing = play(order(&format!("#offline tokens_out=8 {line}")), stop);
        let (seen, ()) = tokio::join!(playing, stopping);
        assert_eq!(seen.ended, Ok(()), "{line}");
        assert_eq!(begun.elapsed().as_secs(), 200, "{line}: not prompt, or not hanging");
        assert_eq!(seen.of("text_delta").len(), pieces, "{line}");
        assert!(seen.processor.finish().is_none(), "{line}");
        assert_eq!(seen.processor.rows()[0].usage.output_tokens, output, "{line}");
    }
}

/// A bound that a slow machine keeps a hundredfold: a delay per event would break it.
#[tokio::test]
async fn it_plays_at_full_speed() {
    let begun = std::time::Instant::now();
    let seen = played("#offline events=100000 chars=20").await;
    assert_eq!(seen.of("text_delta").len(), 100_000);
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
}
