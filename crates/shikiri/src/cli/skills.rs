//! `shikiri skills create|list|show|set|remove`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use shikiri_app::App;
use shikiri_executions::skills::SkillContent;
use shikiri_model::ids::TenantId;
use shikiri_model::models::ActiveStatus;
use shikiri_model::record::StoredDocument;
use shikiri_model::skill::Skill;
use shikiri_web::views::SkillJson;

use super::parts::{all_pages, none_yet, print_page, print_record, word};
use super::{CommonArguments, JsonArgument, TenantArgument};
use crate::exit::Failure;
use crate::output::Output;
use crate::table::TableColumn;
use crate::text::{one_line, short};
use crate::wiring::Access;

#[derive(Subcommand)]
pub(super) enum Command {
    /// Make a skill from a SKILL.md, or from a folder that holds one
    Create {
        /// 1 to 64 letters, digits, _ or -
        name: String,
        /// The SKILL.md, or the folder with it and its other files
        #[arg(long, value_name = "PATH")]
        from: PathBuf,
        #[command(flatten)]
        change: Change,
        #[command(flatten)]
        common: CommonArguments,
    },
    /// Show the skills of a tenant
    List {
        #[command(flatten)]
        common: CommonArguments,
    },
    /// Show one skill
    Show {
        /// Its name
        name: String,
        #[command(flatten)]
        common: CommonArguments,
    },
    /// Change a skill; what is not named stays
    Set {
        /// Its name
        name: String,
        /// The SKILL.md, or the folder with it and its other files, in place of what there is
        #[arg(long, value_name = "PATH")]
        from: Option<PathBuf>,
        #[command(flatten)]
        change: Change,
        #[command(flatten)]
        common: CommonArguments,
    },
    /// Remove a skill
    Remove {
        /// Its name
        name: String,
        #[command(flatten)]
        tenant: TenantArgument,
    },
}

impl Command {
    pub(super) fn access(&self) -> Access {
        match self {
            Self::List { .. } | Self::Show { .. } => Access::Read,
            Self::Create { .. } | Self::Set { .. } | Self::Remove { .. } => Access::Write,
        }
    }
}

#[derive(Args)]
pub(super) struct Change {
    /// What it is for, at most 1,024 characters
    #[arg(long, value_name = "TEXT")]
    description: Option<String>,
    /// An inactive skill is not used
    #[arg(long, value_parser = word::<ActiveStatus>())]
    status: Option<ActiveStatus>,
}

impl Change {
    fn apply(self, skill: &mut SkillContent) {
        if let Some(description) = self.description {
            skill.description = description;
        }
        if let Some(status) = self.status {
            skill.status = status;
        }
    }
}

pub(super) async fn run(app: &App, command: Command) -> Result<(), Failure> {
    match command {
        Command::Create { name, from, change, common } => {
            let (content, files) = read(&from)?;
            let mut skill = SkillContent { content, files, ..SkillContent::default() };
            change.apply(&mut skill);
            show(app.executions.create_skill(&common.tenant.id, name, skill).await?, common.json)
        }
        Command::List { common } => list(app, &common.tenant.id, common.json).await,
        Command::Show { name, common } => {
            show(app.executions.skill(&common.tenant.id, &name).await?, common.json)
        }
        Command::Set { name, from, change, common } => {
            let Skill { description, content, files, status, .. } =
                app.executions.skill(&common.tenant.id, &name).await?.value;
            let mut skill = SkillContent { description, content, files, status };
            if let Some(from) = from {
                (skill.content, skill.files) = read(&from)?;
            }
            change.apply(&mut skill);
            show(app.executions.put_skill(&common.tenant.id, name, skill).await?.0, common.json)
        }
        Command::Remove { name, tenant } => {
            app.executions.delete_skill(&tenant.id, &name).await?;
            Output::stdout().line(&format!("skill {name} is removed"))
        }
    }
}

