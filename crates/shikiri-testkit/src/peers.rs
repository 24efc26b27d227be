//! Third-party programs that tests use. `cargo xtask test` installs them and names each in a
//! variable; `eval "$(cargo xtask peers)"` does the same for tests that are run by hand.
//!
//! | variable | what it names |
//! |---|---|
//! | `SHIKIRI_PEER_NODE` | Node 22, which runs the suites and the TypeScript peers |
//! | `SHIKIRI_PEER_CONFORMANCE`, `…_OLD` | the conformance suites, files for that Node |
//! | `SHIKIRI_PEER_TS` | a folder whose `node_modules` has the TypeScript SDKs |
//! | `SHIKIRI_PEER_EVERYTHING` | the reference server, a file for that Node |
//! | `SHIKIRI_PEER_CLAUDE`, `…_OLD` | Claude Code, two programs |
//! | `SHIKIRI_PEER_PYTHON`, `…_OLD` | two Pythons, each with its own SDK |
//! | `SHIKIRI_PEER_SCHEMATHESIS` | a Python with schemathesis |

use std::ffi::OsString;
use std::path::PathBuf;

/// The path of a peer, by the name of its variable. Prints a notice if there is none, and fails
/// with `CI=true`.
pub fn peer(variable: &str) -> Option<PathBuf> {
    place(variable, std::env::var_os(variable))
}

fn place(variable: &str, value: Option<OsString>) -> Option<PathBuf> {
    let Some(value) = value else {
        crate::skip(variable, "not set; `cargo xtask peers` installs the peers and names them");
        return None;
    };
    let place = PathBuf::from(value);
    assert!(place.exists(), "{variable}={} is not there", place.display());
    Some(place)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_named_peer_is_given() {
        let here = std::env::current_exe().unwrap();
        assert_eq!(place("PEER", Some(here.clone().into())), Some(here));
    }

    #[test]
    #[should_panic(expected = "PEER=/no/such/file is not there")]
    fn a_variable_that_names_nothing_fails_the_test() {
        place("PEER", Some("/no/such/file".into()));
    }

    #[test]
    fn a_missing_peer_is_skipped_and_in_ci_a_failure() {
        let told = std::panic::catch_unwind(|| place("PEER", None));
        assert_eq!(told.is_err(), crate::in_ci());
        assert_eq!(told.unwrap_or_default(), None);
    }
}
