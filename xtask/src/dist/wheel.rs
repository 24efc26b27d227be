//! The Python wheel, which holds the programs themselves.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::VERSION;
use crate::cargo::{run as run_command, workspace_root};

pub(super) fn pack(programs: &Path, target: &str, out: &Path) -> Result<PathBuf> {
    let platform = platform(target)?;
    let mut python = Command::new("python3");
    python.arg(workspace_root().join("packaging/python/wheel.py")).arg(programs);
    run_command(python.args([VERSION, platform]).arg(out)).context("a wheel needs python3")?;
    Ok(out.join(format!("shikiri-{VERSION}-py3-none-{platform}.whl")))
}

/// The platforms on which pip installs the wheel. Static programs run with any C library.
fn platform(target: &str) -> Result<&'static str> {
    Ok(match target {
        "x86_64-unknown-linux-gnu" | "x86_64-unknown-linux-musl" => {
            "manylinux_2_17_x86_64.manylinux2014_x86_64.musllinux_1_1_x86_64"
        }
        "aarch64-unknown-linux-gnu" | "aarch64-unknown-linux-musl" => {
            "manylinux_2_17_aarch64.manylinux2014_aarch64.musllinux_1_1_aarch64"
        }
        other => bail!("there is no wheel for {other}"),
    })
}
