//! `sessions.json` of the browser bridge: reads versions 1 and 2, writes version 2.
//!
//! A file is imported completely or not at all. Imported lanes record their origin, so importing
//! the same file again changes nothing.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use super::chat_url::{is_chat_url, is_web};
use super::lane_limits::LaneLimits;
use super::record::{Lane, ProviderChat, TabId};
use crate::ids::{LaneId, TenantId};
use crate::time::Timestamp;

/// Larger files are refused.
const MAX_BYTES: usize = 16 * 1024 * 1024;
const MAX_ENTRIES: usize = 10_000;
const MAX_NAME: usize = 500;
const MAX_PROVIDER: usize = 40;

/// The content of a file.
#[derive(Clone, Debug, PartialEq)]
pub struct SessionsFile {
    pub version: u8,
    pub entries: Vec<SessionsFileEntry>,
    /// Addresses that were left out because they are not chats, as `name: url`.
    pub left_out: Vec<String>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct SessionsFileEntry {
    /// The name in the file.
    pub name: String,
    pub threads: BTreeMap<String, ProviderChat>,
    pub last_access: Option<Timestamp>,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SessionsFileError {
    #[error("is no sessions file: {0}")]
    Foreign(String),
    #[error("{at}: {reason}")]
    Broken { at: String, reason: String },
}

fn broken(at: impl Into<String>, reason: impl Into<String>) -> SessionsFileError {
    SessionsFileError::Broken { at: at.into(), reason: reason.into() }
}

/// Reads a file of either version.
pub fn read_sessions(text: &str) -> Result<SessionsFile, SessionsFileError> {
    if text.len() > MAX_BYTES {
        return Err(SessionsFileError::Foreign("it is over 16 MiB".to_owned()));
    }
    // Some editors write a byte order mark.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let file: Value = serde_json::from_str(text)
        .map_err(|error| SessionsFileError::Foreign(format!("it is not JSON ({error})")))?;
    let Value::Object(file) = file else {
        return Err(SessionsFileError::Foreign("it is not an object".to_owned()));
    };
    let (version, key) = match (file.get("version"), file.get("projects")) {
        (Some(Value::Number(two)), _) if two.as_f64() == Some(2.0) => (2, "agents"),
        (None, Some(_)) => (1, "projects"),
        (Some(Value::Number(one)), Some(_)) if one.as_f64() == Some(1.0) => (1, "projects"),
        (None, None) => {
            let reason = "it has neither `projects` (version 1) nor `version: 2` with `agents`";
            return Err(SessionsFileError::Foreign(reason.to_owned()));
        }
        (Some(other), _) => {
            let reason = format!("its version is {other}; 1 and 2 are known");
            return Err(SessionsFileError::Foreign(reason));
        }
    };
    let Some(Value::Object(named)) = file.get(key) else {
        return Err(broken(key, "must be an object"));
    };
    if named.len() > MAX_ENTRIES {
        return Err(broken(key, format!("has more than {MAX_ENTRIES} entries")));
    }
    let mut read = SessionsFile { version, entries: Vec::new(), left_out: Vec::new() };
    for (name, entry) in named {
        let entry = read_entry(key, name, entry, &mut read.left_out)?;
        read.entries.push(entry);
    }
    Ok(read)
}

fn read_entry(
    key: &str,
    name: &str,
    entry: &Value,
    left_out: &mut Vec<String>,
) -> Result<SessionsFileEntry, SessionsFileError> {
    let shown: String = name.chars().take(60).collect();
    let at = format!("{key}.{shown}");
    if name.chars().count() > MAX_NAME {
        return Err(broken(at, format!("the name is over {MAX_NAME} characters")));
    }
    if name.is_empty() || name.contains('\0') {
        return Err(broken(at, "the name is empty or has a NUL"));
    }
    let Value::Object(fields) = entry else { return Err(broken(at, "must be an object")) };
    let last_access = match fields.get("lastAccess") {
        None | Some(Value::Null) => None,
        Some(Value::String(time)) => {
            let read = time.parse().map_err(|_| broken(format!("{at}.lastAccess"), "is no time"));
            Some(read?)
        }
        Some(_) => return Err(broken(format!("{at}.lastAccess"), "must be a time as text")),
    };
    let mut threads = BTreeMap::new();
    for (provider, thread) in fields.iter().filter(|(field, _)| *field != "lastAccess") {
        let at = format!("{at}.{provider}");
        match (thread, is_provider(provider)) {
            (Value::Null, _) => {}
            (Value::Object(thread), true) => {
                let thread = read_thread(&at, thread)?;
                if thread.url.as_deref().is_some_and(is_chat_url) {
                    threads.insert(provider.clone(), thread);
                } else {
                    left_out.extend(thread.url.map(|url| format!("{at}: {url}")));
                }
            }
            // Other notes about a project are not chats.
            (_, true) if !KNOWN.contains(&provider.as_str()) => {}
            (_, false) => {}
            _ => return Err(broken(at, "must be null or an object with a url")),
        }
    }
    Ok(SessionsFileEntry { name: name.to_owned(), threads, last_access })
}

const KNOWN: [&str; 2] = ["chatgpt", "gemini"];

fn is_provider(name: &str) -> bool {
    (1..=MAX_PROVIDER).contains(&name.len())
        && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"_-".contains(&b))
}

fn read_thread(at: &str, thread: &Map<String, Value>) -> Result<ProviderChat, SessionsFileError> {
    let url = match thread.get("url") {
        None | Some(Value::Null) => None,
        Some(Value::String(url)) if is_web(url) => Some(url.clone()),
        Some(Value::String(_)) => {
            return Err(broken(format!("{at}.url"), "is no http or https address"));
        }
        Some(_) => return Err(broken(format!("{at}.url"), "must be text")),
    };
    let tab = match thread.get("tabId") {
        None | Some(Value::Null) => None,
        Some(Value::Number(number)) => Some(TabId::Number(number.clone())),
        Some(Value::String(id)) if id.len() <= 200 && !id.contains('\0') => {
            Some(TabId::Target(id.clone()))
        }
        Some(_) => return Err(broken(format!("{at}.tabId"), "must be a number or a short text")),
    };
    Ok(ProviderChat { url, tab })
}

/// The plan of an import.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ImportPlan {
    /// Lanes to create.
    pub lanes: Vec<Lane>,
    /// Entries that were imported before, by their names in the file.
    pub known: Vec<String>,
}

