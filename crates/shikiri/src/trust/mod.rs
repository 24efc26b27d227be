//! Trust in a project's own files. What they ask to start, open, redirect or receive counts only
//! after the person agreed to it, for that folder and that content. `docs/decisions/0019` says why.

mod agreement;
mod question;
mod request;
mod settings_keys;
mod state_file;

use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use shikiri_model::audit::AuditAction;
use shikiri_store::{Clock as _, SystemClock};

pub use agreement::{EntryChange, FileAgreement, FileTrust, FolderAgreement};
pub use question::{ask_at_terminal, changed_lines, entry_lines};
pub use request::{FileRequest, GuardedEntry, ProjectFile};
pub use settings_keys::{ConfigUse, GUARDED_KEYS, NEVER_FROM_PROJECT, settings_request};
pub use shikiri_hook::git_index::tracked_files;
pub use state_file::{Agreements, TrustFile, TrustFileError, folder_key};

use crate::config::Surroundings;
use crate::config_layers::{flag, parse_settings};
use crate::env_vars;
use crate::exit::{Exit, Failure};

/// Larger files are no configuration.
const MAX_FILE: u64 = 1024 * 1024;

/// Puts a question to the person at the terminal; None if nobody is there.
pub type AskPerson = fn(&str) -> Option<bool>;

/// Whether the files of one project count.
#[derive(Clone, Debug)]
pub struct ProjectTrust {
    /// The project's folder, without links on its path.
    root: PathBuf,
    file: Option<TrustFile>,
    /// `SHIKIRI_TRUST`
    is_given_for_command: bool,
    ask: AskPerson,
    /// What the person said and the audit log does not hold yet.
    acts: Arc<Mutex<Vec<TrustAct>>>,
}

/// What a person said about a project's files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrustAct {
    pub action: AuditAction,
    /// Names of the files.
    pub files: Vec<String>,
}

