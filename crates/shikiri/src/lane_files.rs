//! Imports the bridge's `sessions.json` from the data folder at start, once. The file is then kept
//! under another name.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use shikiri_app::App;
use shikiri_model::ids::TenantId;

use crate::config::Config;
use crate::exit::{Exit, Failure};

const NAME: &str = "sessions.json";
/// A larger file is refused by the parser.
const MAX_BYTES: u64 = 17 * 1024 * 1024;

/// Imports the file, if there is one. A file that cannot be imported stays where it is and is
/// reported; the start goes on.
pub(crate) async fn take_in(app: &App, config: &Config) {
    let path = config.data_folder().join(NAME);
    let text = match read(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return,
        Err(error) => {
            tracing::warn!("{} was not imported: {error}", path.display());
            return;
        }
    };
    match app.lanes.import_lanes(&TenantId::local(), &text).await {
        Ok(imported) => match put_aside(&path) {
            Ok(kept) => tracing::info!(
                lanes = imported.lanes.len(),
                left_out = imported.left_out.len(),
                "imported {}, kept as {}",
                path.display(),
                kept.display()
            ),
            // Another process that started at the same time has moved it.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => tracing::warn!("{} cannot be renamed: {error}", path.display()),
        },
        Err(error) => tracing::warn!("{} was not imported: {error}", path.display()),
    }
}

/// The content of a file, up to a limit.
fn read(path: &Path) -> io::Result<String> {
    let mut bytes = Vec::new();
    File::open(path)?.take(MAX_BYTES).read_to_end(&mut bytes)?;
    String::from_utf8(bytes).map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "is not UTF-8"))
}

/// Reads a file that was named on the command line.
pub(crate) fn read_named(path: &Path) -> Result<String, Failure> {
    read(path).map_err(|error| {
        let what = format!("cannot read {}: {error}", path.display());
        match error.kind() {
            io::ErrorKind::NotFound => Failure::new(Exit::NotFound, what, "name another file"),
            _ => Failure::new(Exit::Failed, what, "name a sessions.json that can be read"),
        }
    })
}

/// Moves it to an unused name, so that an older copy is not overwritten.
fn put_aside(path: &Path) -> io::Result<PathBuf> {
    let named = |number: u32| {
        let end = if number == 1 { String::new() } else { format!("-{number}") };
        path.with_file_name(format!("{NAME}.imported{end}"))
    };
    for kept in (1..10_000).map(named) {
        match fs::hard_link(path, &kept) {
            Ok(()) => {
                fs::remove_file(path)?;
                return Ok(kept);
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    Err(io::Error::other("there are too many copies"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_older_copy_is_not_overwritten() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(NAME);
        for (text, kept) in [("1", "sessions.json.imported"), ("2", "sessions.json.imported-2")] {
            fs::write(&path, text).unwrap();
            assert_eq!(put_aside(&path).unwrap(), folder.path().join(kept));
            assert_eq!(fs::read_to_string(folder.path().join(kept)).unwrap(), text);
            assert!(!path.exists());
        }
        assert_eq!(put_aside(&path).unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
