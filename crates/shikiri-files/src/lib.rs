//! Access to folders that an engine can write: its home, its session files and its workspace.
//!
//! Such a folder may hold anything: links, pipes, devices, endless files, very deep folders. A program
//! may change it at any time. So the server accesses it only through [`UntrustedDir`], which promises:
//!
//! - No link is followed, in any part of a path. Each part is opened relative to the handle of its
//!   parent (`O_NOFOLLOW`), so no check can become outdated before the use.
//! - Only regular files are opened, without waiting (`O_NONBLOCK`).
//! - Reads are limited in bytes, listings and walks in entries. No walk recurses, and none needs more
//!   than a few descriptors.
//! - A file is written to a temporary name and renamed, so it replaces an older entry at once.
//! - [`Trash`] removes folders of any depth.
//!
//! [`private_file`] opens the files that only this user may read, such as keys.
//!
//! All functions block.
//!
//! ```
//! use shikiri_files::{FilesError, UntrustedDir};
//!
//! let folder = std::env::temp_dir().join(format!("files-example-{}", std::process::id()));
//! let dir = UntrustedDir::create(&folder)?;
//! dir.create_dir("notes")?.write("today.txt", b"hello")?;
//! assert_eq!(dir.read("notes/today.txt", 100)?, b"hello");
//!
//! // A larger file, a link, or a path out of the folder is an error.
//! assert!(matches!(dir.read("notes/today.txt", 3), Err(FilesError::TooLarge { .. })));
//! std::os::unix::fs::symlink("/etc", folder.join("link")).unwrap();
//! assert!(matches!(dir.read("link/hosts", 100), Err(FilesError::Link(_))));
//! assert!(matches!(dir.read("../x", 100), Err(FilesError::InvalidPath(_))));
//!
//! shikiri_files::remove_tree(&folder)?;
//! # Ok::<(), FilesError>(())
//! ```
//!
//! To start reading: `untrusted_dir.rs`, then `file_access.rs`.

mod dir_walk;
mod error;
mod file_access;
mod file_owner;
pub mod private_file;
mod trash;
mod untrusted_dir;

pub use dir_walk::{DirEntry, WalkEntry, WalkSummary};
pub use error::FilesError;
pub use file_access::{EntryKind, EntryStat};
pub use file_owner::{FileOwner, HandOver};
pub use trash::{Trash, remove_tree};
pub use untrusted_dir::UntrustedDir;

#[cfg(test)]
mod tests;
