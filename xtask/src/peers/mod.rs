//! Third-party programs that tests use: clients, servers and the conformance suite. They are
//! installed once for all clones, and tests find them through environment variables.
//! `cargo xtask peers` prints these for tests that are run by hand: `eval "$(cargo xtask peers)"`.

pub(crate) mod cache;
mod install;
mod wanted;

use std::cell::LazyCell;
use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, bail, ensure};
use cache::Cache;
use install::Python;
use wanted::{Peer, Source};

use crate::cargo::in_ci;
use crate::report::Outcome;

#[derive(Default)]
pub(crate) struct Peers {
    found: Vec<(&'static str, PathBuf)>,
    /// The reasons why peers are missing, each with its peers.
    missing: Vec<(String, Vec<&'static str>)>,
}

/// `cargo xtask peers`: stdout is for the shell, everything else goes to stderr.
pub(crate) fn run() -> Result<()> {
    let peers = Peers::for_tests();
    for (variable, path) in &peers.found {
        println!("export {variable}={}", quoted(path));
    }
    ensure!(peers.missing.is_empty(), "{}", peers.summary());
    Ok(())
}

impl Peers {
    /// For tests: installs what is missing.
    pub(crate) fn for_tests() -> Peers {
        let cache = Cache::of_this_user();
        // Looked up only when something has to be installed, and only once.
        let npm = LazyCell::new(install::npm);
        let python = LazyCell::new(Python::find_or_install);
        let mut peers = Peers::default();
        for peer in wanted::all() {
            let path = given(&peer).unwrap_or_else(|| match peer.source {
                Source::Npm => provide(&cache, &peer, "", || npm.clone()),
                Source::Pip => {
                    let python = python.as_ref().map_err(String::clone)?;
                    provide(&cache, &peer, &python.identity, || Ok(python.program.clone()))
                }
            });
            peers.add(peer.variable, path);
        }
        peers
    }

    /// For commands that use them if possible: those that are installed already.
    pub(crate) fn if_installed() -> Peers {
        let cache = Cache::of_this_user();
        let python = LazyCell::new(Python::find);
        let mut peers = Peers::default();
        for peer in wanted::all() {
            let identity = match peer.source {
                Source::Npm => "",
                Source::Pip => python.as_ref().map_or("", |python| python.identity.as_str()),
            };
            let absent = || Err("not installed; `cargo xtask peers` does it".to_owned());
            let path = given(&peer).unwrap_or_else(|| provide(&cache, &peer, identity, absent));
            peers.add(peer.variable, path);
        }
        if !peers.missing.is_empty() {
            println!("NOTE: {}", peers.summary());
        }
        peers
    }

    fn add(&mut self, variable: &'static str, path: Result<PathBuf, String>) {
        match path {
            Ok(path) => self.found.push((variable, path)),
            Err(why) => match self.missing.iter_mut().find(|(known, _)| *known == why) {
                Some((_, variables)) => variables.push(variable),
                None => self.missing.push((why, vec![variable])),
            },
        }
    }

    /// The outcome of a step that needs all of them: with `CI=true` a missing one is an error.
    pub(crate) fn outcome(&self) -> Result<Outcome> {
        if self.missing.is_empty() {
            return Ok(Outcome::Passed);
        }
        if in_ci() {
            bail!("{} (CI=true forbids skipping)", self.summary());
        }
        Ok(Outcome::Skipped(self.summary()))
    }

    /// Sets the variables of the available peers for a child.
    pub(crate) fn export<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        command.envs(self.found.iter().map(|(variable, path)| (variable, path)))
    }

    fn summary(&self) -> String {
        let part =
            |(why, variables): &(String, Vec<_>)| format!("no {}: {why}", variables.join(", "));
        self.missing.iter().map(part).collect::<Vec<_>>().join("; ")
    }
}

/// The caller's own choice for this peer.
fn given(peer: &Peer) -> Option<Result<PathBuf, String>> {
    let path = PathBuf::from(env::var_os(peer.variable)?);
    if path.exists() {
        return Some(Ok(path));
    }
    Some(Err(format!("{} is not there, though the variable names it", path.display())))
}

/// The path of a peer: from the cache, and installed now if it is missing and there is an
/// installer.
fn provide(
    cache: &Cache,
    peer: &Peer,
    identity: &str,
    installer: impl FnOnce() -> Result<PathBuf, String>,
) -> Result<PathBuf, String> {
    let wanted = peer.wanted().map_err(|error| format!("{error:#}"))?;
    let entry = cache.entry(peer.name, &[&wanted, identity]);
    if !entry.is_dir() {
        let installer = installer()?;
        cache
            .make(&entry, |folder| install::into(folder, peer, &installer))
            .map_err(|error| format!("{error:#}"))?;
    }
    Ok(peer.location.inside(&entry))
}

/// Quotes a path as one word for a shell.
fn quoted(path: &Path) -> String {
    format!("'{}'", path.to_string_lossy().replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_told_once_with_all_that_it_concerns() {
        let mut peers = Peers::default();
        peers.add("NODE", Err("no npm".to_owned()));
        peers.add("PYTHON", Err("no python".to_owned()));
        peers.add("CLAUDE", Err("no npm".to_owned()));
        peers.add("TS", Ok("/ts".into()));
        assert_eq!(peers.summary(), "no NODE, CLAUDE: no npm; no PYTHON: no python");
    }

    #[test]
    fn a_missing_peer_is_skipped_loudly_and_in_ci_a_failure() {
        let mut peers = Peers::default();
        assert!(matches!(peers.outcome(), Ok(Outcome::Passed)));
        peers.add("NODE", Err("no npm".to_owned()));
        match peers.outcome() {
            Ok(Outcome::Skipped(why)) if !in_ci() => assert_eq!(why, "no NODE: no npm"),
            Err(error) if in_ci() => assert!(error.to_string().starts_with("no NODE: no npm")),
            _ => panic!("neither a skip nor, in CI, a failure"),
        }
    }

    #[test]
    fn children_learn_of_what_is_there() {
        let mut peers = Peers::default();
        peers.add("NODE", Ok("/node".into()));
        peers.add("TS", Err("no npm".to_owned()));
        let mut command = Command::new("true");
        peers.export(&mut command);
        let variables: Vec<_> = command.get_envs().collect();
        assert_eq!(variables, [("NODE".as_ref(), Some("/node".as_ref()))]);
    }

    #[test]
    fn a_shell_reads_back_any_path() {
        assert_eq!(quoted(Path::new("/a b/it's $HOME")), r"'/a b/it'\''s $HOME'");
    }
}
