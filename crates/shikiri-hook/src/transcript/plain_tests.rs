//! The same as the reader, written plainly: every line is parsed, and then looked at.

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde::Serialize as _;
use serde_json::ser::Formatter;
use serde_json::{Value, json};
use shikiri_model::execution::TokenUsage;

use super::tests::{open, soon, transcript};
use super::*;

pub(super) fn values(text: &[u8]) -> Vec<(u64, Value)> {
    let whole = text.split_inclusive(|byte| *byte == b'\n').filter(|line| line.ends_with(b"\n"));
    let numbered = (1..).zip(whole);
    numbered
        .filter_map(|(number, line)| Some((number, serde_json::from_slice(line).ok()?)))
        .collect()
}

pub(super) fn plain_calls(text: &[u8]) -> Vec<SubagentCall> {
    let mut calls: Vec<SubagentCall> = Vec::new();
    for (line, value) in values(text) {
        for block in value["message"]["content"].as_array().into_iter().flatten() {
            let Some(id) = block["id"].as_str() else { continue };
            if value["type"] == "assistant"
                && block["type"] == "tool_use"
                && (block["name"] == "Agent" || block["name"] == "Task")
                && calls.iter().all(|known| known.tool_use_id != id)
            {
                let (tool_use_id, input) = (id.to_owned(), block["input"].clone());
                let at = plain_time(&value);
                calls.push(SubagentCall { tool_use_id, line, input, at, answer: None });
            }
        }
        for block in value["message"]["content"].as_array().into_iter().flatten() {
            let is_answer = value["type"] == "user" && block["type"] == "tool_result";
            let call = calls.iter_mut().find(|call| block["tool_use_id"] == *call.tool_use_id);
            if let Some(call) = call.filter(|call| is_answer && call.answer.is_none()) {
                let status = &value["toolUseResult"]["status"];
                call.answer = Some(SubagentCallResult {
                    agent_id: value["toolUseResult"]["agentId"].as_str().map(str::to_owned),
                    goes_on: status == "async_launched" || status == "teammate_spawned",
                    at: plain_time(&value),
                });
            }
        }
    }
    calls
}

fn plain_time(line: &Value) -> Option<shikiri_model::time::Timestamp> {
    line["timestamp"].as_str().and_then(|at| at.parse().ok())
}

fn plain_answers(text: &[u8]) -> Vec<(String, String, TokenUsage)> {
    let answer = |value: &Value| {
        let message = &value["message"];
        let usage = message["usage"].as_object()?;
        let count = |name: &str| usage.get(name).and_then(Value::as_u64).unwrap_or(0);
        let written = count("cache_creation_input_tokens");
        let hour = message["usage"]["cache_creation"]["ephemeral_1h_input_tokens"].as_u64();
        let hour = hour.unwrap_or(0).min(written);
        let (id, model) = (message["id"].as_str()?, message["model"].as_str()?);
        let usage = TokenUsage {
            input_tokens: count("input_tokens"),
            output_tokens: count("output_tokens"),
            cache_write_5m_tokens: written - hour,
            cache_write_1h_tokens: hour,
            cache_read_tokens: count("cache_read_input_tokens"),
        };
        let is_answer = value["type"] == "assistant" && model != "<synthetic>";
        is_answer.then(|| (id.to_owned(), model.to_owned(), usage))
    };
    values(text).iter().filter_map(|(_, value)| answer(value)).collect()
}

pub(super) fn plain_usage(text: &[u8]) -> BTreeMap<String, TokenUsage> {
    let answers = plain_answers(text);
    let last: BTreeMap<_, _> = answers.into_iter().map(|(id, m, usage)| (id, (m, usage))).collect();
    let mut sums: BTreeMap<String, TokenUsage> = BTreeMap::new();
    for (model, usage) in last.into_values() {
        *sums.entry(model).or_default() += usage;
    }
    sums
}

pub(super) fn plain_tokens(text: &[u8]) -> Option<u64> {
    let (_, _, usage) = plain_answers(text).pop()?;
    let written = usage.cache_write_5m_tokens + usage.cache_write_1h_tokens;
    Some(usage.input_tokens + usage.output_tokens + usage.cache_read_tokens + written)
}

/// `{"a": 1, "b": 2}`, as other programs write.
struct Spaced;

impl Formatter for Spaced {
    fn begin_array_value<W: io::Write + ?Sized>(
        &mut self,
        w: &mut W,
        first: bool,
    ) -> io::Result<()> {
        w.write_all(if first { b"" } else { b", " })
    }

    fn begin_object_key<W: io::Write + ?Sized>(
        &mut self,
        w: &mut W,
        first: bool,
    ) -> io::Result<()> {
        w.write_all(if first { b"" } else { b", " })
    }

