//! A copy of the conventions in JSON, which parses much faster than TOML and is read for every tool
//! call. The copy names the state of the file that it was made from and is ignored for any other
//! state. Without a valid copy, the file itself is read.

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::time::Duration;

use shikiri_model::hook::Conventions;
use shikiri_model::time::Timestamp;

use crate::allowed_files;
use crate::conventions_file::{self, ConventionsError};

/// Larger copies take too long to read.
const MOST_BYTES: u64 = 4 * 1024 * 1024;

/// A file that was changed just now may change again without a new time stamp, because file systems
/// have coarse clocks.
const SETTLED: Duration = Duration::from_secs(2);

/// Like [`conventions_file::load`], from the copy if it is valid.
pub(crate) fn load(path: &Path, now: Timestamp) -> Result<Conventions, ConventionsError> {
    let Ok(found) = fs::metadata(path) else { return conventions_file::load(path) };
    let (stamp, copy) = (stamp(&found), path.with_extension("copy"));
    if let Some(conventions) = read(&copy, &stamp) {
        return Ok(conventions);
    }
    let conventions = conventions_file::load(path)?;
    let changed_ms = found.mtime().max(found.ctime()).saturating_mul(1_000);
    let age_ms = now.as_millis().saturating_sub(changed_ms);
    if u128::try_from(age_ms).is_ok_and(|age| age > SETTLED.as_millis()) {
        // The next hook tries again.
        let _ = write_copy(&copy, &stamp, &conventions);
    }
    Ok(conventions)
}

/// A line that identifies the state of the file and the version of this program.
fn stamp(found: &fs::Metadata) -> String {
    format!(
        "{} {} {} {} {}.{} {}.{}\n",
        env!("CARGO_PKG_VERSION"),
        found.dev(),
        found.ino(),
        found.len(),
        found.mtime(),
        found.mtime_nsec(),
        found.ctime(),
        found.ctime_nsec()
    )
}

fn read(copy: &Path, stamp: &str) -> Option<Conventions> {
    let text = allowed_files::read_start(copy, MOST_BYTES).ok()?;
    serde_json::from_slice(text.strip_prefix(stamp.as_bytes())?).ok()
}

/// Replaces the copy atomically. Only its owner can read it, as the file may be private.
fn write_copy(copy: &Path, stamp: &str, conventions: &Conventions) -> io::Result<()> {
    let mut text = stamp.as_bytes().to_owned();
    serde_json::to_writer(&mut text, conventions)?;
    if text.len() as u64 > MOST_BYTES {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    let scratch = copy.with_extension(format!("copy-{}", std::process::id()));
    let made = (fs::OpenOptions::new().write(true).create_new(true).mode(0o600))
        .open(&scratch)
        .and_then(|mut file| file.write_all(&text))
        .and_then(|()| fs::rename(&scratch, copy));
    if made.is_err() {
        let _ = fs::remove_file(&scratch);
    }
    made
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    const TEXT: &str = "[main]\ntext = \"短く\"\n[roles.tester]\ntext = \"only tests\"\n\
        delivery = \"block\"\n[[rules]]\nname = \"r\"\ntools = [\"Edit\"]\nseverity = \"warn\"\n\
        message = \"m\"\ntoken_threshold = 5\n";

    fn place() -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("conventions.toml");
        fs::write(&path, TEXT).unwrap();
        (folder, path)
    }

    fn later(path: &Path, seconds: i64) -> Timestamp {
        Timestamp::from_millis((fs::metadata(path).unwrap().ctime() + seconds) * 1_000)
    }

    #[test]
    fn a_copy_says_what_the_file_says_until_the_file_changes() {
        let (_folder, path) = place();
        let expected = conventions_file::parse(TEXT).unwrap();
        assert_eq!(load(&path, later(&path, 60)).unwrap(), expected);
        let copy = path.with_extension("copy");
        assert_eq!(read(&copy, &stamp(&fs::metadata(&path).unwrap())), Some(expected.clone()));
        // The second read uses the copy.
        let changed = fs::read_to_string(&copy).unwrap().replace("only tests", "no tests");
        fs::write(&copy, changed).unwrap();
        assert_eq!(load(&path, later(&path, 60)).unwrap().roles["tester"].text, "no tests");

        fs::write(&path, TEXT.replace("only", "just")).unwrap();
        assert_eq!(load(&path, later(&path, 60)).unwrap().roles["tester"].text, "just tests");
        fs::write(&path, "[main\n").unwrap();
        assert!(load(&path, later(&path, 60)).unwrap_err().to_string().contains("line 1"));
        fs::remove_file(&path).unwrap();
        assert_eq!(load(&path, Timestamp::default()).unwrap(), Conventions::default());
    }

    #[test]
    fn a_copy_is_for_its_owner_and_found_under_any_name() {
        use std::ffi::OsStr;
        use std::os::unix::ffi::OsStrExt as _;
        use std::os::unix::fs::PermissionsExt as _;
        let (folder, path) = place();
        let odd = folder.path().join(OsStr::from_bytes(b"\xff")).join("conventions.toml");
        fs::create_dir(odd.parent().unwrap()).unwrap();
        fs::rename(&path, &odd).unwrap();
        fs::set_permissions(&odd, fs::Permissions::from_mode(0o600)).unwrap();
        load(&odd, later(&odd, 60)).unwrap();
        let made = fs::metadata(odd.with_extension("copy")).unwrap();
        assert_eq!(made.permissions().mode() & 0o777, 0o600);
        let names = fs::read_dir(odd.parent().unwrap()).unwrap().count();
        assert_eq!(names, 2, "no scraps are left");
    }

    #[test]
    fn a_copy_that_would_not_be_read_whole_is_not_made() {
        let (_folder, path) = place();
        let many = "[[rules]]\nmessage=\"\"\n".repeat(48_000);
        fs::write(&path, many).unwrap();
        let conventions = load(&path, later(&path, 60)).unwrap();
        let copied = serde_json::to_vec(&conventions).unwrap().len() as u64;
        assert!(copied > MOST_BYTES, "{copied} bytes");
        assert!(!path.with_extension("copy").exists());
    }

    #[test]
    fn a_file_that_just_changed_is_not_copied_and_a_broken_copy_is_not_believed() {
        let (_folder, path) = place();
        load(&path, later(&path, 1)).unwrap();
        let copy = path.with_extension("copy");
        assert!(!copy.exists());
        let stamp = stamp(&fs::metadata(&path).unwrap());
        fs::write(&copy, format!("{stamp}{{\"main\":")).unwrap();
        let expected = conventions_file::parse(TEXT).unwrap();
        assert_eq!(load(&path, later(&path, 1)).unwrap(), expected);
    }
}
