//! A `sessions.json` of the bridge that lanes come from, found in the data folder at start: taken in
//! once and kept under another name.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use shikiri_app::App;
use shikiri_model::ids::TenantId;

use crate::config::Config;
use crate::exit::{Exit, Failure};

const NAME: &str = "sessions.json";
/// More is no file of chats; it is refused by what reads it.
const MAX_BYTES: u64 = 17 * 1024 * 1024;

/// Takes the file in, if there is one. A file that cannot be taken stays where it is, and is told of:
/// it is in nobody's way.
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
    match app.import_lanes(&TenantId::local(), &text).await {
        Ok(imported) => match put_aside(&path) {
            Ok(kept) => tracing::info!(
                lanes = imported.lanes.len(),
                left_out = imported.left_out.len(),
                "imported {}, kept as {}",
                path.display(),
                kept.display()
            ),
            // Another process that started at the same time has done so.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => tracing::warn!("{} cannot be renamed: {error}", path.display()),
        },
        Err(error) => tracing::warn!("{} was not imported: {error}", path.display()),
    }
}

/// What a file holds, up to a bound.
fn read(path: &Path) -> io::Result<String> {
    let mut bytes = Vec::new();
    File::open(path)?.take(MAX_BYTES).read_to_end(&mut bytes)?;
    String::from_utf8(bytes).map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "is not UTF-8"))
}

/// For a file that somebody named.
pub(crate) fn read_named(path: &Path) -> Result<String, Failure> {
    read(path).map_err(|error| {
        let what = format!("cannot read {}: {error}", path.display());
        match error.kind() {
            io::ErrorKind::NotFound => Failure::new(Exit::NotFound, what, "name another file"),
            _ => Failure::new(Exit::Failed, what, "name a sessions.json that can be read"),
        }
    })
}

/// Under a name that nothing has: an older copy is not overwritten.
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
