//! The packages for npm: a launcher, and one with this platform's programs.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::VERSION;
use crate::cargo::{run as run_command, workspace_root};

const LICENCES: [&str; 2] = ["LICENSE-MIT", "LICENSE-APACHE"];

pub(super) fn pack(programs: &Path, target: &str, out: &Path) -> Result<[PathBuf; 2]> {
    let (os, cpu) = match target.split_once('-') {
        Some(("x86_64", rest)) if rest.contains("linux") => ("linux", "x64"),
        Some(("aarch64", rest)) if rest.contains("linux") => ("linux", "arm64"),
        _ => bail!("there is no npm package for {target}"),
    };
    let platform = format!("{os}-{cpu}");
    let sources = workspace_root().join("packaging/npm");
    let fill_in = |manifest: &Path| -> Result<String> {
        let text = fs::read_to_string(manifest).context("cannot read a package.json")?;
        let text = text.replace("VERSION", VERSION).replace("PLATFORM", &platform);
        Ok(text.replace("\"OS\"", &format!("\"{os}\"")).replace("\"CPU\"", &format!("\"{cpu}\"")))
    };

    let launcher = Package::new(out, "launcher")?;
    launcher.write("package.json", &fill_in(&sources.join("launcher/package.json"))?)?;
    launcher.copy(&sources.join("launcher"), &["bin/shikiri.js"])?;
    launcher.copy(&workspace_root(), &["README.md"])?;
    launcher.copy(programs, &LICENCES)?;

    let native = Package::new(out, "platform")?;
    native.write("package.json", &fill_in(&sources.join("platform/package.json"))?)?;
    native.copy(programs, &LICENCES)?;
    native.copy(programs, &["THIRD-PARTY-NOTICES"])?;
    for program in ["shikiri", "shikiri-hook"] {
        native.copy_as(&programs.join(program), &format!("bin/{program}"))?;
    }

    let launcher = launcher.pack(out, &format!("shikiri-{VERSION}.tgz"))?;
    Ok([launcher, native.pack(out, &format!("shikiri-{platform}-{VERSION}.tgz"))?])
}

/// A folder `package`, as npm wants it in its archives.
struct Package(PathBuf);

impl Package {
    fn new(out: &Path, name: &str) -> Result<Package> {
        let folder = out.join("npm").join(name);
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(folder.join("package/bin"))?;
        Ok(Package(folder))
    }

    fn write(&self, name: &str, text: &str) -> Result<()> {
        fs::write(self.0.join("package").join(name), text).context("cannot write a package")
    }

    fn copy(&self, from: &Path, names: &[&str]) -> Result<()> {
        names.iter().try_for_each(|name| self.copy_as(&from.join(name), name))
    }

    fn copy_as(&self, file: &Path, name: &str) -> Result<()> {
        let copied = fs::copy(file, self.0.join("package").join(name));
        copied.with_context(|| format!("cannot copy {}", file.display()))?;
        Ok(())
    }

    fn pack(&self, out: &Path, name: &str) -> Result<PathBuf> {
        let archive = out.join(name);
        let mut tar = Command::new("tar");
        tar.args(["--create", "--gzip", "--sort=name", "--owner=0", "--group=0", "--file"]);
        run_command(tar.arg(&archive).arg("package").current_dir(&self.0))?;
        Ok(archive)
    }
}
