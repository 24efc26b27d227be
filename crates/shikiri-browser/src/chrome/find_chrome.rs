//! Finds a Chrome that is installed on this machine. None is downloaded.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use crate::error::BrowserError;

const NAMES: [&str; 5] =
    ["google-chrome", "google-chrome-stable", "chromium", "chromium-browser", "chrome"];
const MAC_APPS: [&str; 2] = [
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
];

/// The configured program, or else the first known one on the PATH.
pub(super) fn program(named: Option<&Path>) -> Result<PathBuf, BrowserError> {
    if let Some(named) = named {
        return match is_program(named) {
            true => Ok(named.to_owned()),
            false => Err(BrowserError::unavailable(format!(
                "SHIKIRI_CHROME_BIN: {} is no program; name a Chrome or Chromium",
                named.display()
            ))),
        };
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let on_path = std::env::split_paths(&path)
        .flat_map(|folder| NAMES.map(|name| folder.join(name)))
        .filter(|_| !cfg!(target_os = "macos"));
    let apps = MAC_APPS.iter().map(PathBuf::from).filter(|_| cfg!(target_os = "macos"));
    on_path.chain(apps).find(|file| is_program(file)).ok_or_else(|| {
        BrowserError::unavailable(
            "no Chrome or Chromium was found on the PATH; install one (Debian: `apt-get install \
             chromium`), name it in SHIKIRI_CHROME_BIN, or name a running one in \
             SHIKIRI_BROWSER_URL",
        )
    })
}

fn is_program(path: &Path) -> bool {
    path.metadata().is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_named_program_has_to_be_one() {
        assert_eq!(program(Some(Path::new("/bin/sh"))).unwrap(), Path::new("/bin/sh"));
        for wrong in ["/", "/etc/passwd", "/no/such/chrome"] {
            let error = program(Some(Path::new(wrong))).unwrap_err().to_string();
            assert!(error.starts_with(&format!("SHIKIRI_CHROME_BIN: {wrong} is no")), "{error}");
        }
    }
}
