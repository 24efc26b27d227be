//! `shikiri conversations create|list|show|set|archive|messages|remove`.

use clap::{Args, Subcommand, ValueEnum};
use serde_json::Value;
use shikiri_app::App;
use shikiri_app::conversations::ConversationPatch;
use shikiri_model::conversation::{Conversation, ConversationStatus};
use shikiri_model::execution::{MessageKind, MessageLog};
use shikiri_model::ids::{ConversationId, ModelId, TenantId};
use shikiri_model::record::Stored;
use shikiri_web::views::{ConversationJson, MessageJson, Page};

use super::parts::{all_pages, emptied, or_none, sheet};
use super::{JsonArgument, TenantArgument};
use crate::exit::{Exit, Failure};
use crate::output::Output;
use crate::text::short;
use crate::wiring::Access;

#[derive(Subcommand)]
pub(super) enum Command {
    /// Make a conversation and print its id
    Create {
        #[command(flatten)]
        change: Change,
        #[command(flatten)]
        tenant: TenantArgument,
        #[command(flatten)]
        json: JsonArgument,
    },
    /// Show conversations, newest first
    List {
        #[arg(long)]
        status: Option<Status>,
        #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=1000))]
        limit: u32,
        #[command(flatten)]
        tenant: TenantArgument,
        #[command(flatten)]
        json: JsonArgument,
    },
    /// Show one conversation
    Show {
        conversation: ConversationId,
        #[command(flatten)]
        tenant: TenantArgument,
        #[command(flatten)]
        json: JsonArgument,
    },
    /// Change a conversation; what is not named stays
    Set {
        conversation: ConversationId,
        #[command(flatten)]
        change: Change,
        #[arg(long)]
        status: Option<Status>,
        /// Forget the engine's session: the next execution starts afresh
        #[arg(long)]
        new_session: bool,
        #[command(flatten)]
        tenant: TenantArgument,
        #[command(flatten)]
        json: JsonArgument,
    },
    /// Keep a conversation, and let nothing be said in it any more
    Archive {
        conversation: ConversationId,
        #[command(flatten)]
        tenant: TenantArgument,
        #[command(flatten)]
        json: JsonArgument,
    },
    /// Show what was said, oldest first
    Messages {
        conversation: ConversationId,
        #[command(flatten)]
        tenant: TenantArgument,
        #[command(flatten)]
        json: JsonArgument,
    },
    /// Remove a conversation with its messages and files, for good; what it cost stays on record
    Remove {
        conversation: ConversationId,
        /// Yes, for good
        #[arg(long)]
        yes: bool,
        #[command(flatten)]
        tenant: TenantArgument,
    },
}

impl Command {
    pub(super) fn access(&self) -> Access {
        match self {
            Self::List { .. } | Self::Show { .. } | Self::Messages { .. } => Access::Read,
            Self::Create { .. } | Self::Set { .. } | Self::Archive { .. } | Self::Remove { .. } => {
                Access::Write
            }
        }
    }
}

