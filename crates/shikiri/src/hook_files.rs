//! What events of hooks find on this machine's disk, by the rules of a hook process.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use shikiri_app::hooks::HookFiles;
use shikiri_hook::conventions_file;
use shikiri_hook::evidence::{self, Finder};
use shikiri_hook::place::Place;
use shikiri_model::hook::{Conventions, Evidence, Payload, ReadTo, Want};

pub(crate) struct HookDisk {
    place: Place,
    /// The conventions, and the file that they were read from.
    kept: Mutex<Option<(Stamp, Arc<Conventions>)>>,
}

/// Changes when the file does; none if there is no file.
type Stamp = Option<(u64, u64, i64, i64)>;

impl HookDisk {
    pub(crate) fn new(root: PathBuf) -> Self {
        Self { place: Place { root }, kept: Mutex::default() }
    }
}

impl HookFiles for HookDisk {
    fn conventions(&self) -> Arc<Conventions> {
        let path = self.place.conventions();
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let stamp = std::fs::metadata(&path).ok().as_ref().map(stamp);
        if let Some((known, conventions)) = &*kept
            && *known == stamp
        {
            return Arc::clone(conventions);
        }
        let loaded = conventions_file::load(&path).unwrap_or_else(|problem| {
            tracing::warn!("{problem}; no conventions are given");
            Conventions::default()
        });
        let loaded = Arc::new(loaded);
        *kept = Some((stamp, Arc::clone(&loaded)));
        loaded
    }

    fn project(&self) -> Option<String> {
        Some(self.place.root.to_string_lossy().into_owned())
    }

    fn find(
        &self,
        payload: &Payload,
        want: &Want,
        evidence: &mut Evidence,
        read: Option<ReadTo>,
    ) -> Vec<(String, ReadTo)> {
        let until = Instant::now() + shikiri_hook::DEADLINE / 2;
        let mut finder = Finder::new(&self.place, payload, &evidence::lives, until);
        finder.find(want, evidence, &|_| read);
        finder.read().map(|(path, read)| (path.to_owned(), read)).collect()
    }

    fn lives(&self, claimant: &str) -> bool {
        evidence::lives(claimant)
    }
}

fn stamp(file: &Metadata) -> (u64, u64, i64, i64) {
    (file.ino(), file.len(), file.mtime(), file.mtime_nsec())
}
