//! Skills of a tenant: create, replace, list, delete.

use std::collections::BTreeMap;

use shikiri_model::ids::TenantId;
use shikiri_model::models::ActiveStatus;
use shikiri_model::record::{
    ExpectedVersion, RecordChange, RecordPosition, RecordQuery, StoredDocument,
};
use shikiri_model::skill::Skill;
use shikiri_runtime::field_checks::check_name;
use shikiri_runtime::{AppError, transact};
use shikiri_store::{Commit, CommitError, StoreExt};

use crate::Executions;

/// Everything in a skill besides its name.
#[derive(Clone, Debug, Default)]
pub struct SkillContent {
    pub description: String,
    /// `SKILL.md`.
    pub content: String,
    pub files: BTreeMap<String, String>,
    pub status: ActiveStatus,
}

const MAX_DESCRIPTION: usize = 1_024;
const MAX_CONTENT: usize = 256 * 1024;
const MAX_FILES: usize = 100;
const MAX_TOTAL: usize = 2 * 1024 * 1024;
const MAX_PATH: usize = 500;
/// The longest part of a path that file systems allow.
const MAX_PART: usize = 255;

impl Executions {
    pub async fn create_skill(
        &self,
        tenant: &TenantId,
        name: String,
        content: SkillContent,
    ) -> Result<StoredDocument<Skill>, AppError> {
        let skill = skill(tenant, name, content)?;
        self.runtime.create_in_tenant(tenant, skill).await
    }

    /// Creates the skill, or replaces it as a whole. Returns true if it is new.
    pub async fn put_skill(
        &self,
        tenant: &TenantId,
        name: String,
        content: SkillContent,
    ) -> Result<(StoredDocument<Skill>, bool), AppError> {
        let skill = skill(tenant, name, content)?;
        transact("skill", &skill.name, || async {
            let Some(mut stored) = self.runtime.store().load::<Skill>(tenant, &skill.name).await?
            else {
                return match self.runtime.create_in_tenant(tenant, skill.clone()).await {
                    Err(AppError::Exists { .. }) => Ok(None),
                    made => Ok(Some((made?, true))),
                };
            };
            let put = RecordChange::put(&skill, ExpectedVersion::Version(stored.version))?;
            match self.runtime.store().commit(Commit::new().record(put)).await {
                Ok(committed) => {
                    stored.version += 1;
                    stored.updated_at = committed.at;
                    Ok(Some((StoredDocument { value: skill.clone(), ..stored }, false)))
                }
                Err(CommitError::Conflict(_)) => Ok(None),
                Err(other) => Err(other.into()),
            }
        })
        .await
    }

    pub async fn skill(
        &self,
        tenant: &TenantId,
        name: &str,
    ) -> Result<StoredDocument<Skill>, AppError> {
        refuse_unfit(name)?;
        let found = self.runtime.store().load::<Skill>(tenant, name).await?;
        found.ok_or_else(|| AppError::not_found("skill", name))
    }

    pub async fn list_skills(
        &self,
        tenant: &TenantId,
        after: Option<RecordPosition>,
        limit: u32,
    ) -> Result<(Vec<StoredDocument<Skill>>, Option<RecordPosition>), AppError> {
        self.runtime.tenant(tenant).await?;
        self.runtime
            .list_records(RecordQuery { after, limit, ..RecordQuery::of::<Skill>(tenant) })
            .await
    }

    pub async fn delete_skill(&self, tenant: &TenantId, name: &str) -> Result<(), AppError> {
        refuse_unfit(name)?;
        self.runtime.delete_record::<Skill>(tenant, name).await
    }
}

/// Reports "not found" for a name that no skill can have.
fn refuse_unfit(name: &str) -> Result<(), AppError> {
    let shown = || name.chars().take(100).collect::<String>();
    check_name(name).map_err(|_| AppError::not_found("skill", shown()))
}

fn skill(tenant: &TenantId, name: String, content: SkillContent) -> Result<Skill, AppError> {
    check_name(&name)?;
    let SkillContent { description, content, files, status } = content;
    if description.chars().count() > MAX_DESCRIPTION {
        return Err(AppError::invalid("description", "must have at most 1,024 characters"));
    }
    if content.trim().is_empty() || content.len() > MAX_CONTENT {
        return Err(AppError::invalid("content", "must have 1 byte to 256 KiB"));
    }
    check_files(&files)?;
    let skill = Skill { name, tenant: tenant.clone(), description, content, files, status };
    if size(&skill) > MAX_TOTAL {
        return Err(AppError::invalid("files", "the skill must have at most 2 MiB in all"));
    }
    Ok(skill)
}

fn size(skill: &Skill) -> usize {
    let files = skill.files.iter().map(|(path, text)| path.len() + text.len());
    skill.description.len() + skill.content.len() + files.sum::<usize>()
}

fn check_files(files: &BTreeMap<String, String>) -> Result<(), AppError> {
    if files.len() > MAX_FILES {
        return Err(AppError::invalid("files", "at most 100 can be given"));
    }
    for path in files.keys() {
        let shown: String = path.chars().take(100).collect();
        let refuse = |reason: &str| Err(AppError::invalid("files", format!("{shown:?} {reason}")));
        if !is_confined(path) {
            return refuse("must be a relative path below the skill, without `..` or `\\`");
        }
        // On a file system that ignores case, this would be the same file.
        if path.eq_ignore_ascii_case("SKILL.md") {
            return refuse("is the skill's `content`");
        }
        let folders = path.match_indices('/').map(|(end, _)| &path[..end]);
        for folder in folders {
            if files.contains_key(folder) {
                return refuse("lies below another file of the skill");
            }
        }
    }
    Ok(())
}

fn is_confined(path: &str) -> bool {
    let is_part = |part: &str| !matches!(part, "" | "." | "..") && part.len() <= MAX_PART;
    path.len() <= MAX_PATH
        && !path.contains('\\')
        && !path.chars().any(char::is_control)
        && path.split('/').all(is_part)
}
