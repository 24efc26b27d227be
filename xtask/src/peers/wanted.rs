//! The third-party programs of the tests, and their locations once installed.
//!
//! The versions are in `crates/shikiri/tests/peers`, a folder for each peer. They are exact, so
//! that results change only with a change of ours.

use std::env::consts::ARCH;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::cargo::workspace_root;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Source {
    Npm,
    Pip,
}

impl Source {
    /// The file that says which versions are wanted.
    pub(super) fn list(self) -> &'static str {
        match self {
            Source::Npm => "package.json",
            Source::Pip => "requirements.txt",
        }
    }
}

/// What the tests use of an installed peer; paths are relative to its folder.
#[derive(Debug, PartialEq)]
pub(super) enum PeerLocation {
    /// A program that answers `--version`.
    Program(String),
    File(&'static str),
    /// The folder itself, from which packages are imported.
    Folder,
}

impl PeerLocation {
    pub(super) fn inside(&self, folder: &Path) -> PathBuf {
        match self {
            PeerLocation::Program(path) => folder.join(path),
            PeerLocation::File(path) => folder.join(path),
            PeerLocation::Folder => folder.to_path_buf(),
        }
    }
}

pub(super) struct Peer {
    /// The name of its folder, for its versions and in the cache.
    pub(super) name: &'static str,
    /// The variable with its path for the tests.
    pub(super) variable: &'static str,
    pub(super) source: Source,
    pub(super) location: PeerLocation,
}

impl Peer {
    /// The file with the wanted versions.
    pub(super) fn list(&self) -> PathBuf {
        let peers = workspace_root().join("crates/shikiri/tests/peers");
        peers.join(self.name).join(self.source.list())
    }

    pub(super) fn wanted(&self) -> Result<String> {
        let list = self.list();
        fs::read_to_string(&list).with_context(|| format!("cannot read {}", list.display()))
    }
}

pub(super) fn all() -> Vec<Peer> {
    // The programs themselves, not the launchers from an install script: install scripts are not
    // run.
    let node =
        || PeerLocation::Program(format!("node_modules/node-linux-{}/bin/node", processor()));
    let claude =
        || PeerLocation::Program(format!("node_modules/@anthropic-ai/{}/claude", native()));
    let python = || PeerLocation::Program("bin/python".to_owned());
    let suite =
        || PeerLocation::File("node_modules/@modelcontextprotocol/conformance/dist/index.js");
    let everything =
        || PeerLocation::File("node_modules/@modelcontextprotocol/server-everything/dist/index.js");
    let npm = |name, variable, location| Peer { name, variable, source: Source::Npm, location };
    let pip = |name, variable| Peer { name, variable, source: Source::Pip, location: python() };
    vec![
        npm("node", "SHIKIRI_PEER_NODE", node()),
        npm("conformance", "SHIKIRI_PEER_CONFORMANCE", suite()),
        npm("conformance-old", "SHIKIRI_PEER_CONFORMANCE_OLD", suite()),
        npm("typescript", "SHIKIRI_PEER_TS", PeerLocation::Folder),
        npm("everything", "SHIKIRI_PEER_EVERYTHING", everything()),
        npm("claude", "SHIKIRI_PEER_CLAUDE", claude()),
        npm("claude-old", "SHIKIRI_PEER_CLAUDE_OLD", claude()),
        pip("python", "SHIKIRI_PEER_PYTHON"),
        pip("python-old", "SHIKIRI_PEER_PYTHON_OLD"),
        pip("schemathesis", "SHIKIRI_PEER_SCHEMATHESIS"),
        pip("nagger", "SHIKIRI_PEER_NAGGER"),
    ]
}

/// The package with Claude Code's program for this machine.
fn native() -> String {
    let libc = if cfg!(target_env = "musl") { "-musl" } else { "" };
    format!("claude-code-linux-{}{libc}", processor())
}

/// This machine's processor in Node's naming.
fn processor() -> &'static str {
    match ARCH {
        "x86_64" => "x64",
        "aarch64" => "arm64",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_version_is_a_range_or_an_address() {
        for peer in all() {
            let wanted = peer.wanted().unwrap();
            assert!(wanted.contains(|letter: char| letter.is_ascii_digit()), "{}", peer.name);
            assert!(!wanted.contains(['^', '~', '*', '>', '<']), "{}: {wanted}", peer.name);
            assert!(!wanted.contains("://") && !wanted.contains("latest"), "{wanted}");
        }
    }

    #[test]
    fn every_list_belongs_to_a_peer() {
        let folder = workspace_root().join("crates/shikiri/tests/peers");
        let has_list = |folder: &Path| {
            [Source::Npm, Source::Pip].iter().any(|source| folder.join(source.list()).exists())
        };
        let mut there: Vec<_> = fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap())
            .filter(|entry| has_list(&entry.path()))
            .map(|entry| entry.file_name().into_string().unwrap())
            .collect();
        there.sort();
        let mut known: Vec<_> = all().iter().map(|peer| peer.name.to_owned()).collect();
        known.sort();
        assert_eq!(there, known);
    }
}
