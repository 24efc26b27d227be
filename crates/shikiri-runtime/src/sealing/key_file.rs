//! The file with the sealing key. It is created as a whole or not at all, for its owner only.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use shikiri_files::private_file::{self, PrivateFileError};

use super::SealingError;
use crate::runtime::random;

/// The most that is read. A key has 65 bytes.
const MAX_BYTES: u64 = 1_024;

/// The file in which earlier versions kept a key for logins. Its key is used for everything.
const EARLIER_NAME: &str = "host.key";

#[derive(Clone)]
pub(super) struct KeyFile(PathBuf);

impl KeyFile {
    pub(super) fn new(path: PathBuf) -> Self {
        Self(path)
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    /// None if there is no file.
    pub(super) async fn read(&self) -> Result<Option<[u8; 32]>, SealingError> {
        self.run_blocking(|path| match read(path)? {
            Some(key) => Ok(Some(key)),
            None => read(&path.with_file_name(EARLIER_NAME)),
        })
        .await
    }

    pub(super) async fn read_or_make(&self) -> Result<[u8; 32], SealingError> {
        if let Some(key) = self.run_blocking(read).await? {
            return Ok(key);
        }
        let fresh = random().map_err(|_| SealingError::NotSealed)?;
        let name: [u8; 8] = random().map_err(|_| SealingError::NotSealed)?;
        self.run_blocking(move |path| {
            let key = read(&path.with_file_name(EARLIER_NAME))?.unwrap_or(fresh);
            make(path, &key, &name).map_err(|error| unusable(path, &error))?;
            // Another process may have been first: the file decides.
            read(path)?.ok_or_else(|| unusable(path, &io::ErrorKind::NotFound.into()))
        })
        .await
    }

    /// Keeps other processes out until the guard is dropped.
    pub(super) async fn lock(&self) -> Result<Box<dyn Send>, SealingError> {
        self.read_or_make().await?;
        self.run_blocking(|path| {
            let file = File::open(path).map_err(|error| unusable(path, &error))?;
            file.lock().map_err(|error| unusable(path, &error))?;
            Ok(Box::new(file) as Box<dyn Send>)
        })
        .await
    }

    /// Runs work that waits for the disk or for another process on a blocking thread.
    async fn run_blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Path) -> Result<T, SealingError> + Send + 'static,
    ) -> Result<T, SealingError> {
        let path = self.0.clone();
        let done = tokio::task::spawn_blocking(move || work(&path)).await;
        done.unwrap_or_else(|error| Err(unusable(&self.0, &io::Error::other(error))))
    }
}

fn read(path: &Path) -> Result<Option<[u8; 32]>, SealingError> {
    let opened = private_file::open(path).map_err(|error| match error {
        PrivateFileError::OpenToOthers(_) => SealingError::Exposed(path.to_owned()),
        // Another user who planted the file could open what its key seals.
        error => SealingError::Unusable { path: path.to_owned(), cause: error.to_string() },
    })?;
    let Some(file) = opened else { return Ok(None) };
    let mut text = String::new();
    file.take(MAX_BYTES).read_to_string(&mut text).map_err(|error| unusable(path, &error))?;
    let key = parse(text.trim()).ok_or_else(|| SealingError::NotAKey(path.to_owned()))?;
    Ok(Some(key))
}

fn parse(text: &str) -> Option<[u8; 32]> {
    let mut key = [0; 32];
    hex::decode_to_slice(text, &mut key).ok()?;
    Some(key)
}

/// Written under another name first, so that half a key is never read.
fn make(path: &Path, key: &[u8; 32], name: &[u8; 8]) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let scratch = path.with_extension(format!("new-{}", hex::encode(name)));
    let made = (|| {
        let mut file =
            OpenOptions::new().write(true).create_new(true).mode(0o600).open(&scratch)?;
        writeln!(file, "{}", hex::encode(key))?;
        file.sync_all()?;
        match fs::hard_link(&scratch, path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            linked => linked,
        }
    })();
    let _ = fs::remove_file(&scratch);
    made?;
    File::open(folder)?.sync_all()
}

fn unusable(path: &Path, error: &io::Error) -> SealingError {
    SealingError::Unusable { path: path.to_owned(), cause: error.to_string() }
}
