//! `shikiri tasks add|list|show|set`.

use clap::{Args, Subcommand};
use shikiri_app::App;
use shikiri_model::ids::{AgentId, TaskId};
use shikiri_model::record::StoredDocument;
use shikiri_model::team::{TaskStatus, TeamTask};
use shikiri_teams::{NewTask, TaskPatch};
use shikiri_web::views::TaskJson;

use super::JsonArgument;
use super::id_argument::IdArgument;
use super::parts::{emptied, none_yet, or_none, print_id, print_page, print_record, word};
use super::team::ProjectArgument;
use crate::exit::Failure;
use crate::output::Output;
use crate::table::TableColumn;
use crate::text::{one_line, short};
use crate::wiring::Access;

#[derive(Subcommand)]
pub(super) enum Command {
    /// Make a task and print its id
    #[command(visible_alias = "create")]
    Add {
        /// What is to be done, on one line
        title: String,
        /// What else the agent needs to know
        #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
        description: String,
        /// The agent that should do it
        #[arg(long, value_name = "AGENT")]
        assignee: Option<AgentId>,
        /// The task that this is a part of
        #[arg(long, value_name = "TASK")]
        parent: Option<IdArgument<TaskId>>,
        /// Higher comes first
        #[arg(long, value_name = "N", default_value_t = 0, allow_negative_numbers = true)]
        priority: i32,
        #[command(flatten)]
        project: ProjectArgument,
    },
    /// Show tasks, oldest first
    List {
        /// Only those with this status
        #[arg(long, value_parser = word::<TaskStatus>())]
        status: Option<TaskStatus>,
        /// Show at most this many
        #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=1000))]
        limit: u32,
        #[command(flatten)]
        project: ProjectArgument,
    },
    /// Show one task
    Show {
        /// Its id, a unique ending of it, or @last for the newest
        task: IdArgument<TaskId>,
        #[command(flatten)]
        project: ProjectArgument,
    },
    /// Change a task; what is not named stays
    Set {
        /// Its id, a unique ending of it, or @last for the newest
        task: IdArgument<TaskId>,
        #[command(flatten)]
        change: Change,
        #[command(flatten)]
        project: ProjectArgument,
    },
}

#[derive(Args)]
pub(super) struct Change {
    /// How far the work is
    #[arg(long, value_parser = word::<TaskStatus>())]
    status: Option<TaskStatus>,
    /// Who should do it from now on, from the start; empty for no agent
    #[arg(long, value_name = "AGENT")]
    assignee: Option<String>,
    /// What is to be done, on one line
    #[arg(long, value_name = "TEXT")]
    title: Option<String>,
    /// What else the agent needs to know
    #[arg(long, value_name = "TEXT")]
    description: Option<String>,
    /// Higher comes first
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    priority: Option<i32>,
}

impl Command {
    pub(super) fn access(&self) -> Access {
        match self {
            Self::Add { .. } | Self::Set { .. } => Access::Write,
            Self::List { .. } | Self::Show { .. } => Access::Read,
        }
    }
}

impl Change {
    fn patch(self) -> Result<TaskPatch, Failure> {
        let assignee = match emptied(self.assignee) {
            Some(Some(id)) => Some(Some(id.parse::<AgentId>().map_err(|error| {
                Failure::usage(error, "`shikiri agents list` shows what there is")
            })?)),
            Some(None) => Some(None),
            None => None,
        };
        Ok(TaskPatch {
            title: self.title,
            description: self.description,
            assignee,
            priority: self.priority,
            status: self.status,
        })
    }
}

pub(super) async fn run(app: &App, command: Command) -> Result<(), Failure> {
    match command {
        Command::Add { title, description, assignee, parent, priority, project } => {
            let found = project.find(app).await?;
            let parent = match parent {
                Some(parent) => Some(parent.resolve_in(app, &found).await?),
                None => None,
            };
            let new = NewTask { title, description, assignee, parent_id: parent, priority };
            let made = app.teams.create_task(&found.tenant, &found.project, new).await?;
            print_id::<TaskJson, _>(made, project.json, |made| made.value.id.as_str())
        }
        Command::List { status, limit, project } => list(app, status, limit, &project).await,
        Command::Show { task, project } => {
            let found = project.find(app).await?;
            let task = task.resolve_in(app, &found).await?;
            show(app.teams.task(&found.tenant, &found.project, &task).await?, project.json)
        }
        Command::Set { task, change, project } => {
            let found = project.find(app).await?;
            let task = task.resolve_in(app, &found).await?;
            let patch = change.patch()?;
            let changed =
                app.teams.change_task(&found.tenant, &found.project, &task, &patch).await?;
            show(changed, project.json)
        }
    }
}

async fn list(
    app: &App,
    status: Option<TaskStatus>,
    limit: u32,
    project: &ProjectArgument,
) -> Result<(), Failure> {
    let found = project.find(app).await?;
    let page = app.teams.list_tasks(&found.tenant, &found.project, status, None, limit).await?;
    let row = |stored: &StoredDocument<TeamTask>| {
        let task = &stored.value;
        vec![
            task.id.to_string(),
            task.status.as_str().to_owned(),
            task.assignee.as_ref().map(ToString::to_string).unwrap_or_default(),
            task.priority.to_string(),
            short(&task.title, 60),
        ]
    };
    let columns = [
        TableColumn::id("id"),
        TableColumn::state("status"),
        TableColumn::text("assignee"),
        TableColumn::text("priority").minor(),
        TableColumn::text("title"),
    ];
    print_page::<TaskJson, _>(
        page,
        project.json,
        &columns,
        &none_yet("tasks", status.is_some(), "tasks add \"Write the report\""),
        row,
    )
}

fn show(stored: StoredDocument<TeamTask>, json: JsonArgument) -> Result<(), Failure> {
    print_record::<TaskJson, _>(stored, json, |stored| {
        let task = &stored.value;
        let result = task.result.as_ref().map(|result| short(&result.to_string(), 200));
        vec![
            ("task", task.id.to_string()),
            ("title", one_line(&task.title)),
            ("status", Output::stdout().state(task.status.as_str())),
            ("assignee", or_none(task.assignee.as_ref().map(AgentId::as_str))),
            ("priority", task.priority.to_string()),
            ("parent", or_none(task.parent_id.as_ref().map(TaskId::as_str))),
            ("description", short(&task.description, 200)),
            ("result", or_none(result.as_deref())),
            ("created", Output::stdout().time(stored.created_at)),
            ("changed", Output::stdout().time(stored.updated_at)),
        ]
    })
}
