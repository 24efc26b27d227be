//! Files that commands write for their user. Other users cannot read them.

use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

const OWNER_ONLY: u32 = 0o600;

/// Creates a new file; an existing one is refused.
pub(crate) fn create_for_owner(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).mode(OWNER_ONLY).open(path)
}

/// Overwrites a file. If others could read it, its mode is restricted first.
pub(crate) fn write_for_owner(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut options = OpenOptions::new();
    let mut file = options.write(true).create(true).truncate(false).mode(OWNER_ONLY).open(path)?;
    // The mode of a terminal or a pipe must not be changed.
    if file.metadata()?.is_file() {
        file.set_permissions(Permissions::from_mode(OWNER_ONLY))?;
        file.set_len(0)?;
    }
    file.write_all(bytes)
}
