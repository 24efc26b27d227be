//! A temporary folder for a command's work, removed at the end.

use std::path::{Path, PathBuf};
use std::{env, fs};

use anyhow::{Context, Result};

pub(crate) struct ScratchFolder(PathBuf);

impl ScratchFolder {
    pub(crate) fn make(purpose: &str) -> Result<ScratchFolder> {
        let folder = env::temp_dir().join(format!("shikiri-{purpose}-{}", std::process::id()));
        fs::create_dir(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        Ok(ScratchFolder(folder))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for ScratchFolder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
