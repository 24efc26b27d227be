//! What runs of Claude Code may use up, and whether they must be confined, among the settings.

use shikiri_sandbox::SandboxLimits;

use crate::config::Layers;

const MIB: u64 = 1024 * 1024;

impl Layers {
    pub(crate) fn engine_limits(&self) -> SandboxLimits {
        let default = SandboxLimits::default();
        let bytes = |mib: u64| mib.saturating_mul(MIB);
        SandboxLimits {
            memory_bytes: self.plain(|s| s.engine_memory_mb).map_or(default.memory_bytes, bytes),
            tasks: self.plain(|s| s.engine_processes).unwrap_or(default.tasks),
            file_bytes: self.plain(|s| s.engine_file_mb).map_or(default.file_bytes, bytes),
            open_files: self.plain(|s| s.engine_open_files).unwrap_or(default.open_files),
        }
    }

    /// Only the operator decides this: a project's file that has it is refused before
    /// (`trust::NEVER_FROM_PROJECT`).
    pub(crate) fn unconfined_engines(&self) -> bool {
        self.plain(|s| s.unconfined_engines).unwrap_or(false)
    }
}
