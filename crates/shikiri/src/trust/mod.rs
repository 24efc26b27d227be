//! Trust in a project's own files. Programs, addresses and secrets that they name count only after
//! a person agreed to them, for that folder and that content. `docs/decisions/0019` explains why.

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

pub use agreement::{EntryChange, FileTrust};
pub use question::{ask_at_terminal, changed_lines, entry_lines};
pub use request::{FileRequest, GuardedEntry, ProjectFile};
pub(crate) use settings_keys::foreign_store;
pub use settings_keys::{ConfigUse, guarded_settings, settings_request};
pub use shikiri_hook::git_index::tracked_files;
pub use shikiri_hook::trust_file::{
    Agreements, FileAgreement, TrustFile, TrustFileError, folder_key,
};

use crate::config::layers::parse_settings;
use crate::config::{Surroundings, parse_switch};
use crate::env_vars;
use crate::exit::{Exit, Failure};

/// A larger file is no configuration.
const MAX_FILE: u64 = 1024 * 1024;

/// Asks the person at the terminal; None if there is none.
pub type AskPerson = fn(&str) -> Option<bool>;

/// Whether the files of one project are trusted.
#[derive(Clone, Debug)]
pub struct ProjectTrust {
    /// The project's folder, with links resolved.
    root: PathBuf,
    file: Option<TrustFile>,
    /// `SHIKIRI_TRUST`
    is_given_for_command: bool,
    ask: AskPerson,
    /// Decisions of the person that are not in the audit log yet.
    acts: Arc<Mutex<Vec<TrustAct>>>,
}

/// A person's decision about a project's files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrustAct {
    pub action: AuditAction,
    /// Names of the files.
    pub files: Vec<String>,
}

impl ProjectTrust {
    pub fn new(root: &Path, surroundings: &Surroundings<'_>) -> Result<Self, Failure> {
        let given = surroundings.get(env_vars::TRUST);
        let given = given.map(|given| parse_switch(env_vars::TRUST.name, &given.to_string_lossy()));
        Ok(Self {
            root: root.canonicalize().unwrap_or_else(|_| root.to_owned()),
            file: TrustFile::locate(surroundings.variable),
            is_given_for_command: given.transpose()?.unwrap_or(false),
            ask: surroundings.ask,
            acts: Arc::default(),
        })
    }

    /// Nothing is trusted.
    pub(crate) fn of_no_project() -> Self {
        Self {
            root: PathBuf::new(),
            file: None,
            is_given_for_command: false,
            ask: |_| None,
            acts: Arc::default(),
        }
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The requests of a project's file, if it exists. An unreadable file requests nothing; the
    /// command that would use it reports why.
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

    /// The requests of all files of the project.
    pub fn requests(&self) -> Vec<FileRequest> {
        let requests = ProjectFile::ALL.into_iter().filter_map(|file| self.request(file));
        requests.filter(|request| !request.entries.is_empty()).collect()
    }

    /// The person's decision about a file with this content.
    pub fn judge(&self, request: &FileRequest) -> Result<FileTrust, TrustFileError> {
        let Some(file) = &self.file else { return Ok(FileTrust::Untrusted) };
        let agreements = file.read()?;
        let agreement = agreements.of_file(&self.root, request.file.name())?;
        Ok(FileTrust::judge(request, agreement))
    }

    /// Whether a file with this content is trusted. Asks no question.
    pub fn accepts(&self, request: &FileRequest) -> Result<bool, TrustFileError> {
        if self.is_given_for_command || request.entries.is_empty() {
            return Ok(true);
        }
        Ok(matches!(self.judge(request)?, FileTrust::Trusted { .. }))
    }

    /// Asks the person, if there is one, unless the file is trusted already. `used` names what the
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

    /// Stores the agreement to these files.
    pub fn agree(&self, requests: &[FileRequest]) -> Result<(), TrustFileError> {
        let key = folder_key(&self.root)?;
        let agreed_at = SystemClock.now();
        let (is_first, files) = state_file::change(self.trust_file()?, |agreements| {
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

    /// The decisions since the last call, for the audit log.
    pub fn take_acts(&self) -> Vec<TrustAct> {
        std::mem::take(&mut *self.acts.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Revokes every agreement to this folder; false if there was none.
    pub fn revoke(&self) -> Result<bool, TrustFileError> {
        let key = folder_key(&self.root)?;
        let file = self.trust_file()?;
        if !file.read()?.folders.contains_key(&key) {
            return Ok(false);
        }
        let removed = state_file::change(file, |agreements| agreements.folders.remove(&key))?;
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

    /// How to allow the requests of the project's files.
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

/// The text of a project's file. Never waits for a pipe or device.
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

/// Quotes a text as one word of a shell command.
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
