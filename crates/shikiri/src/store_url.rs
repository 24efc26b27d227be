//! Which store: `sqlite:PATH` or `postgres://…`. Printing one never shows its password.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::exit::Failure;

const FORMS: &str = "write sqlite:PATH or postgres://user:password@host:5432/database";

#[derive(Clone, PartialEq, Eq)]
pub enum StoreUrl {
    Sqlite(PathBuf),
    Postgres(String),
}

impl StoreUrl {
    /// Relative paths start from `folder`; `source` is named in the complaint. The text itself is
    /// not: a mistyped URL may hold a password as well.
    pub fn parse(text: &str, folder: &Path, source: &str) -> Result<Self, Failure> {
        let refused = |why: &str| Failure::usage(format!("{source}: {why}"), FORMS);
        if text.starts_with("postgres://") || text.starts_with("postgresql://") {
            return Ok(Self::Postgres(text.to_owned()));
        }
        let Some(path) = text.strip_prefix("sqlite:") else {
            return Err(refused("this is not a store URL"));
        };
        let path = path.strip_prefix("//").unwrap_or(path);
        if path.is_empty() || path.contains('\0') {
            return Err(refused("the path is missing"));
        }
        Ok(Self::Sqlite(folder.join(path)))
    }
}

impl fmt::Display for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let url = match self {
            Self::Sqlite(path) => return write!(f, "sqlite:{}", path.display()),
            Self::Postgres(url) => url,
        };
        let rest = url.split_once("://").map_or("", |(_, rest)| rest);
        // Host and database only: a password may stand before the `@` or after a `?`.
        let head = rest.split(['?', '#']).next().unwrap_or_default();
        match head.rsplit_once('@') {
            Some((_, place)) => write!(f, "postgres://{place}"),
            // The password itself holds a `?` or `#`.
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
            ("postgres://me:hunter2?#@db/x", "postgres://…"),
        ] {
            let url = parse(text).unwrap();
            assert_eq!(format!("{url}"), shown);
            assert_eq!(format!("{url:?}"), shown);
        }
    }

    #[test]
    fn other_forms_are_a_usage_error_that_names_both_and_repeats_nothing() {
        for text in ["", "sqlite:", "mysql://me:hunter2@db/x", "me:hunter2@db", "/a/b.db"] {
            let failure = parse(text).unwrap_err();
            assert_eq!(failure.code(), 2);
            let line = failure.to_string();
            assert!(line.contains("sqlite:PATH") && line.contains("postgres://"), "{line}");
            assert!(!line.contains("hunter2"), "{line}");
        }
    }
}
