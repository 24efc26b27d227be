//! The files that hook events refer to on this machine, by the rules of a hook process.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use shikiri_hook::conventions_file;
use shikiri_hook::evidence_finder::{self, EvidenceFinder};
use shikiri_hook::hook_project::HookProject;
use shikiri_hook::path_resolver;
use shikiri_model::hook::{
    Conventions, EvidenceRequest, HookEvidence, HookInput, PathFacts, TranscriptOffset,
};
use shikiri_subagents::HookFiles;

pub(crate) struct HookDisk {
    project: HookProject,
    /// The parsed conventions, and the stamp of their file.
    kept: Mutex<Option<(Stamp, Arc<Conventions>)>>,
}

/// Changes when the file does; None if there is no file.
type Stamp = Option<[i64; 6]>;

impl HookDisk {
    pub(crate) fn new(root: PathBuf) -> Self {
        Self { project: HookProject { root }, kept: Mutex::default() }
    }
}

impl HookFiles for HookDisk {
    fn conventions(&self) -> Arc<Conventions> {
        let path = self.project.conventions();
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let stamp = std::fs::metadata(&path).ok().as_ref().map(stamp);
        if let Some((known, conventions)) = &*kept
            && *known == stamp
        {
            return Arc::clone(conventions);
        }
        let loaded = conventions_file::load(&path).unwrap_or_else(|problem| {
            tracing::warn!("{problem}; no conventions are given");
            conventions_file::broken(&path, &problem)
        });
        let loaded = Arc::new(loaded);
        *kept = Some((stamp, Arc::clone(&loaded)));
        loaded
    }

    fn project(&self) -> Option<String> {
        Some(self.project.root.to_string_lossy().into_owned())
    }

    fn resolve(&self, payload: &HookInput, paths: &[String]) -> PathFacts {
        path_resolver::resolve(&self.project.root, payload.cwd.as_deref(), paths)
    }

    fn find(
        &self,
        payload: &HookInput,
        want: &EvidenceRequest,
        evidence: &mut HookEvidence,
        read: Option<TranscriptOffset>,
    ) -> Vec<(String, TranscriptOffset)> {
        let until = Instant::now() + shikiri_hook::DEADLINE / 2;
        let mut finder =
            EvidenceFinder::new(&self.project, payload, &evidence_finder::is_process_alive, until);
        finder.find(want, evidence, &|_| read);
        finder.read().map(|(path, read)| (path.to_owned(), read)).collect()
    }

    fn is_claimant_alive(&self, claimant: &str) -> bool {
        evidence_finder::is_process_alive(claimant)
    }
}

fn stamp(file: &Metadata) -> [i64; 6] {
    let [inode, length] = [file.ino(), file.len()].map(|number| number.cast_signed());
    let times = [file.mtime(), file.mtime_nsec(), file.ctime(), file.ctime_nsec()];
    [inode, length, times[0], times[1], times[2], times[3]]
}