    fn begin_object_value<W: io::Write + ?Sized>(&mut self, w: &mut W) -> io::Result<()> {
        w.write_all(b": ")
    }
}

fn spaced(value: &Value) -> String {
    let mut text = Vec::new();
    value.serialize(&mut serde_json::Serializer::with_formatter(&mut text, Spaced)).unwrap();
    String::from_utf8(text).unwrap()
}

/// Text that holds what the reader looks for.
fn any_text() -> impl Strategy<Value = String> {
    let parts = [
        "\"type\":\"assistant\"",
        "\"assistant\"",
        "assistant",
        "\"usage\":{\"input_tokens\":7}",
        "\"tool_use\"",
        "\"tool_use_id\"",
        "\"name\":\"Agent\"",
        "\"Task\"",
        "\\",
        "\\\"",
        "\"",
        "{",
        "}",
        "[",
        "]",
        "\n",
        "\r\n",
        "\u{0}",
        "日本語",
        "🦀",
        "é",
        "abcdefgh",
        " ",
    ];
    prop::collection::vec(prop::sample::select(parts.to_vec()), 0..12).prop_map(|all| all.concat())
}

fn any_id(stem: &'static str) -> impl Strategy<Value = Value> {
    prop_oneof![
        12 => (0..6).prop_map(move |n| json!(format!("{stem}{n}"))),
        1 => Just(json!("\"odd\" \\ 名")),
        1 => Just(Value::Null),
    ]
}

fn any_count() -> impl Strategy<Value = Value> {
    prop_oneof![
        8 => (0..2_000_000u64).prop_map(|n| json!(n)),
        1 => prop::sample::select(vec![
            json!(null), json!("5"), json!(-5), json!(1.5), json!([3]), json!({ "a": 3 }), json!(true),
        ]),
    ]
}

fn any_usage() -> impl Strategy<Value = Value> {
    let counts = (any_count(), any_count(), any_count(), any_count(), any_count());
    let whole = counts.prop_map(|(input, output, read, written, hour)| {
        json!({ "input_tokens": input, "output_tokens": output, "cache_read_input_tokens": read,
                "cache_creation_input_tokens": written, "service_tier": "standard",
                "cache_creation": { "ephemeral_1h_input_tokens": hour },
                "iterations": [{ "input_tokens": 99 }] })
    });
    let odd = vec![
        json!(null),
        json!({}),
        json!("usage"),
        json!([{ "input_tokens": 1 }]),
        json!({ "input_tokens": 4, "cache_creation": null }),
        json!({ "cache_creation_input_tokens": 9, "cache_creation": "1h" }),
    ];
    prop_oneof![6 => whole, 1 => prop::sample::select(odd)]
}

fn any_block() -> BoxedStrategy<Value> {
    let names = vec!["Agent", "Task", "Bash", "TaskCreate"];
    prop_oneof![
        any_text().prop_map(|text| json!({ "type": "text", "text": text })),
        any_text()
            .prop_map(|text| json!({ "type": "thinking", "thinking": text, "signature": "c2ln" })),
        (any_id("toolu_"), prop::sample::select(names), any_text()).prop_map(|(id, name, text)| {
            let input = json!({ "prompt": text, "type": "assistant", "name": "Agent", "id": "msg_0",
                                "usage": { "input_tokens": 5 }, "message": { "model": "m" } });
            json!({ "type": "tool_use", "id": id, "name": name, "input": input })
        }),
    ]
    .boxed()
}

fn any_answer() -> BoxedStrategy<Value> {
    let models = vec!["claude-opus-5-5", "claude-haiku-5-5", "<synthetic>"];
    let content = prop::collection::vec(any_block(), 0..3);
    let parts = (any_id("msg_"), prop::sample::select(models), content, any_usage(), any::<bool>());
    parts
        .prop_map(|(id, model, content, usage, side)| {
            json!({ "isSidechain": side, "message": { "id": id, "model": model, "type": "message",
                "role": "assistant", "content": content, "usage": usage },
                "type": "assistant", "version": "2.1.325",
                "timestamp": "2026-11-15T19:11:56.478Z" })
        })
        // Strategies hold one another, and there are many: on the stack they would not fit.
        .boxed()
}

