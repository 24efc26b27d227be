use std::collections::BTreeMap;

use serde::Serialize;
use shikiri_model::models::ActiveStatus;
use shikiri_model::record::StoredDocument;
use shikiri_model::skill::Skill;
use shikiri_model::time::Timestamp;
use utoipa::ToSchema;

use super::words::ActiveStatusSchema;

/// Instructions that an engine may take up, in a folder of its own.
#[derive(Serialize, ToSchema)]
#[schema(as = Skill)]
pub struct SkillJson {
    pub(crate) name: String,
    description: String,
    /// `SKILL.md`.
    content: String,
    /// Other files, by their path below the skill's folder.
    files: BTreeMap<String, String>,
    #[schema(value_type = ActiveStatusSchema)]
    status: ActiveStatus,
    #[schema(value_type = String, format = DateTime)]
    created_at: Timestamp,
    #[schema(value_type = String, format = DateTime)]
    updated_at: Timestamp,
}

impl From<StoredDocument<Skill>> for SkillJson {
    fn from(stored: StoredDocument<Skill>) -> Self {
        let Skill { name, description, content, files, status, .. } = stored.value;
        Self {
            name,
            description,
            content,
            files,
            status,
            created_at: stored.created_at,
            updated_at: stored.updated_at,
        }
    }
}
