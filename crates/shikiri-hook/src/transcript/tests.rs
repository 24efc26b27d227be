use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use serde_json::json;
use tempfile::TempDir;

use super::plain_tests::{plain_calls, plain_tokens, plain_usage};
use super::*;

pub(super) fn transcript(text: &[u8]) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("session.jsonl");
    fs::write(&path, text).unwrap();
    (folder, path)
}

pub(super) fn open(path: &Path) -> File {
    File::open(path).unwrap()
}

/// A time that no test reaches.
pub(super) fn soon() -> Instant {
    Instant::now() + Duration::from_secs(600)
}

fn append(path: &Path, text: &[u8]) {
    OpenOptions::new().append(true).open(path).unwrap().write_all(text).unwrap();
}

fn answer(id: &str, tokens: u64, block: &Value) -> String {
    let message = json!({ "id": id, "model": "claude-opus-5-5", "role": "assistant",
                          "content": [block], "usage": { "input_tokens": tokens } });
    format!("{}\n", json!({ "type": "assistant", "message": message }))
}

fn call(id: &str) -> Value {
    json!({ "type": "tool_use", "id": id, "name": "Agent", "input": { "prompt": id } })
}

fn ids(calls: &[SubagentCall]) -> Vec<(&str, u64)> {
    calls.iter().map(|call| (call.tool_use_id.as_str(), call.line)).collect()
}

fn captures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/transcripts")
}

/// The transcripts of a capture: the session's and its subagents'.
fn captured(name: &str) -> Vec<PathBuf> {
    let files = fs::read_dir(captures().join(name)).unwrap().map(|file| file.unwrap().path());
    files.filter(|path| path.extension().is_some_and(|ext| ext == "jsonl")).collect()
}

#[test]
fn captured_transcripts_are_read_as_plainly_parsed() {
    let mut read = 0;
    for capture in fs::read_dir(captures()).unwrap() {
        for path in captured(capture.unwrap().file_name().to_str().unwrap()) {
            let text = fs::read(&path).unwrap();
            // As Claude Code writes it, without the spaces of the captures.
            let lines = plain_tests::values(&text);
            let tight: String = lines.iter().map(|(_, line)| format!("{line}\n")).collect();
            for text in [&text, tight.as_bytes()] {
                let (_folder, path) = transcript(text);
                let found = read_new(&mut open(&path), LinePosition::default()).unwrap().0;
                assert_eq!(found, plain_calls(text));
                assert_eq!(
                    usage(&mut open(&path), &UsageFilter::default()).unwrap().by_model,
                    plain_usage(text)
                );
                assert_eq!(tokens(&mut open(&path)).unwrap(), Some(plain_tokens(text).unwrap()));
                read += found.len();
            }
        }
    }
    assert_eq!(read, 2 * (3 + 3 + 2 + 2 + 2));
}

/// What a session and its subagents spent is what Claude Code says at its end.
#[test]
fn sums_of_captured_transcripts_are_what_claude_code_says() {
    for name in ["parallel", "parallel-2.1.197", "background"] {
        let mut spent: BTreeMap<String, TokenUsage> = BTreeMap::new();
        for path in captured(name) {
            for (model, usage) in usage(&mut open(&path), &UsageFilter::default()).unwrap().by_model
            {
                *spent.entry(model).or_default() += usage;
            }
        }
        let result = fs::read(captures().join(name).join("result.json")).unwrap();
        let result: Value = serde_json::from_slice(&result).unwrap();
        let told = result["modelUsage"].as_object().unwrap().iter().map(|(model, told)| {
            let count = |name: &str| told[name].as_u64().unwrap();
            let usage = TokenUsage {
                input_tokens: count("inputTokens"),
                output_tokens: count("outputTokens"),
                cache_write_5m_tokens: count("cacheCreationInputTokens"),
                cache_write_1h_tokens: 0,
                cache_read_tokens: count("cacheReadInputTokens"),
            };
            (model.trim_end_matches("[1m]").to_owned(), usage)
        });
        assert_eq!(spent, told.collect(), "{name}");
    }
}

