//! Finds the evidence on disk that a decision requests.

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::Value;
use shikiri_model::hook::{
    EvidenceRequest, HookEvidence, HookInput, PromptRole, SpawnCall, SubagentMeta,
    TranscriptOffset, parse_role_tag,
};

use crate::allowed_files;
use crate::hook_project::HookProject;
use crate::transcript::{self, LinePosition};

/// From this version on, Claude Code names the subagent in every event.
const NAMES_AGENTS: [u64; 3] = [2, 1, 69];

/// How long to wait for the end of a transcript, and how often to check for it.
const WRITTEN_WITHIN: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_millis(3);
/// This many characters identify a message.
const WORDS: usize = 100;
/// Bytes for the rest of the lines around those characters.
const LAST_LINES: u64 = 64 * 1024;

/// A meta file has a few hundred bytes.
const MOST_META: u64 = 64 * 1024;

/// Finds the evidence for the events of one payload.
pub struct EvidenceFinder<'a> {
    project: &'a HookProject,
    payload: &'a HookInput,
    lives: &'a dyn Fn(&str) -> bool,
    /// The end of all waiting.
    until: Instant,
    /// The transcripts that were read for calls, and their positions.
    read: Vec<(String, LinePosition)>,
}

impl<'a> EvidenceFinder<'a> {
    pub fn new(
        project: &'a HookProject,
        payload: &'a HookInput,
        lives: &'a dyn Fn(&str) -> bool,
        until: Instant,
    ) -> Self {
        Self { project, payload, lives, until, read: Vec::new() }
    }

    /// Finds the requested evidence. Evidence that is missing or not accessible is recorded as
    /// unavailable. `known` returns how far a transcript was read before.
    pub fn find(
        &mut self,
        want: &EvidenceRequest,
        evidence: &mut HookEvidence,
        known: &dyn Fn(&str) -> Option<TranscriptOffset>,
    ) {
        match want {
            EvidenceRequest::Meta { agent_id } => evidence.meta = Some(self.meta(agent_id)),
            EvidenceRequest::PromptRole { agent_id } => {
                let prompt = self
                    .transcript(agent_id.as_deref())
                    .and_then(|path| transcript::first_prompt(&mut self.open(&path)?).ok()?);
                let role = prompt.as_deref().map(parse_role_tag);
                evidence.prompt_role = Some(match role {
                    None => PromptRole::Unread,
                    Some(None) => PromptRole::NoTag,
                    Some(Some(role)) => PromptRole::Named(role.to_owned()),
                });
            }
            EvidenceRequest::NamesAgents => evidence.names_agents = Some(self.names_agents()),
            EvidenceRequest::Tokens { agent_id } => {
                let path = self.transcript(agent_id.as_deref());
                let mut file = path.and_then(|path| self.open(&path));
                evidence.tokens = Some(file.as_mut().and_then(|f| transcript::tokens(f).ok()?));
            }
            EvidenceRequest::Spawns => {
                let path = self.transcript(None);
                let calls = path.and_then(|path| self.read_new(&path, known));
                let calls = calls.unwrap_or_default();
                let spawns = calls.iter().map(|call| self.spawn(call)).collect();
                evidence.spawns = Some(spawns);
            }
            EvidenceRequest::Usage { agent_id } => {
                evidence.usage.push((agent_id.clone(), self.usage(agent_id)));
            }
            EvidenceRequest::Claimant { by } => {
                evidence.claimants.push((by.clone(), (self.lives)(by)))
            }
        }
    }

    /// The positions of the transcripts that were read, to be stored with the decision.
    pub fn read(&self) -> impl Iterator<Item = (&str, TranscriptOffset)> {
        self.read.iter().map(|(path, position)| {
            let LinePosition { inode, offset, lines } = *position;
            (path.as_str(), TranscriptOffset { inode, offset, lines })
        })
    }

    fn transcript(&self, agent_id: Option<&str>) -> Option<String> {
        match agent_id {
            Some(agent_id) => self
                .payload
                .agent_transcript_path
                .clone()
                .or_else(|| self.payload.subagent_file(agent_id, ".jsonl")),
            None => self.payload.transcript_path.clone(),
        }
    }

    fn open(&self, path: &str) -> Option<File> {
        allowed_files::open(self.project, Path::new(path)).ok()
    }