/// What tools answered.
fn any_result() -> BoxedStrategy<Value> {
    let statuses = vec![json!("completed"), json!("async_launched"), json!(null), json!(3)];
    let kinds = vec!["user", "assistant", "progress"];
    let ids = prop::collection::vec((any_id("toolu_"), any_text()), 1..3);
    let parts = (ids, any_id("a"), prop::sample::select(statuses), prop::sample::select(kinds));
    parts
        .prop_map(|(ids, agent, status, kind)| {
            let block =
                |(id, text)| json!({ "tool_use_id": id, "type": "tool_result", "content": text });
            let content: Vec<_> = ids.into_iter().map(block).collect();
            json!({ "type": kind, "message": { "role": "user", "content": content },
                    "toolUseResult": { "agentId": agent, "status": status },
                    "timestamp": "2026-11-15T19:11:57.000Z" })
        })
        .boxed()
}

/// Lines of other kinds, some with answers inside.
fn any_other() -> BoxedStrategy<Value> {
    prop_oneof![
        (any_text(), any_answer()).prop_map(|(text, inner)| json!({
            "type": "user", "toolUseResult": inner, "message": { "role": "user", "content": text } })),
        any_answer().prop_map(|inner| json!({ "type": "progress", "data": { "message": inner } })),
        any_answer().prop_map(|inner| json!({ "type": "api-request-blob", "message": inner["message"] })),
        any_answer().prop_map(|inner| json!({ "message": inner["message"] })),
        any_answer().prop_map(|inner| json!([inner])),
        any_text().prop_map(|text| json!({ "type": "a kind of tomorrow", "assistant": text })),
        any_text().prop_map(Value::String),
        Just(json!({ "type": "assistant" })),
        Just(json!({ "type": "assistant", "message": "…[cut" })),
    ]
    .boxed()
}

/// A line with its end: whole, cut off, without its start, or cut off and written on.
fn any_line() -> BoxedStrategy<String> {
    let value = prop_oneof![3 => any_answer(), 1 => any_other(), 1 => any_result()];
    let text = (value, any::<bool>())
        .prop_map(|(value, wide)| if wide { spaced(&value) } else { value.to_string() })
        .boxed();
    let broken = (text.clone(), text.clone(), any::<prop::sample::Index>(), 0..3);
    let broken = broken.prop_map(|(one, other, at, how)| {
        let at = one.floor_char_boundary(at.index(one.len() - 1) + 1);
        match how {
            0 => one[..at].to_owned(),
            1 => one[at..].to_owned(),
            _ => format!("{}{other}", &one[..at]),
        }
    });
    let line =
        prop_oneof![10 => text, 2 => broken, 1 => Just(String::new()), 1 => Just(" ".into())];
    (line, any::<bool>()).prop_map(|(line, dos)| line + if dos { "\r\n" } else { "\n" }).boxed()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_reader_finds_what_a_plain_one_finds(
        lines in prop::collection::vec(any_line(), 0..12),
        block in 1..200usize,
        long in prop::sample::select(vec![0, u64::MAX]),
    ) {
        let (_folder, path) = transcript(lines.concat().as_bytes());
        let (text, file) = (lines.concat(), open(&path));
        let sizes = LineReadSizes { block, longest: 1 << 20, long };
        let lines = || TranscriptLineReader::new(&file, LinePosition::default(), soon(), sizes).unwrap();
        prop_assert_eq!(collect_calls(lines()).unwrap().0, plain_calls(text.as_bytes()));
        prop_assert_eq!(sum_usage(lines(), |_| false).unwrap().by_model, plain_usage(text.as_bytes()));
        let tails = [block as u64, 20 * block as u64, u64::MAX];
        prop_assert_eq!(newest_context_tokens(&file, &tails, sizes).unwrap(), plain_tokens(text.as_bytes()));
    }

    /// However a file grows, each call is found once, at its line. Its answer is told if both were
    /// read together.
    #[test]
    fn a_file_that_grows_is_read_on(
        lines in prop::collection::vec(any_line(), 1..8),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..5),
    ) {
        let text = lines.concat();
        let mut cuts: Vec<_> = cuts.iter().map(|cut| cut.index(text.len())).collect();
        cuts.push(text.len());
        cuts.sort_unstable();
        let (_folder, path) = transcript(b"");
        let (mut position, mut found) = (LinePosition::default(), Vec::<SubagentCall>::new());
        for cut in cuts {
            std::fs::write(&path, &text.as_bytes()[..cut]).unwrap();
            let (new, read) = read_new(&mut open(&path), position).unwrap();
            let is_new = |call: &SubagentCall| found.iter().all(|known| known.tool_use_id != call.tool_use_id);
            let new: Vec<_> = new.into_iter().filter(is_new).collect();
            found.extend(new);
            position = read;
        }
        let mut plain = plain_calls(text.as_bytes());
        plain.iter_mut().chain(&mut found).for_each(|call| call.answer = None);
        prop_assert_eq!(found, plain);
        prop_assert_eq!(position.offset, text.len() as u64);
        prop_assert_eq!(position.lines, text.matches('\n').count() as u64);
    }
}