#[derive(Args)]
pub(super) struct Change {
    /// 1 to 200 characters; empty for none
    #[arg(long, value_name = "TEXT")]
    title: Option<String>,
    /// In place of the tenant's; empty for the tenant's
    #[arg(long, value_name = "ID")]
    model: Option<String>,
    /// Whether it has a folder, in place of what the tenant says
    #[arg(long)]
    workspace: Option<Workspace>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Workspace {
    True,
    False,
    /// As the tenant says
    Tenant,
}

#[derive(Clone, Copy, ValueEnum)]
pub(super) enum Status {
    Active,
    Archived,
}

impl From<Status> for ConversationStatus {
    fn from(status: Status) -> Self {
        match status {
            Status::Active => Self::Active,
            Status::Archived => Self::Archived,
        }
    }
}

impl Change {
    fn patch(self) -> Result<ConversationPatch, Failure> {
        let model = match emptied(self.model) {
            Some(Some(id)) => Some(Some(id.parse::<ModelId>().map_err(|error| {
                Failure::usage(error, "`shikiri models list` shows what there is")
            })?)),
            Some(None) => Some(None),
            None => None,
        };
        Ok(ConversationPatch {
            title: emptied(self.title),
            model_id: model,
            workspace_enabled: self.workspace.map(|workspace| match workspace {
                Workspace::True => Some(true),
                Workspace::False => Some(false),
                Workspace::Tenant => None,
            }),
            ..ConversationPatch::default()
        })
    }
}

pub(super) async fn run(app: &App, command: Command) -> Result<(), Failure> {
    match command {
        Command::Create { change, tenant, json } => {
            let stored = app.create_conversation(&tenant.id, change.patch()?).await?;
            if json.json {
                return show(stored, json);
            }
            // Alone on stdout, so that a script can take it.
            Output::stdout().line(stored.value.id.as_str())
        }
        Command::List { status, limit, tenant, json } => {
            list(app, &tenant.id, status.map(Into::into), limit, json).await
        }
        Command::Show { conversation, tenant, json } => {
            show(app.conversation(&tenant.id, &conversation).await?, json)
        }
        Command::Set { conversation, change, status, new_session, tenant, json } => {
            let patch = ConversationPatch {
                status: status.map(Into::into),
                forget_session: new_session,
                ..change.patch()?
            };
            show(app.update_conversation(&tenant.id, &conversation, patch).await?, json)
        }
        Command::Archive { conversation, tenant, json } => {
            show(app.archive_conversation(&tenant.id, &conversation).await?, json)
        }
        Command::Messages { conversation, tenant, json } => {
            messages(app, &tenant.id, &conversation, json).await
        }
        Command::Remove { conversation, yes, tenant } => {
            app.conversation(&tenant.id, &conversation).await?;
            if !yes {
                let what = format!(
                    "this removes conversation {conversation}, its messages and files for good"
                );
                return Err(Failure::new(Exit::Refused, what, "add --yes if you mean it"));
            }
            app.delete_conversation(&tenant.id, &conversation).await?;
            Output::stdout().line(&format!("conversation {conversation} is removed"))
        }
    }
}

async fn list(
    app: &App,
    tenant: &TenantId,
    status: Option<ConversationStatus>,
    limit: u32,
    json: JsonArgument,
) -> Result<(), Failure> {
    let page = app.list_conversations(tenant, status, None, limit).await?;
    let output = Output::stdout();
    if json.json {
        return output.json(&Page::<ConversationJson>::new(page));
    }
    let row = |stored: &Stored<Conversation>| {
        let conversation = &stored.value;
        vec![
            conversation.id.to_string(),
            conversation.status.as_str().to_owned(),
            conversation.turns.to_string(),
            stored.updated_at.to_string(),
            short(conversation.title.as_deref().unwrap_or_default(), 60),
        ]
    };
    let rows: Vec<_> = page.0.iter().map(row).collect();
    output.table(&["id", "status", "turns", "changed", "title"], &rows)
}

fn show(stored: Stored<Conversation>, json: JsonArgument) -> Result<(), Failure> {
    if json.json {
        return Output::stdout().json(&ConversationJson::from(stored));
    }
    let conversation = &stored.value;
    let model = conversation.model_id.as_ref().map(ModelId::as_str);
    let workspace = conversation.workspace_enabled;
    sheet(&[
        ("conversation", conversation.id.to_string()),
        ("title", or_none(conversation.title.as_deref())),
        ("status", conversation.status.as_str().to_owned()),
        ("turns", conversation.turns.to_string()),
        ("model", model.map_or("the tenant's".to_owned(), str::to_owned)),
        ("workspace", workspace.map_or("as the tenant".to_owned(), |yes| yes.to_string())),
        ("session", or_none(conversation.session_id.as_deref())),
        ("created", stored.created_at.to_string()),
        ("changed", stored.updated_at.to_string()),
    ])
}

async fn messages(
    app: &App,
    tenant: &TenantId,
    id: &ConversationId,
    json: JsonArgument,
) -> Result<(), Failure> {
    let all = all_pages(async |after| app.list_messages(tenant, id, after, 100).await).await?;
    let output = Output::stdout();
    if json.json {
        return output.json(&Page::<MessageJson>::new((all, None)));
    }
    let row = |stored: &Stored<MessageLog>| {
        let message = &stored.value;
        let kind = match message.kind {
            MessageKind::System => "system",
            MessageKind::Assistant => "assistant",
            MessageKind::User => "user",
            MessageKind::Result => "result",
        };
        let content = match &message.content {
            Value::String(text) => short(text, 80),
            other => short(&other.to_string(), 80),
        };
        vec![message.turn.to_string(), message.at.to_string(), kind.to_owned(), content]
    };
    output.table(&["turn", "at", "type", "content"], &all.iter().map(row).collect::<Vec<_>>())
}