impl ProjectTrust {
    pub fn new(root: &Path, surroundings: &Surroundings<'_>) -> Result<Self, Failure> {
        let given = surroundings.get(env_vars::TRUST).map(|text| text.to_string_lossy().into());
        Ok(Self {
            root: root.canonicalize().unwrap_or_else(|_| root.to_owned()),
            file: TrustFile::locate(surroundings),
            is_given_for_command: flag(env_vars::TRUST, given)?.unwrap_or(false),
            ask: surroundings.ask,
            acts: Arc::default(),
        })
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    /// What a file of the project asks for, if it is there. One that cannot be read asks for
    /// nothing; whoever wants to use it says why.
    pub fn request(&self, file: ProjectFile) -> Option<FileRequest> {
        let text = read_project_file(&self.root.join(file.name())).ok()?;
        Some(match file {
            ProjectFile::Settings => {
                let (settings, _) = parse_settings(&text).ok()?;
                settings_request(&text, &settings, &self.root)
            }
            ProjectFile::McpServers => FileRequest::mcp_servers(&text),
            ProjectFile::Providers => FileRequest::providers(&text),
        })
    }

    /// What all files of the project ask for.
    pub fn requests(&self) -> Vec<FileRequest> {
        let requests = ProjectFile::ALL.into_iter().filter_map(|file| self.request(file));
        requests.filter(|request| !request.entries.is_empty()).collect()
    }

    /// What the person said about a file with this content.
    pub fn judge(&self, request: &FileRequest) -> Result<FileTrust, TrustFileError> {
        let Some(file) = &self.file else { return Ok(FileTrust::Untrusted) };
        let agreements = file.read()?;
        let folder = agreements.folders.get(&folder_key(&self.root)?);
        Ok(FileTrust::judge(request, folder.and_then(|files| files.get(request.file.name()))))
    }

    /// Whether a file with this content counts. Nobody is asked.
    pub fn accepts(&self, request: &FileRequest) -> Result<bool, TrustFileError> {
        if self.is_given_for_command || request.entries.is_empty() {
            return Ok(true);
        }
        Ok(matches!(self.judge(request)?, FileTrust::Trusted { .. }))
    }

    /// Asks the person, if there is one, unless the file counts already. `used` names what the
    /// command would use of it.
    pub fn require(&self, request: &FileRequest, used: &[&str]) -> Result<(), Failure> {
        if self.accepts(request)? {
            return Ok(());
        }
        let trust = self.judge(request)?;
        let question = question::text(&self.root, request, &trust);
        match (self.ask)(&question) {
            Some(true) => Ok(self.agree(std::slice::from_ref(request))?),
            _ => Err(self.refusal(request, &trust, used)),
        }
    }

    /// Keeps the agreement to these files.
    pub fn agree(&self, requests: &[FileRequest]) -> Result<(), TrustFileError> {
        let key = folder_key(&self.root)?;
        let agreed_at = SystemClock.now();
        let (is_first, files) = self.trust_file()?.change(|agreements| {
            let is_first = !agreements.folders.contains_key(&key);
            let files = agreements.folders.entry(key).or_default();
            let mut changed = Vec::new();
            for request in requests {
                let (sha256, entries) = (request.sha256.clone(), request.texts());
                let agreement = FileAgreement { sha256, entries, agreed_at };
                let name = request.file.name().to_owned();
                let before = files.insert(name.clone(), agreement);
                if before.is_none_or(|before| before.sha256 != request.sha256) {
                    changed.push(name);
                }
            }
            (is_first, changed)
        })?;
        if !files.is_empty() {
            let action = if is_first { AuditAction::Create } else { AuditAction::Change };
            self.note(TrustAct { action, files });
        }
        Ok(())
    }

    fn note(&self, act: TrustAct) {
        self.acts.lock().unwrap_or_else(PoisonError::into_inner).push(act);
    }

    /// What the person said since this was last asked, for the audit log.
    pub fn take_acts(&self) -> Vec<TrustAct> {
        std::mem::take(&mut *self.acts.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Takes every agreement to this folder back; false if there was none.
    pub fn revoke(&self) -> Result<bool, TrustFileError> {
        let key = folder_key(&self.root)?;
        let file = self.trust_file()?;
        if !file.read()?.folders.contains_key(&key) {
            return Ok(false);
        }
        let removed = file.change(|agreements| agreements.folders.remove(&key))?;
        let Some(removed) = removed else { return Ok(false) };
        let files = removed.into_keys().collect();
        self.note(TrustAct { action: AuditAction::Remove, files });
        Ok(true)
    }

    fn trust_file(&self) -> Result<&TrustFile, TrustFileError> {
        self.file.as_ref().ok_or(TrustFileError::NoHome)
    }

    fn refusal(&self, request: &FileRequest, trust: &FileTrust, used: &[&str]) -> Failure {
        let file = self.root.join(request.file.name());
        let (file, used) = (file.display(), used.join(", "));
        let what = match trust {
            FileTrust::Changed(_) => {
                format!("{file} has changed since you agreed to it; it asks for: {used}")
            }
            _ => format!("{file} asks for what you have not agreed to: {used}"),
        };
        Failure::new(Exit::Refused, what, &self.next_step())
    }

    /// How to allow what the project's files ask for.
    pub fn next_step(&self) -> String {
        let folder = shell_word(&self.root.display().to_string());
        format!("allow it with `shikiri trust {folder}`, or with SHIKIRI_TRUST=1 for one command")
    }
}

impl From<TrustFileError> for Failure {
    fn from(error: TrustFileError) -> Self {
        match error {
            TrustFileError::NotOurs { .. } => {
                Self::new(Exit::Refused, error, "remove it, and agree again with `shikiri trust`")
            }
            error => Self::told(Exit::Unavailable, error),
        }
    }
}

/// The text of a project's file. No pipe or device is waited for.
pub fn read_project_file(path: &Path) -> io::Result<String> {
    use std::os::unix::fs::OpenOptionsExt as _;
    let flags = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    let file = std::fs::OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    let found = file.metadata()?;
    if !found.is_file() || found.len() > MAX_FILE {
        return Err(io::Error::other("it is no file of a reasonable size"));
    }
    let mut text = String::new();
    file.take(MAX_FILE + 1).read_to_string(&mut text)?;
    Ok(text)
}

/// A text as one word of a shell's command line.
fn shell_word(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-+,:@%".contains(c);
    match !text.is_empty() && text.chars().all(is_plain) {
        true => text.to_owned(),
        false => format!("'{}'", text.replace('\'', r"'\''")),
    }
}

#[cfg(test)]
#[path = "trust_tests.rs"]
mod tests;
