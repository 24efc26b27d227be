use serde::Serialize;
use shikiri_model::audit::AuditRecord;
use shikiri_model::event::Seq;
use utoipa::ToSchema;

use super::schemas::AuditSchema;

/// A page of the audit log.
#[derive(Serialize, ToSchema)]
pub struct AuditPage {
    #[schema(value_type = Vec<AuditSchema>)]
    items: Vec<AuditRecord>,
    /// `after` of the next page; null on the last.
    next_cursor: Option<String>,
}

impl AuditPage {
    pub fn new(items: Vec<AuditRecord>, next: Option<Seq>) -> Self {
        Self { items, next_cursor: next.map(|seq| seq.to_string()) }
    }
}