    /// Reads the spawn calls that were appended to a transcript since the last read.
    fn read_new(
        &mut self,
        path: &str,
        known: &dyn Fn(&str) -> Option<TranscriptOffset>,
    ) -> Option<Vec<transcript::SubagentCall>> {
        let mut file = self.open(path)?;
        let inode = file.metadata().ok()?.ino();
        // A file that was replaced or got shorter is another file.
        let length = file.metadata().ok()?.len();
        let known = known(path).filter(|known| known.inode == inode && known.offset <= length);
        let from = known.map_or(LinePosition { inode, ..LinePosition::default() }, |known| {
            LinePosition { inode, offset: known.offset, lines: known.lines }
        });
        let (calls, position) = transcript::read_new(&mut file, from).ok()?;
        self.read.push((path.to_owned(), position));
        Some(calls)
    }

    fn spawn(&self, call: &transcript::SubagentCall) -> SpawnCall {
        let mut told = self.payload.clone();
        told.agent_id = None;
        told.tool_input = call.input.as_object().cloned().unwrap_or_default();
        let at = call.at.unwrap_or_default();
        let mut spawn = SpawnCall::from_call(&told, &call.tool_use_id, at);
        spawn.transcript_index = i64::try_from(call.line).ok();
        if let Some(answer) = &call.answer {
            spawn.matched_agent_id.clone_from(&answer.agent_id);
            spawn.ended_at = (!answer.goes_on).then(|| answer.at.unwrap_or_default());
        }
        spawn
    }

    fn meta(&self, agent_id: &str) -> Option<SubagentMeta> {
        let path = self.payload.subagent_file(agent_id, ".meta.json")?;
        let mut text = Vec::new();
        self.open(&path)?.take(MOST_META).read_to_end(&mut text).ok()?;
        let meta: Value = serde_json::from_slice(&text).ok()?;
        let field = |name: &str| meta[name].as_str().map(str::to_owned);
        Some(SubagentMeta {
            tool_use_id: field("toolUseId"),
            spawned_type: field("spawnedAgentType"),
            parent_agent_id: field("parentAgentId"),
        })
    }

    fn names_agents(&self) -> Option<bool> {
        let mut file = self.open(&self.transcript(None)?)?;
        let version = transcript::version(&mut file).ok()??;
        let mut numbers = version.split('.').map(|part| part.parse::<u64>().ok());
        let found = [numbers.next()??, numbers.next()??, numbers.next()??];
        Some(found >= NAMES_AGENTS)
    }

    fn usage(&self, agent_id: &str) -> Option<String> {
        let path = self.transcript(Some(agent_id))?;
        // For other subagents that ended, the event does not have the last message.
        if self.payload.agent_id.as_deref() == Some(agent_id) {
            self.wait_for_last_message(&path);
        }
        let sums = transcript::usage(&mut self.open(&path)?).ok()?;
        (!sums.is_empty()).then(|| serde_json::to_string(&sums).ok()).flatten()
    }

    /// Claude Code writes an agent's last message to the transcript a few milliseconds after the
    /// event that the agent has stopped. Without it the usage would be too small.
    fn wait_for_last_message(&self, path: &str) {
        let Some(said) = &self.payload.last_message else { return };
        let words: String = said.chars().take(WORDS).collect();
        let Ok(words) = serde_json::to_string(&words) else { return };
        let words = words.trim_matches('"').as_bytes();
        let until = self.until.min(Instant::now() + WRITTEN_WITHIN);
        while !self.ends_with(path, words, said.len()).unwrap_or(true) && Instant::now() < until {
            std::thread::sleep(PAUSE);
        }
    }

    /// Whether this text is in the last, complete lines of a file.
    fn ends_with(&self, path: &str, words: &[u8], length: usize) -> Option<bool> {
        let mut file = self.open(path)?;
        let tail = LAST_LINES + 2 * length as u64;
        let start = file.metadata().ok()?.len().saturating_sub(tail);
        file.seek(SeekFrom::Start(start)).ok()?;
        let mut text = Vec::new();
        file.take(tail).read_to_end(&mut text).ok()?;
        let found = text.windows(words.len()).any(|part| part == words);
        Some(found && text.ends_with(b"\n"))
    }
}

/// Whether a hook process is alive. If that is not visible, it counts as alive: its claim ends soon
/// anyway, and its program can have any name.
pub fn is_process_alive(claimant: &str) -> bool {
    let Some((pid, _)) = claimant.split_once('.') else { return false };
    match std::fs::read_to_string(format!("/proc/{pid}/stat")) {
        // `4711 (shikiri-hook) S …`; a killed process stays as Z until its parent waits for it.
        Ok(stat) => {
            let (_, state) = stat.rsplit_once(')').unwrap_or_default();
            !state.trim_start().starts_with(['Z', 'X'])
        }
        Err(_) => !Path::new("/proc/self/stat").exists(),
    }
}

#[cfg(test)]
#[path = "evidence_finder_tests.rs"]
mod tests;