/// Plans lanes for the new entries. `existing` are all lanes of the tenant, including ended ones.
pub fn plan_import(
    file: &SessionsFile,
    existing: &[Lane],
    tenant: &TenantId,
    limits: &LaneLimits,
    now: Timestamp,
    mut mint: impl FnMut() -> LaneId,
) -> ImportPlan {
    let mut plan = ImportPlan::default();
    let sources: BTreeSet<&str> =
        existing.iter().filter_map(|lane| lane.source.as_deref()).collect();
    let by_name: BTreeMap<&str, &Lane> =
        existing.iter().map(|lane| (lane.name.as_str(), lane)).collect();
    let mut names = LaneNameAllocator {
        taken: by_name.keys().map(|name| (*name).to_owned()).collect(),
        ..LaneNameAllocator::default()
    };
    for entry in &file.entries {
        let source = format!("v{}:{}", file.version, entry.name);
        let is_same = |lane: &&Lane| file.version == 2 && lane.threads == entry.threads;
        let is_here = by_name.get(entry.name.as_str()).is_some_and(is_same);
        if is_here || sources.contains(source.as_str()) {
            plan.known.push(entry.name.clone());
            continue;
        }
        let wanted = if file.version == 1 { legacy_name(&entry.name) } else { entry.name.clone() };
        let name = names.take(&wanted);
        let mut lane = Lane {
            id: mint(),
            tenant: tenant.clone(),
            // A project in version 1 had no process. In version 2 a name ends with one.
            agent: if file.version == 1 { name.clone() } else { agent_of(&wanted) },
            is_declared: true,
            instance: name.clone(),
            name,
            subagent: None,
            holder: None,
            former: Vec::new(),
            node: None,
            threads: entry.threads.clone(),
            in_flight: BTreeMap::new(),
            opened_at: now,
            last_access: entry.last_access.unwrap_or(now),
            ttl_ms: 0,
            is_ended: false,
            source: Some(source),
        };
        // A time in the future would keep the lane forever.
        lane.last_access = lane.last_access.min(now);
        lane.ttl_ms = u64::try_from(limits.ttl().as_millis()).unwrap_or(u64::MAX);
        plan.lanes.push(lane);
    }
    plan
}

fn legacy_name(project: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
    format!("legacy-{}", project.chars().map(plain).collect::<String>())
}

#[derive(Default)]
struct LaneNameAllocator {
    taken: BTreeSet<String>,
    /// The last number that was appended to each name.
    numbers: BTreeMap<String, u32>,
}

impl LaneNameAllocator {
    /// `name`, or `name-2`, `name-3` …
    fn take(&mut self, wanted: &str) -> String {
        let mut name = wanted.to_owned();
        while !self.taken.insert(name.clone()) {
            let number = self.numbers.entry(wanted.to_owned()).or_insert(1);
            *number += 1;
            name = format!("{wanted}-{number}");
        }
        name
    }
}

/// The name without the process number. An agent that is declared under it takes the lane over.
fn agent_of(key: &str) -> String {
    match key.rsplit_once('-') {
        Some((agent, pid)) if !agent.is_empty() && pid.bytes().all(|b| b.is_ascii_digit()) => {
            if pid.is_empty() { key.to_owned() } else { agent.to_owned() }
        }
        _ => key.to_owned(),
    }
}

/// Exports the open lanes as a file of version 2.
pub fn export<'a>(lanes: impl IntoIterator<Item = &'a Lane>, limits: &LaneLimits) -> Value {
    let entry = |lane: &Lane| {
        let mut entry = json!({
            "lastAccess": lane.last_access,
            "chatgpt": null,
            "gemini": null,
        });
        for (provider, thread) in &lane.threads {
            if let Some(url) = &thread.url {
                entry[provider] = json!({ "url": url });
                if let Some(tab) = &thread.tab {
                    entry[provider]["tabId"] = json!(tab);
                }
            }
        }
        entry
    };
    let open = lanes.into_iter().filter(|lane| !lane.is_ended);
    let agents: Map<String, Value> = open.map(|lane| (lane.name.clone(), entry(lane))).collect();
    let minutes = limits.ttl_minutes;
    let whole = minutes.fract() == 0.0;
    json!({
        "version": 2,
        "agents": agents,
        "config": {
            // In the bridge's format: without a decimal point where none is needed.
            "sessionTtlMinutes": if whole { json!(minutes as u64) } else { json!(minutes) },
            "maxAgents": limits.max_lanes,
        },
    })
}
