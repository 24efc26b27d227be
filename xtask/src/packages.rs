//! `cargo xtask packages`: what users install, installed as they do, without a network, into empty
//! folders; then the demo is played from there.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use std::{env, fs};

use anyhow::{Context, Result, ensure};

use crate::cargo::{cargo, in_ci, run as run_command, succeeds, target_folder};
use crate::dist::{Packages, Programs};
use crate::report::Outcome;
use crate::scratch::ScratchFolder;

/// From the package to the end of the demo.
const LONGEST: Duration = Duration::from_secs(60);

pub(crate) fn run() -> Result<()> {
    let programs = ["--package", "shikiri", "--package", "shikiri-hook", "--bins"];
    run_command(cargo(["build"]).args(programs))?;
    install_and_play()
}

/// The same with the programs that the tests were built with.
pub(crate) fn run_after_build() -> Result<Outcome> {
    let venv = succeeds(Command::new("python3").args(["-c", "import ensurepip, venv"]));
    let npm = succeeds(Command::new("npm").arg("--version"));
    let why = match (venv, npm) {
        (true, true) => return install_and_play().map(|()| Outcome::Passed),
        (false, _) => "Python's venv is not installed; install the package `python3-venv`",
        (true, false) => "npm is not installed; install the package `npm`",
    };
    ensure!(!in_ci(), "{why} (CI=true forbids skipping)");
    Ok(Outcome::Skipped(format!("{why}, then `cargo xtask packages`")))
}

fn install_and_play() -> Result<()> {
    let scratch = ScratchFolder::make("packages")?;
    let programs = Programs::built_before(&target_folder().join("debug"))?;
    let packages = programs.pack(scratch.path())?;
    from_wheel(&packages, scratch.path())?;
    from_npm(&packages, scratch.path())
}

fn from_wheel(packages: &Packages, scratch: &Path) -> Result<()> {
    let environment = scratch.join("venv");
    let mut venv = Command::new("python3");
    run_command(venv.args(["-m", "venv"]).arg(&environment)).context("wheels need python3-venv")?;
    let started = Instant::now();
    let mut pip = Command::new(environment.join("bin/pip"));
    pip.args(["install", "--quiet", "--no-index", "--disable-pip-version-check"]);
    run_command(pip.arg(&packages.wheel))?;
    play("wheel", &environment.join("bin"), scratch, started)
}

fn from_npm(packages: &Packages, scratch: &Path) -> Result<()> {
    let folder = scratch.join("npm-project");
    fs::create_dir(&folder)?;
    fs::write(folder.join("package.json"), "{\"private\": true}")?;
    let started = Instant::now();
    let mut npm = Command::new("npm");
    npm.args(["install", "--offline", "--no-audit", "--no-fund", "--loglevel=error"]);
    run_command(npm.args(&packages.npm).current_dir(&folder).env("HOME", scratch))?;
    play("npm package", &folder.join("node_modules/.bin"), scratch, started)
}

/// Plays the demo and checks that hooks would get the native program.
fn play(package: &str, bin: &Path, scratch: &Path, started: Instant) -> Result<()> {
    let home = scratch.join(format!("home of the {package}"));
    fs::create_dir(&home)?;
    let shikiri = |arguments: &[&str]| -> Result<()> {
        let mut path = vec![bin.to_owned()];
        path.extend(env::split_paths(&env::var_os("PATH").unwrap_or_default()));
        let mut command = Command::new(bin.join("shikiri"));
        command.env_clear().env("PATH", env::join_paths(path)?).env("HOME", &home);
        run_command(command.args(arguments).current_dir(&home))
    };
    shikiri(&["demo", "--once", "--fast"])?;
    let took = started.elapsed();
    ensure!(took <= LONGEST, "{package}: {took:?} from the file to the end of the demo");
    shikiri(&["hooks", "install"])?;
    let settings = fs::read_to_string(home.join(".claude/settings.json"))?;
    let hook = hook_program(&settings).context("hooks install names no program")?;
    // A name is looked up on the PATH, which begins with this folder.
    let hook = bin.join(hook);
    let head = fs::read(&hook).with_context(|| format!("no {}", hook.display()))?;
    ensure!(head.starts_with(b"\x7fELF"), "{} is not the native program", hook.display());
    println!("packages: the {package} is installed and plays the demo in {} s", took.as_secs());
    Ok(())
}

/// The first program that the settings have started.
fn hook_program(settings: &str) -> Option<PathBuf> {
    let command = settings.split("\"command\": \"").nth(1)?;
    let program = command.split(['"', ' ']).next()?;
    Some(PathBuf::from(program.replace("\\\"", "")))
}
