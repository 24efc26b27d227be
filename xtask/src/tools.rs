//! Tools of some checks that not every Rust installation has.

use std::process::Command;

use anyhow::{Result, bail};

use crate::apt;
use crate::cargo::{cargo, in_ci, run, succeeds};
use crate::report::Outcome;

/// Runs a check with a component of the toolchain. If it is missing, the check is skipped with
/// advice: rustup's minimal profile has neither rustfmt nor clippy. With `CI=true` that is an
/// error.
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

/// The component's name as a cargo command.
fn subcommand(component: &str) -> &str {
    component.strip_prefix("rust").unwrap_or(component)
}

/// Provides tmux, in which tests type at the host's terminal; installs it if this is root on
/// Debian.
pub(crate) fn provide_tmux() -> Result<Outcome> {
    provide("tmux", || succeeds(Command::new("tmux").arg("-V")))
}

/// Provides a Chrome, in which tests ask their own chat pages; installs Debian's if this is root
/// there.
pub(crate) fn provide_chromium() -> Result<Outcome> {
    let named = std::env::var_os("SHIKIRI_CHROME_BIN");
    provide("chromium", || {
        let usual = ["google-chrome", "google-chrome-stable", "chromium", "chromium-browser"];
        let programs = named.iter().cloned().chain(usual.map(Into::into));
        programs.into_iter().any(|program| succeeds(Command::new(program).arg("--version")))
    })
}

/// Provides a display for the login window of tests; installs it in the same way.
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
