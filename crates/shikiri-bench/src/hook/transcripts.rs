//! Reading transcripts: gigabytes a second of a long one that lies in memory, and what a little
//! more costs at the end of a long one.
//!
//! The peer is Python's `json.loads` on each line of the same file: what a hook in Python does
//! before it has looked at anything.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use shikiri_hook::transcript::{self, LinePosition, UsageFilter};

use crate::figure::{Figure, Goal, median};
use crate::world::World;

const LONG: u64 = 100_000_000;
const MORE: u64 = 1_000_000;

/// One answer of so many spawns a subagent.
const SPAWNING: u64 = 50;

/// How often a read that takes part of a millisecond is repeated in a round.
const REPEATS: usize = 40;

const PYTHON: &str = "\
import json, sys, time
began = time.perf_counter()
with open(sys.argv[1], 'rb') as lines:
    for line in lines:
        json.loads(line)
print(time.perf_counter() - began)
";

pub(super) fn measure(world: &World) -> Result<Vec<Figure>> {
    let (long, short) = (world.scratch().join("long.jsonl"), world.scratch().join("short.jsonl"));
    let answers = write(&long, LONG)?;
    write(&short, MORE)?;
    let mut rounds = Vec::new();
    for _ in 0..=world.rounds() {
        let (at_end, alone) = ends(&long, &short)?;
        rounds.push(Round {
            usage: rate(&long, |file| {
                let sums = transcript::usage(file, &UsageFilter::default())?;
                let asked: u64 = sums.by_model.values().map(|usage| usage.input_tokens).sum();
                ensure!(asked == answers, "{asked} answers of {answers} were found");
                Ok(())
            })?,
            calls: rate(&long, |file| {
                let (calls, _) = transcript::read_new(file, LinePosition::default())?;
                ensure!(calls.len() as u64 == answers / SPAWNING, "calls are missing");
                Ok(())
            })?,
            python: python(&long)?,
            at_end,
            alone,
        });
    }
    fs::remove_file(&long)?;
    // The first warms up.
    Ok(figures(&rounds[1..]))
}

struct Round {
    /// Gigabytes a second.
    usage: f64,
    calls: f64,
    python: f64,
    /// Milliseconds.
    at_end: f64,
    alone: f64,
}

fn figures(rounds: &[Round]) -> Vec<Figure> {
    let each = |what: fn(&Round) -> f64| rounds.iter().map(what).collect::<Vec<f64>>();
    let python = each(|round| round.python);
    let mut figures = Vec::new();
    for (what, rates) in
        [("usage", each(|round| round.usage)), ("calls", each(|round| round.calls))]
    {
        let name = format!("{what} in a transcript of 100 MB");
        let rate = Figure::new(name, "GB/s", rates);
        figures.push(rate.clone().goal(Goal::AtLeast(2.0)));
        figures.push(rate.against("json.loads", &python).goal(Goal::RatioAtLeast(12.0)));
    }
    figures.push(
        Figure::new("the last MB of a transcript of 100 MB", "ms", each(|round| round.at_end))
            .against("one of 1 MB", &each(|round| round.alone))
            .goal(Goal::RatioAtMost(1.5)),
    );
    figures
}

fn rate(path: &Path, read: impl Fn(&mut File) -> Result<()>) -> Result<f64> {
    let length = fs::metadata(path)?.len() as f64;
    let began = Instant::now();
    read(&mut File::open(path)?)?;
    Ok(length / began.elapsed().as_nanos() as f64)
}

/// Gigabytes that Python takes a second, without its start.
fn python(path: &Path) -> Result<f64> {
    let output = Command::new("python3").args(["-c", PYTHON]).arg(path).output()?;
    let told = String::from_utf8_lossy(&output.stdout);
    let seconds: f64 = told.trim().parse().context("Python did not tell its time")?;
    Ok(fs::metadata(path)?.len() as f64 / 1e9 / seconds)
}

/// Milliseconds for the last bytes of a long file, and for all of a short one, in turns.
fn ends(long: &Path, short: &Path) -> Result<(f64, f64)> {
    let offset = fs::metadata(long)?.len() - MORE;
    let (mut at_end, mut alone) = (Vec::new(), Vec::new());
    for _ in 0..REPEATS {
        at_end.push(read_from(long, offset)?);
        alone.push(read_from(short, 0)?);
    }
    Ok((median(&at_end), median(&alone)))
}

fn read_from(path: &Path, offset: u64) -> Result<f64> {
    let length = fs::metadata(path)?.len();
    let began = Instant::now();
    let from = LinePosition { offset, ..LinePosition::default() };
    let (_, position) = transcript::read_new(&mut File::open(path)?, from)?;
    let took = began.elapsed().as_secs_f64() * 1e3;
    ensure!(position.offset == length, "it was not read to its end");
    Ok(took)
}

/// Writes a transcript of about so many bytes, in the forms that Claude Code 2.1 writes. Each
/// answer asked for one token, so that a sum tells how many were seen.
fn write(path: &Path, bytes: u64) -> Result<u64> {
    let mut file = std::io::BufWriter::new(File::create(path)?);
    let mut dice = Dice(0x9E37_79B9_7F4A_7C15);
    let (mut written, mut answers) = (0, 0);
    while written < bytes {
        answers += 1;
        for line in turn(answers, &mut dice) {
            written += line.len() as u64 + 1;
            writeln!(file, "{line}")?;
        }
    }
    file.flush()?;
    Ok(answers)
}

