//! The file with a person's agreements: `$XDG_STATE_HOME/shikiri/trust.json`. It belongs to the
//! person and lies in no project. It is written whole, under a lock.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use shikiri_runtime::private_file::{self, PrivateFileError};

use super::agreement::FolderAgreement;
use crate::config::Surroundings;
use crate::env_vars;

const VERSION: u32 = 1;
/// More than the agreements of any user.
const MAX_BYTES: u64 = 64 * 1024 * 1024;

#[derive(Clone, Debug)]
pub struct TrustFile {
    path: PathBuf,
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
    version: u32,
    pub folders: BTreeMap<String, FolderAgreement>,
}

impl TrustFile {
    /// None if the person has no home. As the XDG specification has it, a relative path is ignored.
    pub fn locate(surroundings: &Surroundings<'_>) -> Option<Self> {
        let absolute = |variable| {
            surroundings.get(variable).map(PathBuf::from).filter(|path| path.is_absolute())
        };
        let home = || absolute(env_vars::HOME).map(|home| home.join(".local/state"));
        let state = absolute(env_vars::XDG_STATE_HOME).or_else(home)?;
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

    /// Changes the agreements under a lock.
    pub fn change<T>(
        &self,
        change: impl FnOnce(&mut Agreements) -> T,
    ) -> Result<T, TrustFileError> {
        let folder = self.path.parent().unwrap_or(Path::new("/"));
        let made = DirBuilder::new().recursive(true).mode(0o700).create(folder);
        made.map_err(|error| self.io(error))?;
        let _lock = self.lock().map_err(|error| self.io(error))?;
        let mut agreements = self.read()?;
        let changed = change(&mut agreements);
        agreements.version = VERSION;
        self.write(&agreements, folder).map_err(|error| self.io(error))?;
        Ok(changed)
    }

    /// The lock is held until the file is dropped.
    fn lock(&self) -> io::Result<File> {
        let path = self.path.with_extension("lock");
        let file = OpenOptions::new().create(true).append(true).mode(0o600).open(path)?;
        file.lock()?;
        Ok(file)
    }

    fn write(&self, agreements: &Agreements, folder: &Path) -> io::Result<()> {
        let mut file = tempfile::Builder::new().prefix("trust-").tempfile_in(folder)?;
        serde_json::to_writer_pretty(&mut file, agreements)?;
        writeln!(file)?;
        file.as_file().sync_all()?;
        // A temporary file has mode 0600 from its start.
        file.persist(&self.path).map_err(|error| error.error)?;
        fs::File::open(folder)?.sync_all()
    }

    fn io(&self, error: io::Error) -> TrustFileError {
        TrustFileError::Io { path: self.path.clone(), error }
    }
}

/// The key of a folder among the agreements.
pub fn folder_key(folder: &Path) -> Result<String, TrustFileError> {
    let text = folder.to_str().map(str::to_owned);
    text.ok_or_else(|| TrustFileError::FolderName(folder.to_owned()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn trust_file(folder: &tempfile::TempDir) -> TrustFile {
        TrustFile { path: folder.path().join("state/shikiri/trust.json") }
    }

    #[test]
    fn agreements_of_many_processes_are_all_kept() {
        let folder = tempfile::tempdir().unwrap();
        let file = trust_file(&folder);
        assert!(file.read().unwrap().folders.is_empty());
        std::thread::scope(|scope| {
            for number in 0..16 {
                let file = &file;
                scope.spawn(move || {
                    let add = |all: &mut Agreements| {
                        all.folders.insert(number.to_string(), FolderAgreement::new())
                    };
                    file.change(add).unwrap();
                });
            }
        });
        assert_eq!(file.read().unwrap().folders.len(), 16);
        let mode = fs::metadata(&file.path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn file_that_others_can_write_damaged_or_newer_is_not_believed() {
        let folder = tempfile::tempdir().unwrap();
        let file = trust_file(&folder);
        file.change(|_| ()).unwrap();
        let mode = |mode| fs::set_permissions(&file.path, fs::Permissions::from_mode(mode));
        mode(0o666).unwrap();
        assert!(matches!(file.read(), Err(TrustFileError::NotOurs { .. })));
        mode(0o600).unwrap();
        fs::write(&file.path, "{").unwrap();
        assert!(matches!(file.read(), Err(TrustFileError::Damaged { .. })));
        fs::write(&file.path, r#"{"version": 2, "folders": {}}"#).unwrap();
        assert!(matches!(file.read(), Err(TrustFileError::Newer { .. })));
    }
}
