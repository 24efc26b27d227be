//! Finds the PostgreSQL that is installed here. Debian keeps the server's programs outside
//! `PATH`, one folder per version, hence the third place to look.

use std::ffi::OsStr;
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::{env, fs};

const PROGRAMS: [&str; 3] = ["initdb", "pg_ctl", "postgres"];

/// A folder that holds `initdb`, `pg_ctl` and `postgres`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Installed {
    bin: PathBuf,
}

impl Installed {
    /// Looks in `SHIKIRI_PG_BIN`, in `PATH`, then in `/usr/lib/postgresql/*/bin`, newest first.
    /// `SHIKIRI_PG_BIN` is an order: if it is set and wrong, nothing else is tried.
    pub fn find() -> Option<Installed> {
        find_in(
            env::var_os("SHIKIRI_PG_BIN").as_deref(),
            env::var_os("PATH").as_deref(),
            Path::new("/usr/lib/postgresql"),
        )
    }

    /// For a test that needs PostgreSQL: `None` means "return now", and has been said on stderr.
    ///
    /// # Panics
    /// With `CI=true`, where a test that silently does nothing would be a lie.
    pub fn find_or_skip(test: &str) -> Option<Installed> {
        let found = Installed::find();
        if found.is_none() {
            let ci = env::var_os("CI").is_some_and(|value| value == "true");
            assert!(!ci, "{test}: PostgreSQL is not installed, and CI=true forbids skipping");
            // Not eprintln: the test harness would swallow it.
            let _ = writeln!(
                io::stderr(),
                "SKIPPED {test}: PostgreSQL is not installed; `cargo xtask test` tells how"
            );
        }
        found
    }

    /// The folder of the programs.
    pub fn bin(&self) -> &Path {
        &self.bin
    }

    /// One of the programs in that folder.
    pub fn program(&self, name: &str) -> PathBuf {
        self.bin.join(name)
    }
}

fn find_in(
    ordered: Option<&OsStr>,
    path: Option<&OsStr>,
    versions_root: &Path,
) -> Option<Installed> {
    if let Some(ordered) = ordered.filter(|value| !value.is_empty()) {
        return complete(Path::new(ordered));
    }
    let in_path = path.and_then(|path| env::split_paths(path).find_map(|folder| complete(&folder)));
    in_path.or_else(|| versions(versions_root).iter().find_map(|bin| complete(bin)))
}

/// The folder if it has all programs. Links are followed first: PostgreSQL finds its other files
/// next to the real program.
fn complete(folder: &Path) -> Option<Installed> {
    let bin = folder.join(PROGRAMS[0]).canonicalize().ok()?.parent()?.to_path_buf();
    PROGRAMS.iter().all(|name| is_program(&bin.join(name))).then_some(Installed { bin })
}

fn is_program(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
}

fn versions(root: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(root) else { return Vec::new() };
    let mut found: Vec<(Vec<u32>, PathBuf)> = entries
        .flatten()
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            let version = name.split('.').map(str::parse).collect::<Result<_, _>>().ok()?;
            Some((version, entry.path().join("bin")))
        })
        .collect();
    found.sort();
    found.into_iter().rev().map(|(_, bin)| bin).collect()
}

#[cfg(test)]
#[path = "installed_tests.rs"]
mod tests;
