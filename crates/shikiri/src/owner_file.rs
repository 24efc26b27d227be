//! Files that commands write for their caller: nobody else can read them.

use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

const OWNER_ONLY: u32 = 0o600;

/// A new file; one that exists is refused.
pub(crate) fn create_for_owner(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).mode(OWNER_ONLY).open(path)
}

/// Writes a file, in place of what it holds. One that others could read is closed to them first.
pub(crate) fn write_for_owner(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut options = OpenOptions::new();
    let mut file = options.write(true).create(true).truncate(false).mode(OWNER_ONLY).open(path)?;
    // A terminal or a pipe is not ours to close.
    if file.metadata()?.is_file() {
        file.set_permissions(Permissions::from_mode(OWNER_ONLY))?;
        file.set_len(0)?;
    }
    file.write_all(bytes)
}