async fn list(app: &App, tenant: &TenantId, json: JsonArgument) -> Result<(), Failure> {
    let skills =
        all_pages(async |after| app.executions.list_skills(tenant, after, 100).await).await?;
    let row = |stored: &StoredDocument<Skill>| {
        let skill = &stored.value;
        let files = (skill.files.len() + 1).to_string();
        let description = short(&skill.description, 60);
        vec![skill.name.clone(), skill.status.as_str().to_owned(), files, description]
    };
    let columns = [
        TableColumn::text("name"),
        TableColumn::state("status"),
        TableColumn::text("files").minor(),
        TableColumn::text("description"),
    ];
    print_page::<SkillJson, _>(
        (skills, None),
        json,
        &columns,
        &none_yet("skills", false, "skills create NAME --from SKILL.md"),
        row,
    )
}

fn show(stored: StoredDocument<Skill>, json: JsonArgument) -> Result<(), Failure> {
    print_record::<SkillJson, _>(stored, json, |stored| {
        let skill = &stored.value;
        let mut lines = vec![
            ("skill", skill.name.clone()),
            ("description", one_line(&skill.description)),
            ("status", Output::stdout().state(skill.status.as_str())),
            ("changed", Output::stdout().time(stored.updated_at)),
            ("file", format!("SKILL.md ({} bytes)", skill.content.len())),
        ];
        let files = skill.files.iter();
        lines
            .extend(files.map(|(path, text)| {
                ("file", format!("{} ({} bytes)", one_line(path), text.len()))
            }));
        lines
    })
}

const SKILL_FILE: &str = "SKILL.md";
/// One more than a skill may have, to notice that there are too many.
const MAX_FILES: usize = 102;
const MAX_FILE: u64 = 2 * 1024 * 1024;

/// The SKILL.md and the other files.
fn read(from: &Path) -> Result<(String, BTreeMap<String, String>), Failure> {
    if !from.is_dir() {
        return Ok((read_text(from)?, BTreeMap::new()));
    }
    let mut files = BTreeMap::new();
    read_folder(from, "", &mut files)?;
    let Some(content) = files.remove(SKILL_FILE) else {
        let what = format!("{} holds no {SKILL_FILE}", from.display());
        return Err(Failure::usage(what, "write one, or name another folder"));
    };
    Ok((content, files))
}

fn read_folder(
    folder: &Path,
    prefix: &str,
    files: &mut BTreeMap<String, String>,
) -> Result<(), Failure> {
    let entries = std::fs::read_dir(folder).map_err(|error| unreadable(folder, &error))?;
    for entry in entries {
        let entry = entry.map_err(|error| unreadable(folder, &error))?;
        let path = entry.path();
        let Ok(name) = entry.file_name().into_string() else {
            let what = format!("{} has a name that is not UTF-8", path.display());
            return Err(Failure::usage(what, "rename it"));
        };
        let kind = entry.file_type().map_err(|error| unreadable(&path, &error))?;
        let relative_path = format!("{prefix}{name}");
        // A link could lead anywhere, and its target does not travel with the skill.
        if kind.is_dir() {
            read_folder(&path, &format!("{relative_path}/"), files)?;
        } else if kind.is_file() {
            files.insert(relative_path, read_text(&path)?);
        } else {
            let what = format!("{} is neither a file nor a folder", path.display());
            return Err(Failure::usage(what, "take it out of the skill"));
        }
        if files.len() >= MAX_FILES {
            let what = format!("{} holds more than 101 files", folder.display());
            return Err(Failure::usage(what, "a skill has a SKILL.md and at most 100 others"));
        }
    }
    Ok(())
}

fn read_text(path: &Path) -> Result<String, Failure> {
    let size = std::fs::metadata(path).map_err(|error| unreadable(path, &error))?.len();
    if size > MAX_FILE {
        let what = format!("{} has {size} bytes", path.display());
        return Err(Failure::usage(what, "a skill has at most 2 MiB in all"));
    }
    std::fs::read_to_string(path).map_err(|error| unreadable(path, &error))
}

fn unreadable(path: &Path, error: &std::io::Error) -> Failure {
    let what = format!("cannot read {}: {error}", path.display());
    Failure::usage(what, "name a SKILL.md of UTF-8 text, or a folder with one")
}