/// One answer of one to three blocks, and the result of the tool it calls; sometimes what Claude
/// Code attaches.
fn turn(number: u64, dice: &mut Dice) -> Vec<String> {
    let id = format!("toolu_{number:020}");
    let mut lines = Vec::new();
    if number.is_multiple_of(2) {
        let (thinking, signature) = (dice.text(200, 2_000), dice.letters(300, 1_200));
        let block = json!({ "type": "thinking", "thinking": thinking, "signature": signature });
        lines.push(answer(number, &block));
    }
    if !number.is_multiple_of(3) {
        lines.push(answer(number, &json!({ "type": "text", "text": dice.text(50, 1_500) })));
    }
    let (name, input) = tool(number, dice);
    let block = json!({ "type": "tool_use", "id": id, "name": name, "input": input });
    lines.push(answer(number, &block));
    let result = dice.text(500, 12_000);
    let block = json!({ "type": "tool_result", "tool_use_id": id, "content": result });
    let message = json!({ "role": "user", "content": [block] });
    let result = json!({ "stdout": result, "stderr": "", "interrupted": false });
    lines.push(line("user", &format!(r#""message":{message},"toolUseResult":{result}"#)));
    if number.is_multiple_of(5) {
        let attachment = json!({ "type": "file", "content": dice.text(1_000, 8_000) });
        lines.push(line("attachment", &format!(r#""attachment":{attachment}"#)));
    }
    lines
}

fn tool(number: u64, dice: &mut Dice) -> (&'static str, Value) {
    match number % SPAWNING {
        0 => ("Agent", json!({ "description": "part", "prompt": dice.text(500, 4_000) })),
        1..20 => {
            let (old, new) = (dice.text(50, 2_000), dice.text(50, 3_000));
            let input = json!({ "file_path": "src/lib.rs", "old_string": old, "new_string": new });
            ("Edit", input)
        }
        _ => ("Bash", json!({ "command": dice.text(20, 200), "description": dice.text(20, 60) })),
    }
}

fn answer(number: u64, block: &Value) -> String {
    let usage = json!({
        "input_tokens": 1, "cache_creation_input_tokens": 812, "cache_read_input_tokens": 90_000,
        "output_tokens": 450, "output_tokens_details": { "thinking_tokens": 0 },
        "server_tool_use": { "web_search_requests": 0, "web_fetch_requests": 0 },
        "service_tier": "standard", "inference_geo": "", "iterations": [], "speed": "standard",
        "cache_creation": { "ephemeral_1h_input_tokens": 0, "ephemeral_5m_input_tokens": 812 },
    });
    let message = format!(
        "\"message\":{{\"id\":\"msg_{number:020}\",\"type\":\"message\",\"role\":\"assistant\",\
         \"model\":\"claude-opus-5-5\",\"content\":[{block}],\"stop_reason\":\"tool_use\",\
         \"stop_sequence\":null,\"usage\":{usage},\"stop_details\":null}}"
    );
    line("assistant", &format!(r#"{message},"requestId":"req_{number:020}""#))
}

/// Fields in the order in which Claude Code writes them.
fn line(kind: &str, own: &str) -> String {
    const ID: &str = "60eb4cbc-275b-4b9d-8f7c-0010c68f17c3";
    let place = r#""userType":"external","entrypoint":"cli","cwd":"/project""#;
    let time = "2026-11-15T19:11:55.347Z";
    format!(
        "{{\"parentUuid\":\"{ID}\",\"isSidechain\":false,{own},\"type\":\"{kind}\",\
         \"uuid\":\"{ID}\",\"timestamp\":\"{time}\",{place},\"sessionId\":\"{ID}\",\
         \"version\":\"2.1.325\",\"gitBranch\":\"main\"}}"
    )
}

/// Numbers that look random and are the same each time.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 33).unwrap_or(0) % limit
    }

    /// Code: lines, quotes and other characters that JSON escapes.
    fn text(&mut self, least: usize, most: usize) -> String {
        const PARTS: [&str; 8] = [
            "    let name = value.get(\"name\").and_then(Value::as_str).unwrap_or_default();\n",
            "fn decide(payload: &Payload, known: &Known, now: Timestamp) -> Outcome {\n",
            "// What was claimed and not confirmed comes back after its hold, so nothing is lost.\n",
            "        Err(error) => return Err(format!(\"cannot read {path}: {error}\")),\n",
            "error[E0308]: mismatched types: expected `usize`, found `&str` → see line 42\n",
            "\tprintf(\"%s\\n\", message); /* C:\\temp\\file */\n",
            "The test failed because the second call has the same id as the first one.\n",
            "drwxr-xr-x  2 user user  4096 Nov 15 19:11 src\n",
        ];
        let length = least + self.below(most - least);
        let mut text = String::with_capacity(length + 100);
        while text.len() < length {
            text.push_str(PARTS[self.below(PARTS.len())]);
        }
        text
    }

    fn letters(&mut self, least: usize, most: usize) -> String {
        const LETTERS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        let length = least + self.below(most - least);
        (0..length).map(|_| char::from(LETTERS[self.below(LETTERS.len())])).collect()
    }
}
