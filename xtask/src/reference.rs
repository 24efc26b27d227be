//! `cargo xtask reference`: writes every page of `docs/reference` from the program. The tests that
//! make the pages compare them otherwise.

use anyhow::Result;

use crate::cargo::{cargo, run as run_command};

/// Their names begin so.
const TESTS: &str = "the_reference_has";

pub(crate) fn run() -> Result<()> {
    let mut tests = cargo(["test", "--package", "shikiri", "--lib", "--test", "it", TESTS]);
    run_command(tests.env("SHIKIRI_WRITE_REFERENCE", "1"))
}
