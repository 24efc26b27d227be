//! Opens files that Claude Code names: only regular files in Claude Code's own folder or the
//! project.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use crate::hook_project::HookProject;

/// Opens a regular file for reading if it is in an allowed folder after links are resolved.
pub fn open(project: &HookProject, path: &Path) -> io::Result<File> {
    let path = path.canonicalize()?;
    if !allowed_folders(project).iter().any(|folder| path.starts_with(folder)) {
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
    // One byte more than the length, so that the end is found without another allocation.
    let mut text = Vec::with_capacity(usize::try_from(length.min(most)).unwrap_or(0) + 1);
    file.take(most).read_to_end(&mut text)?;
    Ok(text)
}

/// A file and its length.
fn open_regular(path: &Path) -> io::Result<(File, u64)> {
    // Opening a FIFO would wait for a writer.
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
fn allowed_folders(project: &HookProject) -> Vec<PathBuf> {
    // An empty variable counts as not set.
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    let config = variable("CLAUDE_CONFIG_DIR").map(PathBuf::from);
    let home = variable("HOME").map(|home| PathBuf::from(home).join(".claude"));
    let claude = config.or(home).map(|folder| folder.join("projects"));
    let folders = claude.into_iter().chain([project.root.clone()]);
    folders.filter_map(|folder| folder.canonicalize().ok()).collect()
}