#[test]
fn a_line_that_is_not_whole_is_read_when_it_is() {
    let whole = answer("m1", 1, &call("t1")) + &answer("m2", 2, &call("t2"));
    let cut = whole.len() - 1;
    let (_folder, path) = transcript(&whole.as_bytes()[..cut]);
    let (first, position) = read_new(&mut open(&path), LinePosition::default()).unwrap();
    assert_eq!(ids(&first), [("t1", 1)]);
    assert_eq!(tokens(&mut open(&path)).unwrap(), Some(1));
    append(&path, b"\n");
    let (second, position) = read_new(&mut open(&path), position).unwrap();
    assert_eq!(ids(&second), [("t2", 2)]);
    assert_eq!(tokens(&mut open(&path)).unwrap(), Some(2));
    let (third, same) = read_new(&mut open(&path), position).unwrap();
    assert_eq!((third, same), (Vec::new(), position));
}

/// Two calls in one line are two; lines that were written again after a compaction are not.
#[test]
fn each_call_is_told_once() {
    let both = json!({ "type": "assistant", "message": { "content": [call("t1"), call("t2")] } });
    let (_folder, path) = transcript(format!("{both}\n{{}}\n{both}\n").as_bytes());
    let (calls, position) = read_new(&mut open(&path), LinePosition::default()).unwrap();
    assert_eq!(ids(&calls), [("t1", 1), ("t2", 1)]);
    assert_eq!(position.lines, 3);
}

#[test]
fn a_call_is_told_with_the_answer_that_follows_it() {
    let result = |id: &str, result: Value| {
        let block = json!({ "tool_use_id": id, "type": "tool_result", "content": "…" });
        format!(
            "{}\n",
            json!({ "type": "user", "message": { "content": [block] },
                               "toolUseResult": result, "timestamp": "2026-11-15T19:11:56.478Z" })
        )
    };
    let calls = ["t1", "t2", "t3", "t4"].map(|id| answer(id, 1, &call(id))).concat();
    let text = calls
        + &result("t1", json!({ "status": "completed", "agentId": "a1" }))
        + &result("t2", json!({ "status": "async_launched", "agentId": "a2" }))
        + &result("t3", json!("Error: refused"))
        + &result("another tool's", json!({ "agentId": "a4" }));
    let (_folder, path) = transcript(text.as_bytes());
    let (calls, _) = read_new(&mut open(&path), LinePosition::default()).unwrap();
    let told = |agent: Option<&str>, goes_on| {
        let at = Some("2026-11-15T19:11:56.478Z".parse().unwrap());
        Some(SubagentCallResult { agent_id: agent.map(str::to_owned), goes_on, at })
    };
    let answers: Vec<_> = calls.into_iter().map(|call| call.answer).collect();
    assert_eq!(answers, [told(Some("a1"), false), told(Some("a2"), true), told(None, false), None]);
}

/// A line of a hundred megabytes, written bit by bit, holds no hook up, and what follows it is read.
#[test]
fn a_line_without_end_is_passed_over() {
    let (_folder, path) = transcript(answer("m1", 1, &call("t1")).as_bytes());
    let start = fs::metadata(&path).unwrap().len();
    OpenOptions::new().write(true).open(&path).unwrap().set_len(start + (100 << 20)).unwrap();
    let (mut position, mut found, mut turns) = (LinePosition::default(), Vec::new(), 0);
    while position.offset < start + (100 << 20) {
        let began = Instant::now();
        let (calls, read) = read_new(&mut open(&path), position).unwrap();
        assert!(began.elapsed() < crate::DEADLINE, "{:?}", began.elapsed());
        found.extend(calls);
        position = read;
        turns += 1;
        assert!(turns < 1_000, "no way is made at {position:?}");
    }
    append(&path, format!("\n{}", answer("m2", 2, &call("t2"))).as_bytes());
    found.extend(read_new(&mut open(&path), position).unwrap().0);
    assert_eq!(ids(&found), [("t1", 1), ("t2", 3)]);
    assert_eq!(tokens(&mut open(&path)).unwrap(), Some(2));
}

#[test]
fn lines_that_are_too_long_are_left_out_and_never_held() {
    let long = answer("m2", 2, &json!({ "type": "text", "text": "x".repeat(5_000) }));
    let text = answer("m1", 1, &call("t1")) + &long + &answer("m3", 4, &call("t3"));
    let (_folder, path) = transcript(text.as_bytes());
    let file = open(&path);
    let lines = |longest| {
        let sizes = LineReadSizes { block: 16, longest, long: u64::MAX };
        TranscriptLineReader::new(&file, LinePosition::default(), soon(), sizes).unwrap()
    };
    assert_eq!(
        sum_usage(lines(2_048), |_| false).unwrap().by_model["claude-opus-5-5"].input_tokens,
        5
    );
    assert_eq!(
        sum_usage(lines(8_192), |_| false).unwrap().by_model["claude-opus-5-5"].input_tokens,
        7
    );
    let mut lines = lines(2_048);
    while let Some(block) = lines.next().unwrap() {
        block.lines().for_each(drop);
    }
    assert_eq!((lines.position().offset, lines.position().lines), (text.len() as u64, 3));
    assert!(lines.buffer.len() <= 2_048, "{}", lines.buffer.len());
}

