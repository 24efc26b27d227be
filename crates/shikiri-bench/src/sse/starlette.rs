//! The peer: a Starlette server that writes each event to SQLite before it sends it, in a Python
//! environment made for the occasion.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

const SCRIPT: &str = include_str!("starlette.py");

pub(super) struct Starlette {
    pub(super) python: PathBuf,
    pub(super) script: PathBuf,
}

impl Starlette {
    pub(super) fn provide(scratch: &Path) -> Result<Self> {
        let environment = scratch.join("python");
        let script = scratch.join("starlette_server.py");
        fs::write(&script, SCRIPT)?;
        run(Command::new("python3").args(["-m", "venv"]).arg(&environment))?;
        let install = ["-m", "pip", "install", "--quiet", "starlette", "uvicorn"];
        let python = environment.join("bin/python");
        run(Command::new(&python).args(install))?;
        // Compiled helpers that make uvicorn faster, where they can be had.
        let helpers = ["-m", "pip", "install", "--quiet", "uvloop", "httptools"];
        if let Err(error) = run(Command::new(&python).args(helpers)) {
            eprintln!("Starlette runs without uvloop and httptools: {error:#}");
        }
        Ok(Self { python, script })
    }
}

fn run(command: &mut Command) -> Result<()> {
    let output = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot start {:?}", command.get_program()))?;
    let told = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?}: {}", told.trim());
    Ok(())
}
