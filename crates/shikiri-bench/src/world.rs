//! What every benchmark is given: how long to measure, where to write, a runtime.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};

pub(crate) struct World {
    pub(crate) quick: bool,
    pub(crate) out: PathBuf,
    pub(crate) runtime: Runtime,
    only: Option<String>,
    // Beside the reports, not in /tmp: that may be memory, where a sync costs nothing.
    scratch: TempDir,
}

impl World {
    pub(crate) fn new(quick: bool, only: Option<String>, out: Option<PathBuf>) -> Result<Self> {
        let out = out.unwrap_or_else(|| target_folder().join("bench"));
        std::fs::create_dir_all(&out).with_context(|| format!("cannot make {}", out.display()))?;
        let scratch = TempDir::with_prefix_in("scratch-", &out)?;
        let runtime = Builder::new_multi_thread().enable_all().build()?;
        Ok(Self { quick, out, runtime, only, scratch })
    }

    pub(crate) fn wants(&self, part: &str) -> bool {
        let wanted = self.only.as_deref().is_none_or(|only| part.contains(only));
        if wanted {
            println!("measuring {part} …");
        }
        wanted
    }

    pub(crate) fn rounds(&self) -> usize {
        if self.quick { 2 } else { 5 }
    }

    /// How long one variant is measured in one round.
    pub(crate) fn turn(&self) -> Duration {
        Duration::from_millis(if self.quick { 300 } else { 1_000 })
    }

    pub(crate) fn scratch(&self) -> &Path {
        self.scratch.path()
    }
}

fn target_folder() -> PathBuf {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| workspace.join("target"), PathBuf::from)
}