/// Lines that fill many blocks, and short ones between them.
#[test]
fn long_lines_are_whole_also_where_they_are_read_ahead() {
    let said = |n: usize| json!({ "type": "text", "text": "言".repeat(n * 30_000) });
    let lines = |n: usize| answer(&format!("m{n}"), 1, &said(n)) + &answer("s", 1, &call("t1"));
    let text: String = (0..6).map(lines).collect();
    let (_folder, path) = transcript(text.as_bytes());
    let file = open(&path);
    let sizes = LineReadSizes { block: 10_000, longest: 1 << 20, long: 0 };
    let lines =
        || TranscriptLineReader::new(&file, LinePosition::default(), soon(), sizes).unwrap();
    assert_eq!(sum_usage(lines(), |_| false).unwrap().by_model["claude-opus-5-5"].input_tokens, 7);
    let (found, position) = collect_calls(lines()).unwrap();
    assert_eq!((ids(&found), position.offset), (vec![("t1", 2)], text.len() as u64));
    assert_eq!(position.lines, 12);
}

/// Half a sum is none, but calls that were found are kept.
#[test]
fn when_the_time_is_over_a_reader_stops_where_it_is() {
    let (_folder, path) = transcript(answer("m1", 1, &call("t1")).repeat(2).as_bytes());
    let file = open(&path);
    let length = file.metadata().unwrap().len();
    let late = |from: u64| {
        let sizes = LineReadSizes { block: 64, longest: 1 << 20, long: u64::MAX };
        let position = LinePosition { offset: from, ..LinePosition::default() };
        TranscriptLineReader::new(&file, position, Instant::now(), sizes).unwrap()
    };
    let (found, position) = collect_calls(late(length / 2)).unwrap();
    assert_eq!((found, position.offset), (Vec::new(), length / 2));
    assert_eq!(sum_usage(late(0), |_| false).unwrap_err().kind(), io::ErrorKind::TimedOut);
    let (found, _) = read_new(&mut open(&path), position).unwrap();
    assert_eq!(ids(&found), [("t1", 1)]);
}

#[test]
fn the_first_prompt_is_a_text_or_blocks_with_texts() {
    let prompt = |content: Value| {
        let user = json!({ "type": "user", "message": { "role": "user", "content": content } });
        let text = format!("{{\"type\":\"mode\"}}\nbroken \"user\"\n{user}\n{user}\n");
        first_prompt(&mut open(&transcript(text.as_bytes()).1)).unwrap()
    };
    assert_eq!(prompt(json!("[ROLE:tester] go")).as_deref(), Some("[ROLE:tester] go"));
    let blocks = json!([{ "type": "text", "text": "one" }, { "type": "image" },
                        { "type": "text", "text": "two" }]);
    assert_eq!(prompt(blocks).as_deref(), Some("one\ntwo"));
    assert_eq!(prompt(json!([{ "type": "tool_result", "content": "three" }])), None);
    let captured = captures().join("parallel/agent-aee0100dbacd2e4fa.jsonl");
    assert!(first_prompt(&mut open(&captured)).unwrap().unwrap().contains("[ROLE:"));
}

#[test]
fn the_version_is_that_of_the_first_line_that_tells() {
    // A character of three bytes lies wherever a block might end.
    let long = json!({ "type": "attachment", "text": "語".repeat(150_000), "version": 3 });
    let text = format!("{long}\n{}\n", json!({ "data": { "version": "9" }, "version": "2.1.197" }));
    let (_folder, path) = transcript(text.as_bytes());
    assert_eq!(version_by(&open(&path), soon()).unwrap().as_deref(), Some("2.1.197"));
    let far = format!("{}\n", "x".repeat(1 << 20)) + &text;
    fs::write(&path, far).unwrap();
    assert_eq!(version_by(&open(&path), soon()).unwrap(), None);
}
