//! What an engine needs to take up a session lies in its home; a copy lies in the store. The copy
//! counts: a turn that was cut short may have written to the home, and another node has none.

use std::collections::BTreeMap;
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Component, Path, PathBuf};

use shikiri_model::execution::SessionFiles;
use shikiri_model::ids::{ConversationId, TenantId};
use shikiri_model::record::{Document as _, Expect, RecordChange};
use shikiri_store::StoreExt;

use super::request::Means;
use crate::app::App;
use crate::error::AppError;

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
        let put = tokio::task::spawn_blocking(move || put_back(&home, &files)).await;
        let put = put.map_err(|error| AppError::Broken(error.to_string()))?;
        put.map_err(|error| AppError::Broken(format!("cannot put a session back: {error}")))
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
        let paths = means.engine.session_files(home, session);
        if paths.is_empty() {
            return Ok(None);
        }
        let mut files = SessionFiles {
            conversation: conversation.id.clone(),
            tenant: conversation.tenant.clone(),
            session_id: session.to_owned(),
            files: BTreeMap::new(),
        };
        let home = home.to_owned();
        let packing = tokio::task::spawn_blocking(move || collect(&home, paths));
        let packed = packing.await.map_err(|error| AppError::Broken(error.to_string()))?;
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
fn collect(home: &Path, paths: Vec<PathBuf>) -> Option<BTreeMap<String, String>> {
    let sizes = paths.iter().filter_map(|path| home.join(path).metadata().ok());
    if sizes.map(|file| file.len()).sum::<u64>() > MOST_BYTES {
        return None;
    }
    let read = |path: PathBuf| {
        let text = std::fs::read_to_string(home.join(&path)).ok()?;
        Some((path.to_str()?.to_owned(), text))
    };
    paths.into_iter().map(read).collect()
}

fn put_back(home: &Path, files: &SessionFiles) -> io::Result<()> {
    for (path, text) in &files.files {
        // They were written by us; a path that leads elsewhere was not.
        if !Path::new(path).components().all(|part| matches!(part, Component::Normal(_))) {
            continue;
        }
        let target = home.join(path);
        if std::fs::read_to_string(&target).is_ok_and(|now| now == *text) {
            continue;
        }
        if let Some(folder) = target.parent() {
            std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        }
        let mut options = std::fs::OpenOptions::new();
        let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(target)?;
        io::Write::write_all(&mut file, text.as_bytes())?;
    }
    Ok(())
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
