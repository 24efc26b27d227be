//! `cargo xtask dist`: the programs for users, each one file without library dependencies, packed as
//! an archive, a wheel and packages for npm in `dist`. `packaging/README.md` tells them apart.
//!
//! If Rust's musl target and a C compiler for it are installed, they are used. Otherwise this
//! machine's C library is linked in, with one limit: host names are resolved by files and DNS only.
//! Other sources of nsswitch.conf need the same C library on the target machine.

use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use clap::Args;

use crate::cargo::{cargo, run as run_command, succeeds, target_folder, workspace_root};
use crate::notices;

mod npm;
mod wheel;

pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Further files of the archive.
const PAPERS: [&str; 4] = ["README.md", "CHANGELOG.md", "LICENSE-MIT", "LICENSE-APACHE"];

/// The licences of the linked crates.
const NOTICES: &str = "THIRD-PARTY-NOTICES";

/// A program is one file, loaded at its link address: no relocation is needed at start, and a hook
/// starts at every tool call.
const STATIC: &str = "-C target-feature=+crt-static -C relocation-model=static";

/// SQLite without features that a hook does not use, and with small initial allocations. A hook
/// spends most of its time on touching code and memory for the first time.
const HOOK_SQLITE: &str = "-USQLITE_ENABLE_FTS3 -USQLITE_ENABLE_FTS3_PARENTHESIS \
    -USQLITE_ENABLE_FTS5 -USQLITE_ENABLE_RTREE -USQLITE_ENABLE_DBSTAT_VTAB \
    -USQLITE_ENABLE_STAT4 -USQLITE_ENABLE_API_ARMOR -USQLITE_ENABLE_COLUMN_METADATA \
    -USQLITE_SOUNDEX -DSQLITE_OMIT_JSON -DSQLITE_OMIT_LOAD_EXTENSION \
    -DSQLITE_OMIT_SHARED_CACHE -DSQLITE_OMIT_DESERIALIZE -DSQLITE_DEFAULT_MEMSTATUS=0 \
    -DSQLITE_DEFAULT_PCACHE_INITSZ=0 -DSQLITE_DEFAULT_LOOKASIDE=512,24";

/// Reserves memory in smaller steps, and without huge pages. `shikiri` fills part of its first
/// reservation, which takes a third of the time of `shikiri hook`. The first byte of a huge page
/// fills two megabytes.
const MIMALLOC: &str = "-DMI_DEFAULT_ARENA_RESERVE=65536L -DMI_NO_THP";

/// Built programs, for a benchmark of what users install.
pub(crate) struct Programs {
    /// The folder with `shikiri` and `shikiri-hook`.
    pub(crate) folder: PathBuf,
    target: String,
}

/// What was packed.
pub(crate) struct Packages {
    pub(crate) archive: PathBuf,
    pub(crate) wheel: PathBuf,
    /// The launcher and the package with the programs.
    pub(crate) npm: [PathBuf; 2],
}

#[derive(Args)]
pub(crate) struct Arguments {
    /// Pack the programs in this folder, instead of building them
    #[arg(long, value_name = "FOLDER")]
    programs: Option<PathBuf>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let programs = match &arguments.programs {
        Some(folder) => Programs::built_before(folder)?,
        None => Programs::build()?,
    };
    programs.prove()?;
    let packages = programs.pack(&workspace_root().join("dist"))?;
    let [launcher, platform] = &packages.npm;
    for package in [&packages.archive, &packages.wheel, launcher, platform] {
        println!("dist: {}", package.display());
    }
    Ok(())
}

/// One archive with everything, and its checksum.
fn archive(folder: &Path) -> Result<PathBuf> {
    let (parent, name) = (folder.parent(), folder.file_name());
    let (parent, name) = parent.zip(name).context("the programs' folder has no name")?;
    let archive = format!("{}.tar.gz", name.to_string_lossy());
    let mut tar = Command::new("tar");
    tar.args(["--create", "--gzip", "--sort=name", "--owner=0", "--group=0", "--numeric-owner"]);
    run_command(tar.args(["--file", &archive]).arg(name).current_dir(parent))?;
    let sum = Command::new("sha256sum").arg(&archive).current_dir(parent).output()?;
    ensure!(sum.status.success(), "sha256sum failed");
    fs::write(parent.join(format!("{archive}.sha256")), &sum.stdout)?;
    Ok(parent.join(archive))
}

