//! The transcripts of subagents, from which alone their usage is known exactly: each lies in a file
//! of its own beside the session's, nested ones too.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::Value;
use shikiri_model::execution::Usage;

use super::ledger;

/// What a subagent's request spent. One of the CLI's own messages spent nothing.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Row {
    pub(super) agent_id: String,
    /// The call that spawned it, if the CLI has written that down.
    pub(super) tool_use_id: Option<String>,
    pub(super) message_id: String,
    pub(super) model: String,
    pub(super) usage: Usage,
    /// Whether the subagent had nothing more to do then.
    pub(super) is_last: bool,
    /// Whether the API refused. Older versions call such a subagent completed.
    pub(super) has_failed: bool,
}

/// Reads what has been added since it last looked.
#[derive(Clone)]
pub(super) struct Transcripts(Arc<Mutex<Reader>>);

struct Reader {
    /// Where the CLI keeps the sessions of each project.
    projects: PathBuf,
    /// How far each file was read.
    read: HashMap<PathBuf, u64>,
    /// Messages of earlier runs of the session, which are paid for.
    old: HashSet<String>,
}

impl Transcripts {
    /// Of the sessions below this configuration folder. What a resumed session has so far is not
    /// this run's.
    pub(super) async fn open(config: &Path, resumed: Option<&str>) -> Self {
        let projects = config.join("projects");
        let reader = Reader { projects, read: HashMap::new(), old: HashSet::new() };
        let transcripts = Self(Arc::new(Mutex::new(reader)));
        if let Some(session) = resumed {
            let rows = transcripts.read(session).await;
            let old = rows.into_iter().map(|row| row.message_id).collect();
            transcripts.0.lock().unwrap_or_else(PoisonError::into_inner).old = old;
        }
        transcripts
    }

    pub(super) async fn read(&self, session: &str) -> Vec<Row> {
        let (reader, session) = (Arc::clone(&self.0), session.to_owned());
        let reading = tokio::task::spawn_blocking(move || {
            reader.lock().unwrap_or_else(PoisonError::into_inner).read(&session)
        });
        reading.await.unwrap_or_default()
    }
}

impl Reader {
    fn read(&mut self, session: &str) -> Vec<Row> {
        let mut rows = Vec::new();
        for project in entries(&self.projects) {
            for file in entries(&project.join(session).join("subagents")) {
                let name = file.file_name().and_then(|name| name.to_str()).unwrap_or_default();
                let agent = name.strip_prefix("agent-").and_then(|n| n.strip_suffix(".jsonl"));
                if let Some(agent) = agent.map(str::to_owned) {
                    self.read_file(&file, &agent, &mut rows);
                }
            }
        }
        rows
    }

    fn read_file(&mut self, file: &Path, agent_id: &str, rows: &mut Vec<Row>) {
        let offset = self.read.entry(file.to_owned()).or_default();
        let added = added(file, *offset).unwrap_or_default();
        // What follows the last line's end is still being written.
        let Some(end) = added.iter().rposition(|byte| *byte == b'\n') else { return };
        *offset += end as u64 + 1;
        let meta = std::fs::read(file.with_extension("meta.json")).unwrap_or_default();
        let meta: Value = serde_json::from_slice(&meta).unwrap_or_default();
        let tool_use_id = meta["toolUseId"].as_str().map(str::to_owned);
        for line in added[..end].split(|byte| *byte == b'\n') {
            let row = row(line, agent_id, tool_use_id.as_deref());
            rows.extend(row.filter(|row| !self.old.contains(&row.message_id)));
        }
    }
}

/// The file of a session's main thread, in whichever project it began, relative to the home.
pub(super) fn session_files(home: &Path, session: &str) -> Vec<PathBuf> {
    let projects = entries(&home.join("claude/projects"));
    let files = projects.iter().map(|project| project.join(format!("{session}.jsonl")));
    files
        .filter(|file| file.is_file())
        .filter_map(|file| file.strip_prefix(home).ok().map(Path::to_owned))
        .collect()
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten();
    entries.filter_map(|entry| Some(entry.ok()?.path())).collect()
}

fn added(file: &Path, offset: u64) -> std::io::Result<Vec<u8>> {
    let mut file = File::open(file)?;
    file.seek(SeekFrom::Start(offset))?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The request of a line that is an answer of a model.
fn row(line: &[u8], agent_id: &str, tool_use_id: Option<&str>) -> Option<Row> {
    let line: Value = serde_json::from_slice(line).ok()?;
    if line["type"] != "assistant" {
        return None;
    }
    let message = &line["message"];
    Some(Row {
        agent_id: agent_id.to_owned(),
        tool_use_id: tool_use_id.map(str::to_owned),
        message_id: message["id"].as_str()?.to_owned(),
        model: message["model"].as_str()?.to_owned(),
        usage: ledger::update(Usage::default(), &message["usage"]),
        is_last: message["stop_reason"].as_str().is_some_and(|reason| reason != "tool_use"),
        has_failed: line["isApiErrorMessage"] == true,
    })
}

#[cfg(test)]
mod tests {
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

    fn read_of(rows: &[Row]) -> Vec<(&str, u64)> {
        rows.iter().map(|row| (row.message_id.as_str(), row.usage.output_tokens)).collect()
    }

    #[tokio::test]
    async fn each_line_is_read_once_and_only_when_it_is_whole() {
        let config = tempfile::tempdir().unwrap();
        let folder = config.path().join("projects/-work/s1/subagents");
        let file = folder.join("agent-a1.jsonl");
        append(&file, &format!("{}\n", line("old", 1)));
        append(&folder.join("agent-a1.meta.json"), r#"{"toolUseId":"toolu_1"}"#);
        let transcripts = Transcripts::open(config.path(), Some("s1")).await;
        assert!(transcripts.read("s1").await.is_empty(), "paid for before");

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
}
