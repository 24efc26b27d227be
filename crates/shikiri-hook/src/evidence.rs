//! Finds on the disk what a decision wants to know.

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::Value;
use shikiri_model::hook::{Evidence, Meta, Payload, PromptRole, ReadTo, Spawn, Want, role_in};

use crate::files;
use crate::place::Place;
use crate::transcript::{self, Position};

/// From this version on Claude Code says in every event which subagent it comes from.
const NAMES_AGENTS: [u64; 3] = [2, 1, 69];

/// How long the end of a transcript is waited for, and how often it is looked for.
const WRITTEN_WITHIN: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_millis(3);
/// So many characters of a message tell it from others.
const WORDS: usize = 100;
/// What lines hold besides the words.
const LAST_LINES: u64 = 64 * 1024;

/// A meta file is a few hundred bytes.
const MOST_META: u64 = 64 * 1024;

/// Looks for what events of one payload want to know.
pub struct Finder<'a> {
    place: &'a Place,
    payload: &'a Payload,
    lives: &'a dyn Fn(&str) -> bool,
    /// Nothing is waited for any longer.
    until: Instant,
    /// Transcripts that were read for calls, and how far.
    read: Vec<(String, Position)>,
}

impl<'a> Finder<'a> {
    pub fn new(
        place: &'a Place,
        payload: &'a Payload,
        lives: &'a dyn Fn(&str) -> bool,
        until: Instant,
    ) -> Self {
        Self { place, payload, lives, until, read: Vec::new() }
    }

    /// Looks it up. What cannot be found or must not be read is answered with nothing.
    /// `known` tells how far a transcript was read before.
    pub fn find(
        &mut self,
        want: &Want,
        evidence: &mut Evidence,
        known: &dyn Fn(&str) -> Option<ReadTo>,
    ) {
        match want {
            Want::Meta { agent_id } => evidence.meta = Some(self.meta(agent_id)),
            Want::PromptRole { agent_id } => {
                let prompt = self
                    .transcript(agent_id.as_deref())
                    .and_then(|path| transcript::first_prompt(&mut self.open(&path)?).ok()?);
                let role = prompt.as_deref().map(role_in);
                evidence.prompt_role = Some(match role {
                    None => PromptRole::Unread,
                    Some(None) => PromptRole::Unnamed,
                    Some(Some(role)) => PromptRole::Named(role.to_owned()),
                });
            }
            Want::NamesAgents => evidence.names_agents = Some(self.names_agents()),
            Want::Tokens { agent_id } => {
                let path = self.transcript(agent_id.as_deref());
                let mut file = path.and_then(|path| self.open(&path));
                evidence.tokens = Some(file.as_mut().and_then(|f| transcript::tokens(f).ok()?));
            }
            Want::Spawns => {
                let path = self.transcript(None);
                let calls = path.and_then(|path| self.read_new(&path, known));
                let calls = calls.unwrap_or_default();
                let spawns = calls.iter().map(|call| self.spawn(call)).collect();
                evidence.spawns = Some(spawns);
            }
            Want::Usage { agent_id } => {
                evidence.usage.push((agent_id.clone(), self.usage(agent_id)));
            }
            Want::Claimant { by } => evidence.claimants.push((by.clone(), (self.lives)(by))),
        }
    }

    /// How far transcripts were read, to be remembered with what follows from it.
    pub fn read(&self) -> impl Iterator<Item = (&str, ReadTo)> {
        self.read.iter().map(|(path, position)| {
            let Position { inode, offset, lines } = *position;
            (path.as_str(), ReadTo { inode, offset, lines })
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
        files::open(self.place, Path::new(path)).ok()
    }

    /// Calls in what was appended to a transcript since it was last read for them.
    fn read_new(
        &mut self,
        path: &str,
        known: &dyn Fn(&str) -> Option<ReadTo>,
    ) -> Option<Vec<transcript::Call>> {
        let mut file = self.open(path)?;
        let inode = file.metadata().ok()?.ino();
        // A file that was replaced, or is shorter than it was, is another one.
        let length = file.metadata().ok()?.len();
        let known = known(path).filter(|known| known.inode == inode && known.offset <= length);
        let from = known.map_or(Position { inode, ..Position::default() }, |known| Position {
            inode,
            offset: known.offset,
            lines: known.lines,
        });
        let (calls, position) = transcript::read_new(&mut file, from).ok()?;
        self.read.push((path.to_owned(), position));
        Some(calls)
    }

    fn spawn(&self, call: &transcript::Call) -> Spawn {
        let mut told = self.payload.clone();
        told.agent_id = None;
        told.tool_input = call.input.as_object().cloned().unwrap_or_default();
        let at = call.at.unwrap_or_default();
        let mut spawn = Spawn::from_call(&told, &call.tool_use_id, at);
        spawn.transcript_index = i64::try_from(call.line).ok();
        if let Some(answer) = &call.answer {
            spawn.matched_agent_id.clone_from(&answer.agent_id);
            spawn.ended_at = (!answer.goes_on).then(|| answer.at.unwrap_or_default());
        }
        spawn
    }

    fn meta(&self, agent_id: &str) -> Option<Meta> {
        let path = self.payload.subagent_file(agent_id, ".meta.json")?;
        let mut text = Vec::new();
        self.open(&path)?.take(MOST_META).read_to_end(&mut text).ok()?;
        let meta: Value = serde_json::from_slice(&text).ok()?;
        let field = |name: &str| meta[name].as_str().map(str::to_owned);
        Some(Meta {
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
        // Of the others that have ended meanwhile, the event does not tell what they said.
        if self.payload.agent_id.as_deref() == Some(agent_id) {
            self.wait_for_last_message(&path);
        }
        let sums = transcript::usage(&mut self.open(&path)?).ok()?;
        (!sums.is_empty()).then(|| serde_json::to_string(&sums).ok()).flatten()
    }

    /// Claude Code writes what an agent said last a few milliseconds after it tells that the agent
    /// has stopped: without it the sum would be too small.
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

    /// Whether these words are in the last lines of a file, whole.
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

/// Whether a hook process is still there. Where that cannot be seen, it is: what it claimed is free
/// again soon in any case, and its program may be called anything.
pub fn lives(claimant: &str) -> bool {
    let Some((pid, _)) = claimant.split_once('.') else { return false };
    match std::fs::read_to_string(format!("/proc/{pid}/stat")) {
        // `4711 (shikiri-hook) S …`; one that was killed is there as Z until somebody asks for it.
        Ok(stat) => {
            let (_, state) = stat.rsplit_once(')').unwrap_or_default();
            !state.trim_start().starts_with(['Z', 'X'])
        }
        Err(_) => !Path::new("/proc/self/stat").exists(),
    }
}

#[cfg(test)]
#[path = "evidence_tests.rs"]
mod tests;