impl Programs {
    pub(crate) fn build() -> Result<Programs> {
        let target = target()?;
        let folder = workspace_root().join("dist").join(name(&target));
        fs::create_dir_all(&folder)?;
        let mut shikiri = build("dist", "shikiri", &target);
        run_command(shikiri.env(format!("CFLAGS_{}", target.replace('-', "_")), MIMALLOC))?;
        let mut hook = build("dist-hook", "shikiri-hook", &target);
        run_command(hook.env("LIBSQLITE3_FLAGS", HOOK_SQLITE))?;
        for (profile, program) in [("dist", "shikiri"), ("dist-hook", "shikiri-hook")] {
            let built = target_folder().join(&target).join(profile).join(program);
            let copy = folder.join(program);
            // Never overwrite a running program.
            let _ = fs::remove_file(&copy);
            fs::copy(&built, &copy).with_context(|| format!("no {}", built.display()))?;
            ensure!(is_static(&copy)?, "{program} still needs libraries");
        }
        Ok(Programs { folder, target })
    }

    /// Those of a plain `cargo build`, or of another machine. They may need libraries.
    pub(crate) fn built_before(built: &Path) -> Result<Programs> {
        let target = target()?;
        let folder = workspace_root().join("dist").join(name(&target));
        fs::create_dir_all(&folder)?;
        for program in ["shikiri", "shikiri-hook"] {
            let copy = folder.join(program);
            let _ = fs::remove_file(&copy);
            let copied = fs::copy(built.join(program), &copy);
            copied.with_context(|| format!("no {program} in {}", built.display()))?;
        }
        Ok(Programs { folder, target })
    }

    /// Everything that users may install, in the folder `out`.
    pub(crate) fn pack(&self, out: &Path) -> Result<Packages> {
        for paper in PAPERS {
            let copied = fs::copy(workspace_root().join(paper), self.folder.join(paper));
            copied.with_context(|| format!("cannot copy {paper}"))?;
        }
        let notices = notices::third_party_notices(&self.target)?;
        fs::write(self.folder.join(NOTICES), notices).context("cannot write the notices")?;
        Ok(Packages {
            archive: archive(&self.folder)?,
            wheel: wheel::pack(&self.folder, &self.target, out)?,
            npm: npm::pack(&self.folder, &self.target, out)?,
        })
    }

    /// The smallest possible processes, in one folder: `empty` as usually built, `empty-static`
    /// built as the hook is.
    pub(crate) fn empty(&self) -> Result<PathBuf> {
        let folder = target_folder().join(&self.target).join("dist-hook");
        let source = workspace_root().join("crates/shikiri-bench/peers/empty.rs");
        let build = |name: &str, flags: &[&str]| {
            let mut rustc = Command::new("rustc");
            rustc.args(["--edition=2024", "-o"]).arg(folder.join(name)).arg(&source);
            run_command(rustc.args(flags))
        };
        build("empty", &["-Copt-level=3"])?;
        let mut as_the_hook = vec!["--target", &self.target, "-Copt-level=s", "-Clto"];
        as_the_hook.extend(["-Ccodegen-units=1", "-Cpanic=abort", "-Cstrip=symbols"]);
        as_the_hook.extend(STATIC.split(' '));
        build("empty-static", &as_the_hook)?;
        Ok(folder)
    }

    /// Checks that they start, and that the hook stores an event and answers with nothing.
    fn prove(&self) -> Result<()> {
        run_command(Command::new(self.folder.join("shikiri")).arg("--version"))?;
        let project = std::env::temp_dir().join(format!("shikiri-dist-{}", std::process::id()));
        fs::create_dir(&project)?;
        let answered = self.answer(&project);
        let kept = project.join(".shikiri/state.db").exists();
        let tidied = self.tidy(&project);
        fs::remove_dir_all(&project)?;
        ensure!(answered? && kept, "the hook did not keep an event");
        ensure!(tidied?, "the hook did not tidy up: it does not see its words");
        Ok(())
    }

    /// Whether the hook's write-ahead log is merged into the database on request.
    fn tidy(&self, project: &Path) -> Result<bool> {
        let database = project.join(".shikiri/state.db");
        let log = || fs::metadata(project.join(".shikiri/state.db-wal")).map_or(0, |log| log.len());
        // Enough for the log to get shorter.
        for _ in 0..8 {
            ensure!(self.answer(project)?, "the hook did not answer");
        }
        let before = log();
        let mut tidy = Command::new(self.folder.join("shikiri-hook"));
        tidy.arg("--tidy").arg(&database).stdin(Stdio::null());
        run_command(&mut tidy)?;
        Ok(log() < before)
    }

