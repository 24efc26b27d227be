//! The files that an engine needs to resume a session. They lie in its home, with a copy in the
//! store. The copy is authoritative: an interrupted turn may have written to the home, and another
//! node has no home.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use shikiri_files::{FilesError, Trash, UntrustedDir};
use shikiri_model::execution::SessionFiles;
use shikiri_model::ids::{ConversationId, TenantId};
use shikiri_model::record::{Document as _, ExpectedVersion, RecordChange};
use shikiri_runtime::AppError;
use shikiri_store::StoreExt;

use super::execution_request::ResolvedRequest;
use crate::Executions;
use crate::workspace::{blocking, broken};

/// A larger session is not copied. It can only be resumed where its files are.
const MOST_BYTES: u64 = 32 * 1024 * 1024;

impl Executions {
    /// Restores the session's files as they were after the last completed turn.
    pub(super) async fn restore_session_files(
        &self,
        resolved: &ResolvedRequest,
        home: &Path,
        session: &str,
    ) -> Result<(), AppError> {
        let conversation = &resolved.conversation.value;
        let found = self.load_session_files(&conversation.tenant, &conversation.id).await?;
        let Some((_, files)) = found.filter(|(_, files)| files.session_id == session) else {
            return Ok(());
        };
        let home = home.to_owned();
        let put = blocking(move || restore_files(&home, &files)).await?;
        put.map_err(|error| broken("cannot put a session back", &error))
    }

    /// The change that stores the session's files. If they cannot be stored, the change deletes the
    /// old copy, which would undo later turns. None if nothing changes.
    pub(super) async fn session_files_change(
        &self,
        resolved: &ResolvedRequest,
        home: &Path,
        session: &str,
    ) -> Result<Option<RecordChange>, AppError> {
        let conversation = &resolved.conversation.value;
        let mut files = SessionFiles {
            conversation: conversation.id.clone(),
            tenant: conversation.tenant.clone(),
            session_id: session.to_owned(),
            files: BTreeMap::new(),
        };
        let (home, engine) = (home.to_owned(), Arc::clone(&resolved.engine));
        let session = session.to_owned();
        let packing = blocking(move || {
            let home = UntrustedDir::open(&home).ok()?;
            let paths = engine.session_files(&home, &session);
            (!paths.is_empty()).then(|| collect(&home, paths))
        });
        let Some(packed) = packing.await? else { return Ok(None) };
        let packed = packed.map(|texts| {
            files.files = texts;
            files
        });
        let known = self.load_session_files(&conversation.tenant, &conversation.id).await?;
        Ok(match (packed, known) {
            (Some(files), None) => Some(RecordChange::put(&files, ExpectedVersion::New)?),
            (Some(files), Some((version, _))) => {
                Some(RecordChange::put(&files, ExpectedVersion::Version(version))?)
            }
            (None, Some((version, old))) => Some(RecordChange::Delete { key: old.key(), version }),
            (None, None) => None,
        })
    }

    async fn load_session_files(
        &self,
        tenant: &TenantId,
        conversation: &ConversationId,
    ) -> Result<Option<(u64, SessionFiles)>, AppError> {
        let found =
            self.runtime.store().load::<SessionFiles>(tenant, conversation.as_str()).await?;
        Ok(found.map(|stored| (stored.version, stored.value)))
    }
}

/// The texts of these files; None if they are too large, or one cannot be read.
fn collect(home: &UntrustedDir, paths: Vec<PathBuf>) -> Option<BTreeMap<String, String>> {
    let mut left = MOST_BYTES;
    let read = |path: PathBuf| {
        let bytes = home.read(&path, left).ok()?;
        left -= bytes.len() as u64;
        Some((path.to_str()?.to_owned(), String::from_utf8(bytes).ok()?))
    };
    paths.into_iter().map(read).collect()
}

fn restore_files(home: &Path, files: &SessionFiles) -> Result<(), FilesError> {
    let dir = UntrustedDir::create(home)?;
    for (path, text) in &files.files {
        match restore_file(home, &dir, Path::new(path), text.as_bytes()) {
            // We never stored a path that leads elsewhere: skip it.
            Err(FilesError::InvalidPath(_)) => {}
            put => put?,
        }
    }
    Ok(())
}

/// Replaces whatever an agent put at the path of the file or of one of its folders.
fn restore_file(
    home: &Path,
    dir: &UntrustedDir,
    path: &Path,
    text: &[u8],
) -> Result<(), FilesError> {
    if dir.read(path, text.len() as u64).is_ok_and(|now| now == text) {
        return Ok(());
    }
    dir.replace_dir(path.parent().unwrap_or(Path::new("")))?;
    match dir.write(path, text) {
        Err(error) if error.io_kind() == Some(io::ErrorKind::IsADirectory) => {
            Trash::beside(home)?.remove(dir, path)?;
            dir.write(path, text)
        }
        written => written,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_cut_turn_wrote_is_taken_back() {
        let home = tempfile::tempdir().unwrap();
        let files = SessionFiles {
            conversation: "cnv_1".parse().unwrap(),
            tenant: TenantId::local(),
            session_id: "s".to_owned(),
            files: [("a/s.jsonl", "一\n"), ("../out", "x")]
                .map(|(path, text)| (path.to_owned(), text.to_owned()))
                .into(),
        };
        restore_files(home.path(), &files).unwrap();
        let session = home.path().join("a/s.jsonl");
        std::fs::write(&session, "一\n二\n").unwrap();
        restore_files(home.path(), &files).unwrap();
        assert_eq!(std::fs::read_to_string(session).unwrap(), "一\n");
        assert!(!home.path().parent().unwrap().join("out").exists());
    }
}
