//! Opens files that only this user may read and write, such as keys.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use rustix::fs::OFlags;
use rustix::process::geteuid;

/// Why a file is not private to this user.
#[derive(Debug, thiserror::Error)]
pub enum PrivateFileError {
    #[error("is a link")]
    Link,
    #[error("is no plain file")]
    NotAFile,
    #[error("belongs to another user (uid {0})")]
    OtherOwner(u32),
    #[error("is open to other users (mode {0:o})")]
    OpenToOthers(u32),
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// None if there is no file. The opened file itself is checked, so it cannot be replaced after the
/// check.
pub fn open(path: &Path) -> Result<Option<File>, PrivateFileError> {
    // Opened without blocking: a pipe would wait for its writer.
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
    let file = match OpenOptions::new().read(true).custom_flags(flags).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(_) if path.is_symlink() => return Err(PrivateFileError::Link),
        Err(error) => return Err(error.into()),
    };
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(PrivateFileError::NotAFile);
    }
    if metadata.uid() != geteuid().as_raw() {
        return Err(PrivateFileError::OtherOwner(metadata.uid()));
    }
    match metadata.mode() & 0o777 {
        mode if mode & 0o077 != 0 => Err(PrivateFileError::OpenToOthers(mode)),
        _ => Ok(Some(file)),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    #[test]
    fn only_a_plain_file_for_its_owner_alone_is_opened() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        assert!(open(&path).unwrap().is_none());
        fs::write(&path, "x").unwrap();
        for (mode, is_private) in [(0o600, true), (0o400, true), (0o640, false), (0o602, false)] {
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            assert_eq!(open(&path).is_ok(), is_private, "{mode:o}");
        }
        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        let link = folder.path().join("link");
        symlink(&path, &link).unwrap();
        assert!(matches!(open(&link), Err(PrivateFileError::Link)));
        assert!(matches!(open(folder.path()), Err(PrivateFileError::NotAFile)));
        symlink("nowhere", folder.path().join("dangling")).unwrap();
        let dangling = open(&folder.path().join("dangling"));
        assert!(matches!(dangling, Err(PrivateFileError::Link)), "{dangling:?}");
    }
}
