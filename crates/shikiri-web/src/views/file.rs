//! Files of a workspace.

use serde::Serialize;
use shikiri_executions::workspace::FileRecord;
use utoipa::ToSchema;

#[derive(Serialize, ToSchema)]
#[schema(as = File)]
pub struct FileJson {
    /// Relative to the workspace.
    path: String,
    /// In bytes.
    size: u64,
    modified_at: String,
}

impl From<FileRecord> for FileJson {
    fn from(file: FileRecord) -> Self {
        Self { path: file.path, size: file.size, modified_at: file.modified_at.to_string() }
    }
}
