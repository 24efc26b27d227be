//! What an engine needs to take up a session lies in its home; a copy lies in the store. The copy
//! counts: a turn that was cut short may have written to the home, and another node has none.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use shikiri_files::{FilesError, Trash, UntrustedDir};
use shikiri_model::execution::SessionFiles;
use shikiri_model::ids::{ConversationId, TenantId};
use shikiri_model::record::{Document as _, Expect, RecordChange};
use shikiri_store::StoreExt;

use super::request::Means;
use crate::app::App;
use crate::error::AppError;
use crate::workspace::{blocking, broken};

/// A session that has grown beyond this is not copied; it goes on where its files are.
const MOST_BYTES: u64 = 32 * 1024 * 1024;

impl App {
    /// Puts the session's files back as they were after the last completed turn.
    pub(super) async fn unpack(
        &self,
        means: &Means,
        home: &Path,
        session: &str,
    ) -> Result<(), AppError> {
        let conversation = &means.conversation.value;
        let found = self.load_luggage(&conversation.tenant, &conversation.id).await?;
        let Some((_, files)) = found.filter(|(_, files)| files.session_id == session) else {
            return Ok(());
        };
        let home = home.to_owned();
        let put = blocking(move || put_back(&home, &files)).await?;
        put.map_err(|error| broken("cannot put a session back", &error))
    }

    /// The change that keeps the session as it is now, or forgets the copy of one that cannot be
    /// kept: an old copy would take later turns back. None if there is nothing to change.
    pub(super) async fn pack(
        &self,
        means: &Means,
        home: &Path,
        session: &str,
    ) -> Result<Option<RecordChange>, AppError> {
        let conversation = &means.conversation.value;
        let mut files = SessionFiles {
            conversation: conversation.id.clone(),
            tenant: conversation.tenant.clone(),
            session_id: session.to_owned(),
            files: BTreeMap::new(),
        };
        let (home, engine) = (home.to_owned(), Arc::clone(&means.engine));
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
        let known = self.load_luggage(&conversation.tenant, &conversation.id).await?;
        Ok(match (packed, known) {
            (Some(files), None) => Some(RecordChange::put(&files, Expect::New)?),
            (Some(files), Some((version, _))) => {
                Some(RecordChange::put(&files, Expect::Version(version))?)
            }
            (None, Some((version, old))) => Some(RecordChange::Delete { key: old.key(), version }),
            (None, None) => None,
        })
    }

    async fn load_luggage(
        &self,
        tenant: &TenantId,
        conversation: &ConversationId,
    ) -> Result<Option<(u64, SessionFiles)>, AppError> {
        let found = self.store.load::<SessionFiles>(tenant, conversation.as_str()).await?;
        Ok(found.map(|stored| (stored.version, stored.value)))
    }
}

/// The texts of these files; None if they are too much, or one cannot be read.
fn collect(home: &UntrustedDir, paths: Vec<PathBuf>) -> Option<BTreeMap<String, String>> {
    let mut left = MOST_BYTES;
    let read = |path: PathBuf| {
        let bytes = home.read(&path, left).ok()?;
        left -= bytes.len() as u64;
        Some((path.to_str()?.to_owned(), String::from_utf8(bytes).ok()?))
    };
    paths.into_iter().map(read).collect()
}

fn put_back(home: &Path, files: &SessionFiles) -> Result<(), FilesError> {
    let dir = UntrustedDir::create(home)?;
    for (path, text) in &files.files {
        match put_back_file(home, &dir, Path::new(path), text.as_bytes()) {
            // They were written by us; a path that leads elsewhere was not.
            Err(FilesError::InvalidPath(_)) => {}
            put => put?,
        }
    }
    Ok(())
}

/// What an agent put in the place of the file, or of a folder on the way, gives way.
fn put_back_file(
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
        put_back(home.path(), &files).unwrap();
        let session = home.path().join("a/s.jsonl");
        std::fs::write(&session, "一\n二\n").unwrap();
        put_back(home.path(), &files).unwrap();
        assert_eq!(std::fs::read_to_string(session).unwrap(), "一\n");
        assert!(!home.path().parent().unwrap().join("out").exists());
    }
}
