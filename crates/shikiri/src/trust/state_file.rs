//! Changes the file with a person's agreements, whole and under a lock.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;

use shikiri_hook::trust_file::{Agreements, TrustFile, TrustFileError, VERSION};

/// Changes the agreements under a lock.
pub(super) fn change<T>(
    file: &TrustFile,
    change: impl FnOnce(&mut Agreements) -> T,
) -> Result<T, TrustFileError> {
    let folder = file.path.parent().unwrap_or(Path::new("/"));
    let made = DirBuilder::new().recursive(true).mode(0o700).create(folder);
    made.map_err(|error| file.io(error))?;
    let _lock = lock(file).map_err(|error| file.io(error))?;
    let mut agreements = file.read()?;
    let changed = change(&mut agreements);
    agreements.version = VERSION;
    write(file, &agreements, folder).map_err(|error| file.io(error))?;
    Ok(changed)
}

/// The lock is held until the file is dropped.
fn lock(file: &TrustFile) -> io::Result<File> {
    let path = file.path.with_extension("lock");
    let file = OpenOptions::new().create(true).append(true).mode(0o600).open(path)?;
    file.lock()?;
    Ok(file)
}

fn write(target: &TrustFile, agreements: &Agreements, folder: &Path) -> io::Result<()> {
    let mut file = tempfile::Builder::new().prefix("trust-").tempfile_in(folder)?;
    serde_json::to_writer_pretty(&mut file, agreements)?;
    writeln!(file)?;
    file.as_file().sync_all()?;
    // A temporary file has mode 0600 from its start.
    file.persist(&target.path).map_err(|error| error.error)?;
    fs::File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use shikiri_hook::trust_file::FolderAgreement;

    use super::*;

    fn trust_file(folder: &tempfile::TempDir) -> TrustFile {
        TrustFile { path: folder.path().join("state/shikiri/trust.json") }
    }

    #[test]
    fn agreements_of_many_processes_are_all_kept() {
        let folder = tempfile::tempdir().unwrap();
        let file = trust_file(&folder);
        assert!(file.read().unwrap().folders.is_empty());
        std::thread::scope(|scope| {
            for number in 0..16 {
                let file = &file;
                scope.spawn(move || {
                    let add = |all: &mut Agreements| {
                        all.folders.insert(number.to_string(), FolderAgreement::new())
                    };
                    change(file, add).unwrap();
                });
            }
        });
        assert_eq!(file.read().unwrap().folders.len(), 16);
        let mode = fs::metadata(&file.path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn file_that_others_can_write_damaged_or_newer_is_not_believed() {
        let folder = tempfile::tempdir().unwrap();
        let file = trust_file(&folder);
        change(&file, |_| ()).unwrap();
        let mode = |mode| fs::set_permissions(&file.path, fs::Permissions::from_mode(mode));
        mode(0o666).unwrap();
        assert!(matches!(file.read(), Err(TrustFileError::NotOurs { .. })));
        mode(0o600).unwrap();
        fs::write(&file.path, "{").unwrap();
        assert!(matches!(file.read(), Err(TrustFileError::Damaged { .. })));
        fs::write(&file.path, r#"{"version": 2, "folders": {}}"#).unwrap();
        assert!(matches!(file.read(), Err(TrustFileError::Newer { .. })));
    }
}
