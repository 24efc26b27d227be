//! The tools that some checks need and that not every Rust brings.

use std::process::Command;

use anyhow::{Result, bail};

use crate::apt;
use crate::cargo::{cargo, in_ci, run, succeeds};
use crate::report::Outcome;

/// Does the work of a part of the toolchain. Without it the check is skipped with advice: rustup's
/// minimal profile has neither rustfmt nor clippy. With `CI=true` that is an error.
pub(crate) fn with_component(
    component: &str,
    work: impl FnOnce() -> Result<()>,
) -> Result<Outcome> {
    if succeeds(&mut cargo([subcommand(component), "--version"])) {
        return work().map(|()| Outcome::Passed);
    }
    let why = format!("{component} is not installed; `rustup component add rustfmt clippy`");
    if in_ci() {
        bail!("{why} (CI=true forbids skipping)");
    }
    Ok(Outcome::Skipped(why))
}

/// Under which name cargo knows it.
fn subcommand(component: &str) -> &str {
    component.strip_prefix("rust").unwrap_or(component)
}

/// Has tmux, in which tests type at the host's terminal; installs it if we are root on Debian.
pub(crate) fn provide_tmux() -> Result<Outcome> {
    provide("tmux", || succeeds(Command::new("tmux").arg("-V")))
}

/// Has a Chrome, in which tests ask chat pages of their own; installs Debian's if we are root there.
pub(crate) fn provide_chromium() -> Result<Outcome> {
    let named = std::env::var_os("SHIKIRI_CHROME_BIN");
    provide("chromium", || {
        let usual = ["google-chrome", "google-chrome-stable", "chromium", "chromium-browser"];
        let programs = named.iter().cloned().chain(usual.map(Into::into));
        programs.into_iter().any(|program| succeeds(Command::new(program).arg("--version")))
    })
}

/// Has a display for the window in which tests log in; installs it in the same way.
pub(crate) fn provide_xvfb() -> Result<Outcome> {
    provide("xvfb", || succeeds(Command::new("Xvfb").arg("-help")))
}

fn provide(package: &str, is_there: impl Fn() -> bool) -> Result<Outcome> {
    if !is_there() && apt::may_install() {
        run(&mut apt::update())?;
        run(&mut apt::install(package))?;
    }
    if is_there() {
        return Ok(Outcome::Passed);
    }
    let why =
        format!("{package} is not installed; install the package `{package}`, then run this again");
    if in_ci() {
        bail!("{why} (CI=true forbids skipping)");
    }
    Ok(Outcome::Skipped(why))
}

/// Does what needs cargo-deny. Optional, also with `CI=true`: it is no part of Rust, takes minutes
/// to install, and judges the crates of others, which a change of ours rarely touches.
pub(crate) fn with_deny(work: impl FnOnce() -> Result<Outcome>) -> Result<Outcome> {
    if succeeds(&mut cargo(["deny", "--version"])) {
        return work();
    }
    let why = "no failure, not even in CI: cargo-deny is no part of Rust and is not installed; \
               `cargo install cargo-deny --locked`";
    Ok(Outcome::Optional(why.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_installed_is_used() {
        assert_eq!(subcommand("rustfmt"), "fmt");
        assert_eq!(subcommand("clippy"), "clippy");
    }

    #[test]
    fn a_missing_component_is_named_with_the_way_to_get_it() {
        let worked = || panic!("it is not there to work with");
        let told = match with_component("no-such-tool", worked) {
            Ok(Outcome::Skipped(why)) if !in_ci() => why,
            Err(error) if in_ci() => error.to_string(),
            _ => panic!("neither a skip nor, in CI, a failure"),
        };
        assert!(
            told.starts_with("no-such-tool is not installed; `rustup component add "),
            "{told}"
        );
    }
}
