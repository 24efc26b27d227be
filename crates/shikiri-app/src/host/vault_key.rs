//! The file with the key that seals logins: made whole or not at all, for its owner only.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

use crate::app::random;

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
    pub(super) async fn read(&self) -> Result<Option<[u8; 32]>, String> {
        self.apart(read).await
    }

    pub(super) async fn read_or_make(&self) -> Result<[u8; 32], String> {
        if let Some(key) = self.read().await? {
            return Ok(key);
        }
        let fresh = random().map_err(|error| error.to_string())?;
        let name: [u8; 8] = random().map_err(|error| error.to_string())?;
        self.apart(move |path| {
            make(path, &fresh, &name).map_err(|error| unusable(path, &error))?;
            // Another process may have been first: the file decides.
            read(path)?.ok_or_else(|| format!("{} disappeared while it was made", path.display()))
        })
        .await
    }

    /// Until the guard is dropped, no other process passes here.
    pub(super) async fn lock(&self) -> Result<Box<dyn Send>, String> {
        self.read_or_make().await?;
        self.apart(|path| {
            let file = File::open(path).map_err(|error| unusable(path, &error))?;
            flock(&file, FlockOperation::LockExclusive)
                .map_err(|error| unusable(path, &error.into()))?;
            Ok(Box::new(file) as Box<dyn Send>)
        })
        .await
    }

    /// Waits for the disk, or for another process, where nobody else is held up.
    async fn apart<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Path) -> Result<T, String> + Send + 'static,
    ) -> Result<T, String> {
        let path = self.0.clone();
        let done = tokio::task::spawn_blocking(move || work(&path)).await;
        done.map_err(|error| error.to_string())?
    }
}

fn read(path: &Path) -> Result<Option<[u8; 32]>, String> {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(unusable(path, &error)),
    };
    let text = text.trim();
    let mut key = [0; 32];
    let is_hex = text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    for (place, byte) in key.iter_mut().enumerate() {
        let digits = text.get(2 * place..2 * place + 2).filter(|_| is_hex);
        *byte = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()).ok_or_else(|| {
            format!("{} does not hold a key: remove it and log in again", path.display())
        })?;
    }
    Ok(Some(key))
}

/// Written under another name first, so that nobody reads half a key.
fn make(path: &Path, key: &[u8; 32], name: &[u8; 8]) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let scratch = path.with_extension(format!("new-{}", hex(name)));
    let made = (|| {
        let mut file =
            OpenOptions::new().write(true).create_new(true).mode(0o600).open(&scratch)?;
        writeln!(file, "{}", hex(key))?;
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

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unusable(path: &Path, error: &io::Error) -> String {
    format!("cannot use {}: {error}", path.display())
}