    fn answer(&self, project: &Path) -> Result<bool> {
        let mut hook = Command::new(self.folder.join("shikiri-hook"))
            .env("CLAUDE_PROJECT_DIR", project)
            .stdin(Stdio::piped())
            .spawn()?;
        let event = br#"{"session_id":"s","hook_event_name":"Stop"}"#;
        hook.stdin.take().context("no input")?.write_all(event)?;
        Ok(hook.wait()?.success())
    }
}

fn name(target: &str) -> String {
    format!("shikiri-{VERSION}-{target}")
}

fn build(profile: &str, package: &str, target: &str) -> Command {
    // The target is named even if it is this machine's, so that build scripts and macros are built
    // without these flags.
    let mut command = cargo(["build", "--profile", profile, "--package", package]);
    command.args(["--bin", package, "--target", target]).env("RUSTFLAGS", STATIC);
    command
}

fn target() -> Result<String> {
    let version_info = Command::new("rustc").arg("-vV").output().context("cannot run rustc")?;
    let version_info = String::from_utf8_lossy(&version_info.stdout).into_owned();
    let host = version_info.lines().find_map(|line| line.strip_prefix("host: "));
    let host = host.context("rustc does not tell this machine's target")?;
    let musl = host.replace("-gnu", "-musl");
    let installed = Command::new("rustup").args(["target", "list", "--installed"]).output();
    let installed = installed.is_ok_and(|list| {
        String::from_utf8_lossy(&list.stdout).lines().any(|installed| installed == musl)
    });
    let has_compiler = succeeds(Command::new("musl-gcc").arg("--version"));
    Ok(if installed && has_compiler { musl } else { host.to_owned() })
}

/// Whether it needs no libraries: an ELF file without an interpreter.
fn is_static(program: &Path) -> Result<bool> {
    const INTERPRETER: u32 = 3;
    let file = File::open(program)?;
    let mut header = [0; 64];
    file.read_exact_at(&mut header, 0)?;
    ensure!(header.starts_with(b"\x7fELF\x02\x01"), "{} is no program", program.display());
    let word = |at: usize| u16::from_le_bytes([header[at], header[at + 1]]);
    let mut start = [0; 8];
    start.copy_from_slice(&header[32..40]);
    let (start, size, count) = (u64::from_le_bytes(start), u64::from(word(54)), word(56));
    for index in 0..u64::from(count) {
        let mut kind = [0; 4];
        file.read_exact_at(&mut kind, start + index * size)?;
        if u32::from_le_bytes(kind) == INTERPRETER {
            return Ok(false);
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_loads_libraries_is_not_static() {
        assert!(!is_static(&std::env::current_exe().unwrap()).unwrap());
        assert!(is_static(Path::new("/proc/self/status")).is_err());
    }

    /// The value of a line such as `name = "value"`.
    fn value_of<'a>(text: &'a str, name: &str) -> &'a str {
        let line = text.lines().find(|line| line.starts_with(&format!("{name} = "))).unwrap();
        line.split('"').nth(1).unwrap()
    }

    #[test]
    fn binstall_looks_for_the_archives_that_are_made() {
        for package in ["shikiri", "shikiri-hook"] {
            let manifest = workspace_root().join("crates").join(package).join("Cargo.toml");
            let manifest = fs::read_to_string(manifest).unwrap();
            let filled = |name: &str| {
                let value = value_of(&manifest, name).replace("{ version }", VERSION);
                value.replace("{ target }", "some-target").replace("{ bin }", package)
            };
            let folder = name("some-target");
            assert_eq!(
                filled("pkg-url"),
                format!("{{ repo }}/releases/download/v{VERSION}/{folder}.tar.gz")
            );
            assert_eq!(filled("bin-dir"), format!("{folder}/{package}"));
        }
    }

    #[test]
    fn the_registry_of_mcp_servers_is_told_of_the_packages_that_are_made() {
        let read = |path: &str| -> serde_json::Value {
            let text = fs::read_to_string(workspace_root().join(path)).unwrap();
            serde_json::from_str(&text).unwrap()
        };
        let (server, launcher) = (read("server.json"), read("packaging/npm/launcher/package.json"));
        assert_eq!(server["version"], VERSION);
        assert_eq!(server["name"], launcher["mcpName"], "the registry compares them");
        let packages = server["packages"].as_array().unwrap();
        for package in packages {
            assert_eq!(package["version"], VERSION);
            assert_eq!(package["identifier"], launcher["name"], "npm and PyPI have one name");
        }
        let kinds: Vec<_> = packages.iter().map(|package| &package["registryType"]).collect();
        assert_eq!(kinds, ["npm", "pypi"]);
    }
}
