//! The path of a file inside a workspace, checked before it is used.

use std::fmt;

use shikiri_runtime::AppError;

/// The longest part of a path that file systems allow.
const MAX_NAME: usize = 255;
const MAX_PATH: usize = 1_024;

/// A relative path in parts joined by `/`, without `.` and `..`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilePath(String);

impl FilePath {
    pub fn parse(text: &str) -> Result<Self, AppError> {
        match invalid_reason(text) {
            None => Ok(Self(text.to_owned())),
            Some(reason) => Err(AppError::invalid("path", reason)),
        }
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The last part.
    pub fn name(&self) -> &str {
        self.0.rsplit('/').next().unwrap_or(&self.0)
    }

    /// The parent folders, outermost first: `a`, `a/b` for `a/b/c`.
    pub(super) fn folders(&self) -> impl DoubleEndedIterator<Item = &str> {
        self.0.match_indices('/').map(|(at, _)| &self.0[..at])
    }
}

fn invalid_reason(text: &str) -> Option<&'static str> {
    let is_bad = |c: char| c.is_control() || c == '\\';
    if text.len() > MAX_PATH {
        return Some("must have at most 1,024 bytes");
    }
    if text.contains(is_bad) {
        return Some("must hold no control characters and no backslash");
    }
    text.split('/').find_map(|part| match part {
        "" => Some("must be relative, with no empty part and no slash at its ends"),
        "." | ".." => Some("must not hold `.` or `..`"),
        _ if part.len() > MAX_NAME => Some("must have parts of at most 255 bytes each"),
        _ => None,
    })
}

impl fmt::Display for FilePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_stay_inside_are_taken() {
        let longest = format!("{0}/{0}/{0}/{0}", "a".repeat(255));
        for good in ["a", "a/b c/d.txt", "報告/月次.md", "...", "..a", ".env", &longest] {
            assert_eq!(FilePath::parse(good).unwrap().as_str(), good);
        }
        let path = FilePath::parse("a/b/c").unwrap();
        assert_eq!(path.folders().collect::<Vec<_>>(), ["a", "a/b"]);
        assert_eq!(path.name(), "c");
    }

    #[test]
    fn names_that_mean_another_place_or_hide_something_are_refused() {
        let long_name = "長".repeat(86);
        let long_path = "a/".repeat(512) + "a";
        for bad in [
            "",
            "/",
            "/etc/passwd",
            "a/",
            "a//b",
            ".",
            "..",
            "../a",
            "a/..",
            "a/../b",
            "a/./b",
            "a\\b",
            "..\\a",
            "a\0b",
            "a\nb",
            "\u{7f}",
            "a\u{85}",
            &long_name,
            &long_path,
        ] {
            assert!(FilePath::parse(bad).is_err(), "{bad:?}");
        }
    }
}
