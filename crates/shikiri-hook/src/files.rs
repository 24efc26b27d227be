//! Files that Claude Code names: only regular ones, and only where it keeps its own or in the
//! project.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use crate::place::Place;

/// Opens a file for reading, wherever links lead, if it is a regular one in an allowed folder.
pub fn open(place: &Place, path: &Path) -> io::Result<File> {
    let path = path.canonicalize()?;
    if !allowed(place).iter().any(|folder| path.starts_with(folder)) {
        return Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            "it is neither in Claude Code's folder nor in the project",
        ));
    }
    open_regular(&path).map(|(file, _)| file)
}

/// The first bytes of a regular file.
pub fn read_start(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let (file, length) = open_regular(path)?;
    // One more than there is: the end shows without another growth.
    let mut text = Vec::with_capacity(usize::try_from(length.min(most)).unwrap_or(0) + 1);
    file.take(most).read_to_end(&mut text)?;
    Ok(text)
}

/// A file and its length.
fn open_regular(path: &Path) -> io::Result<(File, u64)> {
    // A FIFO would keep us waiting for somebody who writes.
    let nonblock = rustix::fs::OFlags::NONBLOCK.bits();
    let flags = i32::try_from(nonblock).unwrap_or_default();
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    let found = file.metadata()?;
    if found.is_file() {
        Ok((file, found.len()))
    } else {
        Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"))
    }
}

/// Claude Code's folder for transcripts, and the project.
fn allowed(place: &Place) -> Vec<PathBuf> {
    // What is set to nothing is not set.
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    let config = variable("CLAUDE_CONFIG_DIR").map(PathBuf::from);
    let home = variable("HOME").map(|home| PathBuf::from(home).join(".claude"));
    let claude = config.or(home).map(|folder| folder.join("projects"));
    let folders = claude.into_iter().chain([place.root.clone()]);
    folders.filter_map(|folder| folder.canonicalize().ok()).collect()
}
