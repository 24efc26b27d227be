//! The store's address: `sqlite:PATH` or `postgres://…`. Printing it never shows the password.

use std::fmt;
use std::path::{Path, PathBuf};

use shikiri_hook::configured_store::StoreAddress;

use crate::exit::Failure;

const FORMS: &str = "write sqlite:PATH or postgres://user:password@host:5432/database";

#[derive(Clone, PartialEq, Eq)]
pub enum StoreUrl {
    Sqlite(PathBuf),
    Postgres(String),
}

impl StoreUrl {
    /// Relative paths start from `folder`. Errors name `source` but not the text, because a
    /// mistyped URL may contain a password.
    pub fn parse(text: &str, folder: &Path, source: &str) -> Result<Self, Failure> {
        let refused = |why: &str| Failure::usage(format!("{source}: {why}"), FORMS);
        match StoreAddress::parse(text, folder) {
            Ok(StoreAddress::Postgres) => Ok(Self::Postgres(text.to_owned())),
            Ok(StoreAddress::Sqlite(path)) => Ok(Self::Sqlite(path)),
            Err(why) => Err(refused(why)),
        }
    }

    /// Refuses an address that can never work. Checked when the store is opened, so that the doctor
    /// can report it.
    pub fn check(&self) -> Result<(), Failure> {
        match self {
            Self::Postgres(url) if !is_plausible_address(url) => {
                Err(Failure::usage("the store URL's host or port cannot be read", FORMS))
            }
            _ => Ok(()),
        }
    }
}

/// Whether the part after the credentials looks like `host[:port]`; the driver parses the rest.
fn is_plausible_address(url: &str) -> bool {
    let rest = url.split_once("://").map_or("", |(_, rest)| rest);
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let host_part = authority.rsplit_once('@').map_or(authority, |(_, host_part)| host_part);
    let port = match host_part.rsplit_once(':') {
        // The colons of an IPv6 address in brackets.
        Some((_, port)) if !port.ends_with(']') => Some(port),
        _ => None,
    };
    !url.contains(|c: char| c.is_control() || c.is_whitespace())
        && port.is_none_or(|port| port.parse::<u16>().is_ok())
}

impl fmt::Display for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let url = match self {
            Self::Sqlite(path) => return write!(f, "sqlite:{}", path.display()),
            Self::Postgres(url) => url,
        };
        let rest = url.split_once("://").map_or("", |(_, rest)| rest);
        // Host and database only: a password may be before the `@` or after a `?`.
        let head = rest.split(['?', '#']).next().unwrap_or_default();
        match head.rsplit_once('@') {
            Some((_, host_part)) => write!(f, "postgres://{host_part}"),
            // The password itself contains a `?` or `#`.
            None if rest.contains('@') => f.write_str("postgres://…"),
            None => write!(f, "postgres://{head}"),
        }
    }
}

impl fmt::Debug for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<StoreUrl, Failure> {
        StoreUrl::parse(text, Path::new("/here"), "--store")
    }

    #[test]
    fn both_forms_are_read_and_shown_without_secrets() {
        for (text, shown) in [
            ("sqlite:a/b.db", "sqlite:/here/a/b.db"),
            ("sqlite:/a/b.db", "sqlite:/a/b.db"),
            ("sqlite:///a/b.db", "sqlite:/a/b.db"),
            ("postgres://me:hunter2@db:5432/x?password=hunter2", "postgres://db:5432/x"),
            ("postgresql://me:hun@ter2@db/x", "postgres://db/x"),
            ("postgres://db/x", "postgres://db/x"),
            ("postgres:///x?host=/run", "postgres:///x"),
            ("postgres://me@[::1]/x", "postgres://[::1]/x"),
            ("postgres://me@[::1]:5432/x", "postgres://[::1]:5432/x"),
            ("postgres://me:hunter2?#@db/x", "postgres://…"),
        ] {
            let url = parse(text).unwrap();
            assert_eq!(url.check().is_ok(), !text.contains("?#"));
            assert_eq!(format!("{url}"), shown);
            assert_eq!(format!("{url:?}"), shown);
        }
    }

    #[test]
    fn other_forms_are_a_usage_error_that_names_both_and_repeats_nothing() {
        for text in [
            "",
            "sqlite:",
            "mysql://me:hunter2@db/x",
            "me:hunter2@db",
            "/a/b.db",
            "postgres://me:hunter2@db:port/x",
            "postgres://me:hunter2@db /x",
            "postgres://me:hunter2?#@db/x",
        ] {
            let failure = parse(text).and_then(|url| url.check()).unwrap_err();
            assert_eq!(failure.code(), 2);
            let line = failure.to_string();
            assert!(line.contains("sqlite:PATH") && line.contains("postgres://"), "{line}");
            assert!(!line.contains("hunter2"), "{line}");
        }
    }
}
