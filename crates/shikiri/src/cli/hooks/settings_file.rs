//! A settings file of Claude Code. It is replaced atomically through links, keeps its mode, and has
//! a backup of its former content.

use std::fs::{self, Metadata, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, fchown};
use std::path::{Path, PathBuf};

use super::jsonc::Fault;
use crate::exit::{Exit, Failure};
use crate::trust::tracked_files;

/// A larger file is no settings file.
const MOST_BYTES: u64 = 4 * 1024 * 1024;

/// A file as it was read.
pub(super) struct SettingsFile {
    /// The path as the user knows it.
    pub(super) path: PathBuf,
    /// The target of the links.
    target: PathBuf,
    /// None if there is no file.
    pub(super) text: Option<String>,
}

impl SettingsFile {
    /// The file of a project. A link from a repository must not lead to the user's other files; a
    /// link that the user made may.
    pub(super) fn read_in_project(path: PathBuf, root: &Path) -> Result<Self, Failure> {
        let file = Self::read(path)?;
        let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let is_outside = !real(&file.target).starts_with(real(root));
        let folder = file.path.parent().and_then(Path::file_name).map(Path::new);
        let tracked = folder.filter(|_| is_outside).map(|folder| tracked_files(root, folder));
        let is_link = |path: &PathBuf| root.join(path).is_symlink();
        match tracked.and_then(Result::ok).and_then(|tracked| tracked.into_iter().find(is_link)) {
            None => Ok(file),
            Some(link) => {
                let (link, target) = (link.display(), file.target.display());
                let what = format!("{link} is tracked by git and leads out of it, to {target}");
                let next = "remove the link, or use --user for your own settings";
                Err(Failure::new(Exit::Refused, what, next))
            }
        }
    }

    pub(super) fn read(path: PathBuf) -> Result<Self, Failure> {
        let target = match path.canonicalize() {
            Ok(target) => target,
            Err(error) if error.kind() == io::ErrorKind::NotFound && !path.is_symlink() => {
                return Ok(Self { target: path.clone(), path, text: None });
            }
            Err(error) => return Err(unreadable(&path, &error)),
        };
        let text = read(&target).map_err(|error| unreadable(&path, &error))?;
        Ok(Self { path, target, text: Some(text) })
    }

    /// Whether both paths lead to one file.
    pub(super) fn is_same_file(&self, other: &Self) -> bool {
        self.target == other.target
    }

    /// The text; empty if there is no file.
    pub(super) fn text(&self) -> &str {
        self.text.as_deref().unwrap_or_default()
    }

    /// A fault of the text, as an error for the user.
    pub(super) fn broken(&self, fault: &Fault) -> Failure {
        let what = format!("{} line {}: {}", self.path.display(), fault.line, fault.what);
        Failure::new(Exit::Failed, what, "it was left alone, mend it first")
    }

    pub(super) fn backup_path(&self) -> PathBuf {
        let mut name = self.path.clone().into_os_string();
        name.push(".shikiri-backup");
        name.into()
    }

    pub(super) fn backup(&self) -> Option<String> {
        read(&self.backup_path()).ok()
    }

    /// Writes a backup over an older one, if there is a file to copy.
    pub(super) fn keep(&self) -> Result<(), Failure> {
        let path = self.backup_path();
        let Some(text) = &self.text else { return Ok(()) };
        let before = fs::metadata(&self.target);
        before.and_then(|before| replace_file(&path, text, Some(&before), true)).map_err(|error| {
            let what = format!("cannot keep a copy as {}: {error}", path.display());
            Failure::new(Exit::Failed, what, "nothing was changed, make the folder writable")
        })
    }

    /// Replaces the file that was read. A text with a secret is readable for its owner only, unless
    /// an existing file has another mode.
    pub(super) fn replace(&self, text: &str, is_secret: bool) -> Result<(), Failure> {
        self.write(text, is_secret).map_err(|error| {
            let what = format!("cannot write {}: {error}", self.path.display());
            Failure::new(Exit::Failed, what, "make it writable, or choose --user or --local")
        })
    }

    fn write(&self, text: &str, is_secret: bool) -> io::Result<()> {
        let folder = self.target.parent().unwrap_or(Path::new("."));
        fs::create_dir_all(folder)?;
        let before = fs::metadata(&self.target).ok();
        if read(&self.target).ok() != self.text {
            let what = "somebody else has just changed it, try again";
            return Err(io::Error::new(io::ErrorKind::ResourceBusy, what));
        }
        replace_file(&self.target, text, before.as_ref(), is_secret)
    }

    /// Removes the file, or restores its former content.
    pub(super) fn restore(&self, backup: Option<&str>) -> Result<(), Failure> {
        match backup {
            Some(text) => {
                self.replace(text, true)?;
                fs::remove_file(self.backup_path())
            }
            None => fs::remove_file(&self.target),
        }
        .map_err(|error| unreadable(&self.path, &error))
    }
}

/// Writes a temporary file and renames it over the target, which keeps its owner and mode.
fn replace_file(
    path: &Path,
    text: &str,
    before: Option<&Metadata>,
    is_secret: bool,
) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    // The default mode, minus the umask. Secrets are for the owner only.
    let usual = Permissions::from_mode(if is_secret { 0o600 } else { 0o666 });
    let mut file =
        tempfile::Builder::new().prefix(".shikiri-").permissions(usual).tempfile_in(folder)?;
    file.write_all(text.as_bytes())?;
    if let Some(before) = before {
        // Only root may change the owner, and only root needs to.
        let _ = fchown(file.as_file(), Some(before.uid()), Some(before.gid()));
        file.as_file().set_permissions(before.permissions())?;
    }
    file.as_file().sync_all()?;
    file.persist(path)?;
    Ok(())
}

fn read(path: &Path) -> io::Result<String> {
    let bytes = shikiri_hook::allowed_files::read_start(path, MOST_BYTES + 1)?;
    if bytes.len() as u64 > MOST_BYTES {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, "it is larger than 4 MiB"));
    }
    let text = String::from_utf8(bytes);
    text.map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "it is not written in UTF-8"))
}

fn unreadable(path: &Path, error: &io::Error) -> Failure {
    let what = format!("cannot use {}: {error}", path.display());
    Failure::new(Exit::Failed, what, "it was left alone, look at it first")
}
