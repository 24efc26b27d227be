//! Skills: folders of instructions that an engine may use, with `SKILL.md` at their top.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::ids::TenantId;
use crate::macros::document;
use crate::models::ActiveStatus;
use crate::record::RecordColumns;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Skill {
    /// Unique in the tenant: letters, digits, `_` and `-`.
    pub name: String,
    pub tenant: TenantId,
    #[serde(default)]
    pub description: String,
    /// `SKILL.md`.
    pub content: String,
    /// Other files, by their path in the skill's folder.
    #[serde(default)]
    pub files: BTreeMap<String, String>,
    #[serde(default)]
    pub status: ActiveStatus,
}

document!(Skill, "skill", tenant, name, |skill| RecordColumns::in_state(skill.status.as_str()));
