//! What was captured of the real CLI, both versions, played again: the events stay the same, and
//! what they add up to is what the captures say themselves.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use shikiri_model::execution::{
    MessageProcessor, ProcessorConfig, SpenderKind, built_in_prices, total,
};
use shikiri_model::time::Timestamp;

use super::*;
use crate::claude_code::subagent_transcripts::SubagentTranscripts;

/// Characters of an event that a snapshot shows.
const SHOWN: usize = 240;

fn captures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/captures")
}

/// What the CLI printed: a capture of the wire has both directions.
fn lines(file: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(file).unwrap();
    let line = |line: &str| {
        let line: Value = serde_json::from_str(line).unwrap();
        match line["dir"].as_str() {
            Some("out") => Some(line["msg"].clone()),
            Some(_) => None,
            None => Some(line),
        }
    };
    text.lines().filter_map(line).collect()
}

struct Played {
    processor: MessageProcessor,
    /// Kind and data of each.
    events: Vec<(&'static str, String)>,
    warnings: usize,
}

fn play(lines: &[Value], rows: &[TranscriptRow]) -> Played {
    let mut translator = CliTranslator::default();
    let expected = ProcessorConfig { turn: 1, ..ProcessorConfig::default() };
    let mut played =
        Played { processor: MessageProcessor::new(expected), events: Vec::new(), warnings: 0 };
    let mut told: Vec<_> = lines.iter().flat_map(|line| translator.take(line)).collect();
    told.extend(rows.iter().filter_map(|row| translator.take_row(row)));
    told.extend(translator.close());
    for message in told {
        for event in played.processor.process(message, Timestamp::from_millis(0)) {
            played.warnings += usize::from(event.kind() == "warning");
            played.events.push((event.kind(), event.data().to_owned()));
        }
    }
    played
}

/// Everything that readers and the bill get, a line each.
fn shown(played: &Played) -> String {
    let mut shown = String::new();
    for (kind, data) in &played.events {
        let data: String = data.chars().take(SHOWN).collect();
        writeln!(shown, "{kind} {data}").unwrap();
    }
    for row in played.processor.rows() {
        let row = serde_json::to_string(&row).unwrap();
        writeln!(shown, "= {row}").unwrap();
    }
    let finish = played.processor.finish();
    writeln!(shown, "= {finish:?}").unwrap();
    shown
}

/// Ids in all blocks of this type, by the name of their field.
fn ids(lines: &[Value], block_type: &str, field: &str) -> BTreeSet<String> {
    let blocks = lines.iter().flat_map(|line| items(&line["message"]["content"]));
    let blocks = blocks.filter(|block| block["type"] == block_type);
    blocks.map(|block| block[field].as_str().unwrap().to_owned()).collect()
}

/// Tokens of all models as the last results have them: input, output, cache writes, cache reads.
fn counted(lines: &[Value]) -> [u64; 4] {
    let results: Vec<_> = lines.iter().filter(|line| line["type"] == "result").collect();
    let is_new = results.iter().any(|r| r["model_usage_since_last_result"].is_object());
    let (from, field) = match is_new {
        true => (0, "model_usage_since_last_result"),
        false => (results.len().saturating_sub(1), "modelUsage"),
    };
    let models = results[from..].iter().filter_map(|result| result[field].as_object());
    let fields =
        ["inputTokens", "outputTokens", "cacheCreationInputTokens", "cacheReadInputTokens"];
    let mut sums = [0; 4];
    for model in models.flat_map(|models| models.values()) {
        for (sum, field) in sums.iter_mut().zip(fields) {
            *sum += model[field].as_u64().unwrap();
        }
    }
    sums
}

fn sums(usage: TokenUsage) -> [u64; 4] {
    let written = usage.cache_write_5m_tokens + usage.cache_write_1h_tokens;
    [usage.input_tokens, usage.output_tokens, written, usage.cache_read_tokens]
}

/// The models that a result names, each with its cost by the built-in prices and by the CLI.
fn costs(result: &Value) -> Vec<(String, Option<f64>, f64)> {
    let models = result["modelUsage"].as_object().into_iter().flatten();
    let costs = models.map(|(model, spent)| {
        let tokens = |field: &str| spent[field].as_u64().unwrap();
        assert_eq!(spent["cacheCreationEphemeral1hInputTokens"].as_u64().unwrap_or(0), 0);
        let usage = TokenUsage {
            input_tokens: tokens("inputTokens"),
            output_tokens: tokens("outputTokens"),
            cache_write_5m_tokens: tokens("cacheCreationInputTokens"),
            cache_read_tokens: tokens("cacheReadInputTokens"),
            ..TokenUsage::default()
        };
        let known = built_in_prices(model).map(|prices| prices.cost(&usage).dollars());
        (model.clone(), known, spent["costUSD"].as_f64().unwrap())
    });
    costs.collect()
}

#[test]
fn every_captured_cost_is_that_of_the_built_in_prices() {
    let mut models = BTreeSet::new();
    for file in capture_files() {
        for result in lines(&file).iter().filter(|line| line["type"] == "result") {
            for (model, known, told) in costs(result) {
                let known = known.unwrap_or_else(|| panic!("{model} has no prices"));
                let name = file.display();
                assert!((known - told).abs() < 1e-12, "{name}: {model}: {known}, not {told}");
                models.insert(model);
            }
        }
    }
    let expected: BTreeSet<String> = [
        "claude-haiku-4-5-20251001",
        "claude-haiku-5-5",
        "claude-opus-4-8[1m]",
        "claude-opus-5-5",
        "claude-sonnet-5-5",
        "eu.anthropic.claude-haiku-4-5-20251001-v1:0",
        "eu.anthropic.claude-opus-5-5",
    ]
    .map(str::to_owned)
    .into();
    assert_eq!(models, expected);
}

/// The captures of the CLI's output and of its wire.
fn capture_files() -> Vec<PathBuf> {
    let folders = ["stream", "control"].map(|folder| captures().join(folder));
    let entries = folders.iter().flat_map(|folder| std::fs::read_dir(folder).unwrap());
    let mut files: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

#[test]
fn every_capture_gives_the_same_events_and_the_sums_that_it_tells() {
    let files = capture_files();
    assert!(files.len() >= 35, "{files:?}");
    for file in files {
        let name = file.file_stem().unwrap().to_str().unwrap();
        let lines = lines(&file);
        let played = play(&lines, &[]);
        insta::assert_snapshot!(name, shown(&played));

        let tools: BTreeSet<_> =
            played.processor.tools().iter().map(|tool| tool.tool_use_id.clone()).collect();
        if name == "sdk-to-cli" {
            // The other direction: the CLI takes it, and never says it.
            assert!(tools.is_empty() && played.processor.finish().is_none());
            continue;
        }
        assert_eq!(tools, ids(&lines, "tool_use", "id"), "{name}");
        let count = |kind: &str| played.events.iter().filter(|(k, _)| *k == kind).count();
        let answered = ids(&lines, "tool_result", "tool_use_id").len();
        assert_eq!(count("tool_result"), answered, "{name}");
        let is_agent =
            |line: &&Value| line["task_type"] == "local_agent" && line["subtype"] == "task_started";
        assert_eq!(count("subagent_start"), lines.iter().filter(is_agent).count(), "{name}");
        let mut expected = counted(&lines);
        if name == "wire-interrupt" {
            // The CLI does not count the request that was interrupted; this is how it began. Its
            // one token of output cannot be told from the others' here.
            expected = [expected[0] + 100, expected[1], expected[2] + 20, expected[3] + 30];
        }
        assert_eq!(sums(total(&played.processor.rows()).0), expected, "{name}");
        let retries = lines.iter().filter(|line| line["subtype"] == "api_retry").count();
        assert_eq!(played.warnings, retries + usize::from(name == "wire-interrupt"), "{name}");
    }
}

#[tokio::test]
async fn with_the_transcripts_each_subagent_has_the_sum_of_its_own() {
    for name in ["parallel", "parallel-2.1.197", "background"] {
        let lines = lines(&captures().join(format!("stream/{name}.jsonl")));
        let session = lines.iter().find_map(|line| line["session_id"].as_str()).unwrap();
        let files = captures().join("transcripts").join(name).join("subagents");
        let home = tempfile::tempdir().unwrap();
        let folder = home.path().join("claude/projects/-project").join(session).join("subagents");
        std::fs::create_dir_all(&folder).unwrap();
        for file in std::fs::read_dir(&files).unwrap().map(Result::unwrap) {
            std::fs::copy(file.path(), folder.join(file.file_name())).unwrap();
        }
        let rows = SubagentTranscripts::open(home.path(), None).await.unwrap().read(session).await;
        let played = play(&lines, &rows);

        let mut own = BTreeMap::new();
        for row in played.processor.rows() {
            if row.kind == SpenderKind::Subagent {
                let sum: &mut [u64; 4] = own.entry(row.agent_id.unwrap()).or_default();
                sums(row.usage).iter().zip(sum).for_each(|(part, sum)| *sum += part);
            }
        }
        assert_eq!(own, by_hand(&files), "{name}");
        assert_eq!(sums(total(&played.processor.rows()).0), counted(&lines), "{name}");
    }
}

/// The sum of each transcript, message by message.
fn by_hand(folder: &Path) -> BTreeMap<String, [u64; 4]> {
    let mut agents = BTreeMap::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|ext| ext != "jsonl") {
            continue;
        }
        let mut messages = BTreeMap::new();
        for line in lines(&path).into_iter().filter(|line| line["type"] == "assistant") {
            let usage = &line["message"]["usage"];
            let number = |name: &str| usage[name].as_u64().unwrap();
            let sum = [
                number("input_tokens"),
                number("output_tokens"),
                number("cache_creation_input_tokens"),
                number("cache_read_input_tokens"),
            ];
            messages.insert(line["message"]["id"].to_string(), sum);
        }
        let name = path.file_stem().unwrap().to_str().unwrap();
        let agent = name.strip_prefix("agent-").unwrap().to_owned();
        let mut sum = [0; 4];
        for message in messages.values() {
            sum.iter_mut().zip(message).for_each(|(sum, part)| *sum += part);
        }
        agents.insert(agent, sum);
    }
    agents
}
