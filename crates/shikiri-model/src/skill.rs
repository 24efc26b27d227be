//! Skills: folders of instructions that an engine may take up, with `SKILL.md` at their top.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::ids::TenantId;
use crate::models::Status;
use crate::record::{Columns, Document};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Skill {
    /// Unique in the tenant: letters, digits, `_` and `-`.
    pub name: String,
    pub tenant: TenantId,
    #[serde(default)]
    pub description: String,
    /// `SKILL.md`.
    pub content: String,
    /// Other files, by their path below the skill's folder.
    #[serde(default)]
    pub files: BTreeMap<String, String>,
    #[serde(default)]
    pub status: Status,
}

impl Document for Skill {
    const KIND: &'static str = "skill";

    fn tenant(&self) -> TenantId {
        self.tenant.clone()
    }

    fn id(&self) -> &str {
        &self.name
    }

    fn columns(&self) -> Columns {
        Columns { state: self.status.as_str().to_owned(), ..Columns::default() }
    }
}
