//! Reads the transcripts of subagents, the only exact source of their usage. Each subagent, also a
//! nested one, has its own file beside the session's.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::Value;
use shikiri_executions::execution::EngineError;
use shikiri_files::{EntryKind, UntrustedDir};
use shikiri_model::execution::TokenUsage;

use super::usage_ledger;

/// The CLI's folder of projects and their sessions, below the home.
const PROJECTS: &str = "claude/projects";
/// Projects and entries of one that are listed: an agent may have made millions.
const MAX_PROJECTS: usize = 256;
const MAX_FILES: usize = 5_000;
/// Bytes of all transcripts per read; the next read continues.
const MAX_READ: u64 = 64 * 1024 * 1024;
/// Bytes of one file at a time. A longer line is skipped.
const MAX_CHUNK: u64 = 16 * 1024 * 1024;
/// Rows per read.
const MAX_ROWS: usize = 20_000;
const MAX_META: u64 = 64 * 1024;

/// The usage of a subagent's request. Messages of the CLI itself have none.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct TranscriptRow {
    pub(super) agent_id: String,
    /// The call that spawned the subagent, if the CLI has stored it.
    pub(super) tool_use_id: Option<String>,
    pub(super) message_id: String,
    pub(super) model: String,
    pub(super) usage: TokenUsage,
    /// Whether the subagent ended with this message.
    pub(super) is_last: bool,
    /// Whether the API refused. Older versions report such a subagent as completed.
    pub(super) has_failed: bool,
}

/// Reads the rows that were added since the last read.
#[derive(Clone)]
pub(super) struct SubagentTranscripts(Arc<Mutex<TranscriptReader>>);

struct TranscriptReader {
    home: UntrustedDir,
    /// The offset up to which each file was read.
    read: HashMap<PathBuf, u64>,
    /// Messages of earlier runs of the session, which were counted then.
    old: HashSet<String>,
}

/// What one read may still consume.
struct ReadBudget {
    bytes: u64,
    rows: usize,
}

impl SubagentTranscripts {
    /// Opens the transcripts below this home. Skips the existing rows of a resumed session.
    pub(super) async fn open(home: &Path, resumed: Option<&str>) -> Result<Self, EngineError> {
        let (home, resumed) = (home.to_owned(), resumed.map(str::to_owned));
        let opening = tokio::task::spawn_blocking(move || {
            let home = UntrustedDir::open(&home)?;
            let mut reader = TranscriptReader { home, read: HashMap::new(), old: HashSet::new() };
            if let Some(session) = resumed {
                reader.skip_old(&session);
            }
            Ok::<_, shikiri_files::FilesError>(reader)
        });
        let opened = opening.await.map_err(|error| EngineError::new(error.to_string()))?;
        let unopened = |error| EngineError::new(format!("the engine's home is closed: {error}"));
        Ok(Self(Arc::new(Mutex::new(opened.map_err(unopened)?))))
    }

    pub(super) async fn read(&self, session: &str) -> Vec<TranscriptRow> {
        let (reader, session) = (Arc::clone(&self.0), session.to_owned());
        let reading = tokio::task::spawn_blocking(move || {
            reader.lock().unwrap_or_else(PoisonError::into_inner).read(&session)
        });
        reading.await.unwrap_or_default()
    }
}

impl TranscriptReader {
    fn read(&mut self, session: &str) -> Vec<TranscriptRow> {
        let mut budget = ReadBudget { bytes: MAX_READ, rows: MAX_ROWS };
        let mut rows = Vec::new();
        for path in self.transcripts(session) {
            // A file that cannot be read now is tried again at the next read.
            let _ = self.read_file(&path, &mut budget, &mut rows);
        }
        rows
    }

    /// Skips the rows from before this run, also those beyond the budget.
    fn skip_old(&mut self, session: &str) {
        self.old = self.read(session).into_iter().map(|row| row.message_id).collect();
        for path in self.transcripts(session) {
            if let Ok(stat) = self.home.stat(&path) {
                self.read.insert(path, stat.size);
            }
        }
    }

