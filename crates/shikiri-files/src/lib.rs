//! Access to folders that an engine can write: its home, its session files and its workspace.
//!
//! Whatever lies in such a folder was put there by a stranger, who may still be at work: links,
//! pipes, devices, files without end, folders without depth. So the server reaches into it through
//! [`UntrustedDir`] alone, which promises:
//!
//! - No link is followed, in any part of a path. Each part is opened on its own, relative to the
//!   handle of the one before (`O_NOFOLLOW`), so there is nothing to check first and use later.
//! - Only regular files are opened, without waiting (`O_NONBLOCK`).
//! - Reads have a bound in bytes, listings and walks one in entries. No walk recurses, and none
//!   needs more than a few descriptors.
//! - A file is written beside its place and renamed into it: what stood there is replaced.
//! - Folders are removed by way of [`Trash`], whatever their depth.
//!
//! Everything here blocks.

mod dir;
mod error;
mod file;
mod owner;
mod trash;
mod walk;

pub use dir::UntrustedDir;
pub use error::FilesError;
pub use file::{EntryKind, EntryStat};
pub use owner::{FileOwner, HandOver};
pub use trash::{Trash, remove_tree};
pub use walk::{DirEntry, WalkEntry, WalkSummary};

#[cfg(test)]
mod tests;
