//! `cargo xtask fresh`: proves that a user who has only Rust can clone the repository and see the
//! demo. HEAD is cloned, so that a file missing from a commit is noticed. HOME is empty and the
//! environment is cleared, so that nothing of this machine helps.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use anyhow::{Context, Result, ensure};
use clap::Args;

use crate::cargo::{cargo, run as run_command, workspace_root};
use crate::scratch::ScratchFolder;

/// Variables that a bare machine may have too: how to reach the network.
const PASSED_ON: [&str; 8] = [
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
    "http_proxy",
    "https_proxy",
    "no_proxy",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
];

#[derive(Args)]
pub(crate) struct Arguments {
    /// Build in DIR/fresh and keep it, instead of in a temporary folder: quicker the next time
    #[arg(long, value_name = "DIR")]
    target_dir: Option<PathBuf>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    prove(arguments.target_dir.as_deref())
}

/// Clones HEAD, builds it in release mode and plays the demo, as in the README.
pub(crate) fn prove(target_dir: Option<&Path>) -> Result<()> {
    let scratch = ScratchFolder::make("fresh")?;
    let clone = scratch.path().join("shikiri");
    clone_head(&clone)?;
    let home = scratch.path().join("home");
    fs::create_dir(&home)?;
    let target = match target_dir {
        // Separate from the workspace's own files: in a shared build folder, cargo distinguishes
        // two clones only by file times and would take the clone's code for ours afterwards.
        Some(chosen) => std::path::absolute(chosen)?.join("fresh"),
        None => scratch.path().join("target"),
    };
    let mut demo = Command::new("cargo");
    demo.args(["run", "--release", "--", "demo", "--once"]).current_dir(&clone);
    demo.env_clear().envs(bare_environment()?).env("HOME", &home).env("CARGO_TARGET_DIR", target);
    run_command(&mut demo)?;
    println!("fresh: a clone of HEAD built and played the demo");
    Ok(())
}

fn clone_head(clone: &Path) -> Result<()> {
    let root = workspace_root();
    let git = || {
        let mut command = Command::new("git");
        command.current_dir(&root);
        command
    };
    let head = git().args(["rev-parse", "--verify", "--quiet", "HEAD"]).output()?;
    ensure!(head.status.success(), "there is no commit to clone yet");
    let changes = git().args(["status", "--porcelain"]).output()?;
    if !changes.stdout.is_empty() {
        println!("NOTE: there are changes that are not committed; only HEAD is proved");
    }
    // A real copy: a clone from a path would share its objects through hard links.
    run_command(git().args(["clone", "--quiet", "--no-hardlinks", "."]).arg(clone))
}

fn bare_environment() -> Result<Vec<(OsString, OsString)>> {
    let cargo_home = rust_home("CARGO_HOME", ".cargo")?;
    let mut path = vec![cargo_home.join("bin")];
    if !path[0].join("cargo").exists() {
        // Rust comes from the distribution, without rustup.
        let program = PathBuf::from(cargo([]).get_program());
        path.extend(program.parent().map(Path::to_path_buf));
    }
    path.extend(["/usr/bin", "/bin", "/usr/sbin", "/sbin"].map(PathBuf::from));
    let mut environment = vec![
        ("PATH".into(), env::join_paths(path)?),
        ("CARGO_HOME".into(), cargo_home.into()),
        ("RUSTUP_HOME".into(), rust_home("RUSTUP_HOME", ".rustup")?.into()),
    ];
    for name in PASSED_ON {
        environment.extend(env::var_os(name).map(|value| (name.into(), value)));
    }
    Ok(environment)
}

/// Part of the Rust installation, which a bare machine has too; by default in HOME.
fn rust_home(variable: &str, default: &str) -> Result<PathBuf> {
    if let Some(set) = env::var_os(variable) {
        return Ok(set.into());
    }
    // As cargo and rustup do: without HOME, the system's folder of this user.
    let home = env::home_dir().with_context(|| format!("neither {variable} nor HOME is set"))?;
    Ok(home.join(default))
}