    /// The files of a session's subagents, in every project.
    fn transcripts(&self, session: &str) -> Vec<PathBuf> {
        let mut found = Vec::new();
        for project in projects(&self.home) {
            let folder = project.join(session).join("subagents");
            let Ok(entries) = self.home.open_dir(&folder).and_then(|dir| dir.entries(MAX_FILES))
            else {
                continue;
            };
            let files = entries.into_iter().filter(|entry| entry.stat.kind == EntryKind::File);
            let files = files.filter(|entry| agent_of(&entry.name).is_some());
            found.extend(files.map(|entry| folder.join(entry.name)));
        }
        // Limits the offsets to remember, because an agent could make new names each time.
        found.retain(|path| self.read.len() < MAX_FILES || self.read.contains_key(path));
        found.truncate(MAX_FILES);
        found
    }

    fn read_file(
        &mut self,
        path: &Path,
        budget: &mut ReadBudget,
        rows: &mut Vec<TranscriptRow>,
    ) -> io::Result<()> {
        let Some(agent_id) = path.file_name().and_then(agent_of) else { return Ok(()) };
        let offset = self.read.entry(path.to_owned()).or_default();
        let (mut file, stat) = self.home.open_file(path).map_err(io::Error::other)?;
        let mut tool_use_id = None;
        while stat.size > *offset && budget.bytes > 0 && budget.rows > 0 {
            file.seek(SeekFrom::Start(*offset))?;
            let (mut chunk, most) = (Vec::new(), MAX_CHUNK.min(budget.bytes));
            file.by_ref().take(most).read_to_end(&mut chunk)?;
            budget.bytes -= chunk.len() as u64;
            let Some(end) = chunk.iter().rposition(|byte| *byte == b'\n') else {
                // The text after the last line break is incomplete, or too long for a line.
                if chunk.len() as u64 == MAX_CHUNK {
                    *offset += MAX_CHUNK;
                    continue;
                }
                break;
            };
            let tool_use_id =
                tool_use_id.get_or_insert_with(|| tool_use_of(&self.home, path)).as_deref();
            for line in chunk[..end].split(|byte| *byte == b'\n') {
                if budget.rows == 0 {
                    break;
                }
                *offset += line.len() as u64 + 1;
                let row = row(line, agent_id, tool_use_id);
                let row = row.filter(|row| !self.old.contains(&row.message_id));
                budget.rows -= usize::from(row.is_some());
                rows.extend(row);
            }
        }
        Ok(())
    }
}

/// The subagent's id in the name of its transcript.
fn agent_of(name: &OsStr) -> Option<&str> {
    name.to_str()?.strip_prefix("agent-")?.strip_suffix(".jsonl")
}

/// The call that spawned the subagent of this transcript.
fn tool_use_of(home: &UntrustedDir, transcript: &Path) -> Option<String> {
    let meta = home.read(transcript.with_extension("meta.json"), MAX_META).ok()?;
    let meta: Value = serde_json::from_slice(&meta).ok()?;
    meta["toolUseId"].as_str().map(str::to_owned)
}

/// The files of a session's main thread in all projects, relative to the home.
pub(super) fn session_files(home: &UntrustedDir, session: &str) -> Vec<PathBuf> {
    let files = projects(home).into_iter().map(|project| project.join(format!("{session}.jsonl")));
    let is_file = |path: &PathBuf| home.stat(path).is_ok_and(|stat| stat.kind == EntryKind::File);
    files.filter(is_file).collect()
}

/// The folders of the projects, relative to the home.
fn projects(home: &UntrustedDir) -> Vec<PathBuf> {
    let entries = home.open_dir(PROJECTS).and_then(|dir| dir.entries(MAX_PROJECTS));
    let entries = entries.unwrap_or_default().into_iter();
    let folders = entries.filter(|entry| entry.stat.kind == EntryKind::Folder);
    folders.map(|entry| Path::new(PROJECTS).join(entry.name)).collect()
}

