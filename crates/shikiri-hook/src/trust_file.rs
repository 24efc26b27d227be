//! The file with a person's agreements to projects' files: `$XDG_STATE_HOME/shikiri/trust.json`. It
//! belongs to the person and lies in no project. `shikiri trust` writes it.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use shikiri_files::private_file::{self, PrivateFileError};
use shikiri_model::time::Timestamp;

pub const VERSION: u32 = 1;
/// More than the agreements of any user.
const MAX_BYTES: u64 = 64 * 1024 * 1024;

#[derive(Clone, Debug)]
pub struct TrustFile {
    pub path: PathBuf,
}

#[derive(Debug, thiserror::Error)]
pub enum TrustFileError {
    #[error("your home folder is not known: set HOME or XDG_STATE_HOME")]
    NoHome,
    #[error("{}: {error}", path.display())]
    NotOurs { path: PathBuf, error: PrivateFileError },
    #[error("{} cannot be used: {error}", path.display())]
    Io { path: PathBuf, error: io::Error },
    #[error("{} cannot be read ({reason}): remove it, and agree again", path.display())]
    Damaged { path: PathBuf, reason: String },
    #[error("{} was written by a newer Shikiri: upgrade", path.display())]
    Newer { path: PathBuf },
    #[error("the name of the folder {} is not UTF-8", .0.display())]
    FolderName(PathBuf),
}

/// All agreements, by the folders' canonical paths.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Agreements {
    pub version: u32,
    pub folders: BTreeMap<String, FolderAgreement>,
}

/// The agreements to a folder's files, by the files' names.
pub type FolderAgreement = BTreeMap<String, FileAgreement>;

/// The agreement to one file with one content.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileAgreement {
    pub sha256: String,
    /// The guarded entries as shown.
    pub entries: Vec<String>,
    pub agreed_at: Timestamp,
}

impl TrustFile {
    /// None if the person has no home. As the XDG specification has it, a relative path is ignored.
    pub fn locate(variable: &dyn Fn(&str) -> Option<OsString>) -> Option<Self> {
        let absolute = |name| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let home = || absolute("HOME").map(|home| home.join(".local/state"));
        let state = absolute("XDG_STATE_HOME").or_else(home)?;
        Some(Self { path: state.join("shikiri/trust.json") })
    }

    /// Empty if there is no file.
    pub fn read(&self) -> Result<Agreements, TrustFileError> {
        let not_ours = |error| match error {
            PrivateFileError::Io(error) => self.io(error),
            error => TrustFileError::NotOurs { path: self.path.clone(), error },
        };
        let Some(file) = private_file::open(&self.path).map_err(not_ours)? else {
            return Ok(Agreements::default());
        };
        let mut text = String::new();
        file.take(MAX_BYTES).read_to_string(&mut text).map_err(|error| self.io(error))?;
        let read: Agreements = serde_json::from_str(&text).map_err(|error| {
            TrustFileError::Damaged { path: self.path.clone(), reason: error.to_string() }
        })?;
        match read.version {
            0..=VERSION => Ok(read),
            _ => Err(TrustFileError::Newer { path: self.path.clone() }),
        }
    }

    pub fn io(&self, error: io::Error) -> TrustFileError {
        TrustFileError::Io { path: self.path.clone(), error }
    }
}

impl Agreements {
    /// The agreement to a file of a folder, whatever its content was.
    pub fn of_file(
        &self,
        folder: &Path,
        file: &str,
    ) -> Result<Option<&FileAgreement>, TrustFileError> {
        let files = self.folders.get(&folder_key(folder)?);
        Ok(files.and_then(|files| files.get(file)))
    }
}

/// The key of a folder among the agreements.
pub fn folder_key(folder: &Path) -> Result<String, TrustFileError> {
    let text = folder.to_str().map(str::to_owned);
    text.ok_or_else(|| TrustFileError::FolderName(folder.to_owned()))
}

/// What an agreement is about: the content of a file.
pub fn content_hash(content: &str) -> String {
    hex::encode(Sha256::digest(content.as_bytes()))
}

/// The values of a switch, such as `SHIKIRI_TRUST`; None for another text.
pub fn parse_switch(text: &str) -> Option<bool> {
    match text {
        "1" | "true" | "yes" => Some(true),
        "0" | "false" | "no" => Some(false),
        _ => None,
    }
}
