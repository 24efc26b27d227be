//! Finds the evidence on disk that a decision requests.

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::Value;
use shikiri_model::hook::{
    EvidenceRequest, HookEvidence, HookInput, PromptRole, SpawnCall, SubagentMeta,
    TranscriptOffset, TranscriptUsage, UsageRequest, parse_role_tag, subagent_file_name,
};

use crate::allowed_files;
use crate::hook_project::HookProject;
use crate::transcript::{self, LinePosition, UsageFilter};

/// From this version on, Claude Code names the subagent in every event.
const NAMES_AGENTS: [u64; 3] = [2, 1, 69];

/// How long to wait for the end of a transcript, and how often to check for it.
const WRITTEN_WITHIN: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_millis(3);
/// How long to wait for the prompt of a workflow's agent.
const PROMPT_WITHIN: Duration = Duration::from_millis(300);
/// How long to wait for an answer that says the same as one before.
const SAME_WORDS_WITHIN: Duration = Duration::from_millis(200);
/// This many characters identify a message.
const WORDS: usize = 100;
/// Bytes for the rest of the lines around those characters.
const LAST_LINES: u64 = 64 * 1024;

/// A meta file has a few hundred bytes.
const MOST_META: u64 = 64 * 1024;

/// What a transcript lacks.
#[derive(Clone, Copy, Default)]
enum Awaited {
    #[default]
    Nothing,
    /// An answer like the last one, from after the agent's latest start.
    LaterAnswer,
    LastAnswer,
}

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
                let prompt = self.first_prompt(agent_id.as_deref());
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
            EvidenceRequest::Heard { text } => {
                let file = self.transcript(None).and_then(|path| self.open(&path));
                evidence.is_heard = Some(
                    file.is_some_and(|mut f| transcript::has_text(&mut f, text).unwrap_or(false)),
                );
            }
            EvidenceRequest::Usage(requests) => {
                let read = requests.iter().map(|it| (it.agent_id.clone(), self.usage(it)));
                evidence.usage.extend(read);
            }
            // The caller has waited.
            EvidenceRequest::Start { .. } => evidence.note_start_wait(1),
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
                .filter(|_| self.payload.agent_id.as_deref() == Some(agent_id))
                .or_else(|| self.subagent_file(agent_id, ".jsonl")),
            None => self.payload.transcript_path.clone(),
        }
    }

    /// A subagent's file, which for an agent of a workflow lies in the folder of the workflow.
    fn subagent_file(&self, agent_id: &str, ending: &str) -> Option<String> {
        let usual = self.payload.subagent_file(agent_id, ending)?;
        if Path::new(&usual).exists() {
            return Some(usual);
        }
        let name = subagent_file_name(agent_id, ending)?;
        let workflows = std::fs::read_dir(self.payload.workflows_folder()?);
        let mut folders = workflows.into_iter().flatten().flatten();
        let found = folders.find_map(|folder| {
            let path = folder.path().join(&name);
            path.exists().then(|| path.to_str().map(str::to_owned)).flatten()
        });
        Some(found.unwrap_or(usual))
    }

    /// Of a subagent in a session with workflows, only its prompt tells the role, and its file may be
    /// written a moment after its first tool call.
    fn first_prompt(&self, agent_id: Option<&str>) -> Option<String> {
        let has_workflows =
            || self.payload.workflows_folder().is_some_and(|folder| Path::new(&folder).is_dir());
        let until = Instant::now() + PROMPT_WITHIN.min(self.time_left());
        loop {
            let path = self.transcript(agent_id)?;
            let prompt =
                self.open(&path).and_then(|mut f| transcript::first_prompt(&mut f).ok()?);
            if prompt.is_some() || agent_id.is_none() || Instant::now() >= until || !has_workflows()
            {
                return prompt;
            }
            std::thread::sleep(PAUSE);
        }
    }

    fn time_left(&self) -> Duration {
        self.until.saturating_duration_since(Instant::now())
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
        let path = self.subagent_file(agent_id, ".meta.json")?;
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

    /// Claude Code writes an agent's last message a few milliseconds after the event that the agent
    /// has stopped, which is waited for. Without it the usage would be too small.
    fn usage(&self, request: &UsageRequest) -> TranscriptUsage {
        let path = request.path.clone().filter(|path| Path::new(path).exists());
        let path = path.or_else(|| self.transcript(request.agent_id.as_deref()));
        let Some(path) = path else { return TranscriptUsage::default() };
        // Other events than that of the agent's own end do not have its last message.
        let is_own = self.payload.agent_id == request.agent_id;
        let said = self.payload.last_message.as_deref().filter(|_| is_own);
        let started = Instant::now();
        loop {
            let (usage, awaited) = self.read_usage(&path, request, said);
            let wait = match awaited {
                // The main agent's turn is not held up: its usage is read again anyway.
                _ if request.agent_id.is_none() => Duration::ZERO,
                Awaited::Nothing => Duration::ZERO,
                Awaited::LaterAnswer => SAME_WORDS_WITHIN,
                Awaited::LastAnswer => WRITTEN_WITHIN,
            };
            if Instant::now() >= self.until.min(started + wait) {
                return TranscriptUsage { path: Some(path), ..usage };
            }
            std::thread::sleep(PAUSE);
        }
    }

    /// The usage so far, and what may be written in a moment.
    fn read_usage(
        &self,
        path: &str,
        request: &UsageRequest,
        said: Option<&str>,
    ) -> (TranscriptUsage, Awaited) {
        let filter = UsageFilter {
            counted_from: request.counted_from,
            is_session: request.agent_id.is_none(),
        };
        // A file that is not there yet is read with a later event.
        let sum = self.open(path).and_then(|mut file| transcript::usage(&mut file, &filter).ok());
        let Some(sum) = sum else { return Default::default() };
        let is_said = said.is_none_or(|said| self.ends_with(path, said).unwrap_or(false));
        let is_last = sum.is_final && is_said;
        let (at, after) = (sum.answered_at, request.answered_after);
        let is_complete = is_last && at.zip(after).is_none_or(|(at, after)| at >= after);
        let awaited = match said {
            None => Awaited::Nothing,
            Some(_) if is_complete || (is_said && sum.by_model.is_empty()) => Awaited::Nothing,
            Some(_) if is_last => Awaited::LaterAnswer,
            Some(_) => Awaited::LastAnswer,
        };
        let usage = (!sum.by_model.is_empty()).then(|| serde_json::to_string(&sum.by_model).ok());
        (TranscriptUsage { usage: usage.flatten(), is_complete, path: None }, awaited)
    }

    /// Whether the beginning of this text is in the last, complete lines of a file.
    fn ends_with(&self, path: &str, said: &str) -> Option<bool> {
        let words: String = said.chars().take(WORDS).collect();
        let words = serde_json::to_string(&words).ok()?;
        let words = words.trim_matches('"').as_bytes();
        if words.is_empty() {
            return Some(true);
        }
        let mut file = self.open(path)?;
        let tail = LAST_LINES + 2 * said.len() as u64;
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