/// The row of a line that is an answer of a model.
fn row(line: &[u8], agent_id: &str, tool_use_id: Option<&str>) -> Option<TranscriptRow> {
    let line: Value = serde_json::from_slice(line).ok()?;
    if line["type"] != "assistant" {
        return None;
    }
    let message = &line["message"];
    Some(TranscriptRow {
        agent_id: agent_id.to_owned(),
        tool_use_id: tool_use_id.map(str::to_owned),
        message_id: message["id"].as_str()?.to_owned(),
        model: message["model"].as_str()?.to_owned(),
        usage: usage_ledger::update(TokenUsage::default(), &message["usage"]),
        is_last: message["stop_reason"].as_str().is_some_and(|reason| reason != "tool_use"),
        has_failed: line["isApiErrorMessage"] == true,
    })
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Write as _;

    use serde_json::json;

    use super::*;

    fn line(id: &str, output: u64) -> String {
        let usage = json!({ "input_tokens": 2, "output_tokens": output });
        let message =
            json!({ "id": id, "model": "haiku", "usage": usage, "stop_reason": "tool_use" });
        json!({ "type": "assistant", "message": message }).to_string()
    }

    fn append(file: &Path, text: &str) {
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        let mut file = File::options().append(true).create(true).open(file).unwrap();
        file.write_all(text.as_bytes()).unwrap();
    }

    fn read_of(rows: &[TranscriptRow]) -> Vec<(&str, u64)> {
        rows.iter().map(|row| (row.message_id.as_str(), row.usage.output_tokens)).collect()
    }

    #[tokio::test]
    async fn each_line_is_read_once_and_only_when_it_is_whole() {
        let home = tempfile::tempdir().unwrap();
        let folder = home.path().join("claude/projects/-work/s1/subagents");
        let file = folder.join("agent-a1.jsonl");
        append(&file, &format!("{}\n", line("old", 1)));
        append(&folder.join("agent-a1.meta.json"), r#"{"toolUseId":"toolu_1"}"#);
        let transcripts = SubagentTranscripts::open(home.path(), Some("s1")).await.unwrap();
        assert!(transcripts.read("s1").await.is_empty(), "counted before");

        let next = line("m2", 7);
        let (half, rest) = next.split_at(20);
        append(&file, &format!("{}\nno json\n{{}}\n{}\n{half}", line("m1", 5), line("old", 1)));
        let rows = transcripts.read("s1").await;
        assert_eq!(read_of(&rows), [("m1", 5)]);
        assert_eq!((rows[0].agent_id.as_str(), rows[0].model.as_str()), ("a1", "haiku"));
        assert_eq!((rows[0].tool_use_id.as_deref(), rows[0].is_last), (Some("toolu_1"), false));
        append(&file, &format!("{rest}\n"));
        assert_eq!(read_of(&transcripts.read("s1").await), [("m2", 7)]);
        assert!(transcripts.read("s1").await.is_empty());
        assert!(transcripts.read("another").await.is_empty());
    }

    #[tokio::test]
    async fn a_transcript_without_lines_or_with_too_many_is_read_in_parts() {
        let home = tempfile::tempdir().unwrap();
        let folder = home.path().join("claude/projects/-work/s1/subagents");
        let sparse = folder.join("agent-a1.jsonl");
        append(&sparse, "");
        File::options().write(true).open(&sparse).unwrap().set_len(20 << 20).unwrap();
        append(&sparse, &format!("\n{}\n", line("m0", 1)));
        let many: String = (0..MAX_ROWS + 5).map(|n| line(&format!("m{n}"), 2) + "\n").collect();
        append(&folder.join("agent-a2.jsonl"), &many);
        let transcripts = SubagentTranscripts::open(home.path(), None).await.unwrap();
        let first = transcripts.read("s1").await;
        let rest = transcripts.read("s1").await;
        assert_eq!((first.len(), rest.len()), (MAX_ROWS, 6));
        let ids: HashSet<_> =
            first.iter().chain(&rest).map(|row| (&row.agent_id, &row.message_id)).collect();
        assert_eq!(ids.len(), MAX_ROWS + 6, "each once");
    }
}
