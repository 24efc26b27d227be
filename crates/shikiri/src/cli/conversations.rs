//! `shikiri conversations create|list|show|set|archive|messages|remove`.

use clap::{Args, Subcommand, ValueEnum};
use serde_json::Value;
use shikiri_app::App;
use shikiri_executions::conversations::ConversationPatch;
use shikiri_model::conversation::{Conversation, ConversationStatus};
use shikiri_model::execution::MessageLog;
use shikiri_model::ids::{ConversationId, ModelId, TenantId};
use shikiri_model::record::StoredDocument;
use shikiri_web::views::{ConversationJson, MessageJson, Word};

use super::id_argument::IdArgument;
use super::parts::{
    all_pages, emptied, none_yet, or_none, print_id, print_page, print_record, word,
};
use super::{CommonArguments, JsonArgument, TenantArgument};
use crate::exit::{Exit, Failure};
use crate::output::Output;
use crate::table::TableColumn;
use crate::text::short;
use crate::wiring::Access;

#[derive(Subcommand)]
pub(super) enum Command {
    /// Make a conversation and print its id
    Create {
        #[command(flatten)]
        change: Change,
        #[command(flatten)]
        common: CommonArguments,
    },
    /// Show conversations, newest first
    List {
        /// Only those with this status
        #[arg(long, value_parser = word::<ConversationStatus>())]
        status: Option<ConversationStatus>,
        /// Show at most this many
        #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=1000))]
        limit: u32,
        #[command(flatten)]
        common: CommonArguments,
    },
    /// Show one conversation
    Show {
        /// Its id, a unique ending of it, or @last for the newest
        conversation: IdArgument<ConversationId>,
        #[command(flatten)]
        common: CommonArguments,
    },
    /// Change a conversation; what is not named stays
    Set {
        /// Its id, a unique ending of it, or @last for the newest
        conversation: IdArgument<ConversationId>,
        #[command(flatten)]
        change: Change,
        /// An archived conversation takes no more turns
        #[arg(long, value_parser = word::<ConversationStatus>())]
        status: Option<ConversationStatus>,
        /// Forget the engine's session: the next execution starts afresh
        #[arg(long)]
        new_session: bool,
        #[command(flatten)]
        common: CommonArguments,
    },
    /// Keep a conversation, and let nothing be said in it any more
    Archive {
        /// Its id, a unique ending of it, or @last for the newest
        conversation: IdArgument<ConversationId>,
        #[command(flatten)]
        common: CommonArguments,
    },
    /// Show what was said, oldest first
    Messages {
        /// Its id, a unique ending of it, or @last for the newest
        conversation: IdArgument<ConversationId>,
        #[command(flatten)]
        common: CommonArguments,
    },
    /// Remove a conversation with its messages and files, for good; what it cost stays on record
    Remove {
        /// Its id, a unique ending of it, or @last for the newest
        conversation: IdArgument<ConversationId>,
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
        Command::Create { change, common } => {
            let stored =
                app.executions.create_conversation(&common.tenant.id, change.patch()?).await?;
            print_id::<ConversationJson, _>(stored, common.json, |made| made.value.id.as_str())
        }
        Command::List { status, limit, common } => {
            list(app, &common.tenant.id, status, limit, common.json).await
        }
        Command::Show { conversation, common } => {
            let conversation = conversation.resolve(app, &common.tenant.id).await?;
            show(app.executions.conversation(&common.tenant.id, &conversation).await?, common.json)
        }
        Command::Set { conversation, change, status, new_session, common } => {
            let conversation = conversation.resolve(app, &common.tenant.id).await?;
            let patch =
                ConversationPatch { status, forget_session: new_session, ..change.patch()? };
            show(
                app.executions.update_conversation(&common.tenant.id, &conversation, patch).await?,
                common.json,
            )
        }
        Command::Archive { conversation, common } => {
            let conversation = conversation.resolve(app, &common.tenant.id).await?;
            let archived = app.executions.archive_conversation(&common.tenant.id, &conversation);
            show(archived.await?, common.json)
        }
        Command::Messages { conversation, common } => {
            let conversation = conversation.resolve(app, &common.tenant.id).await?;
            messages(app, &common.tenant.id, &conversation, common.json).await
        }
        Command::Remove { conversation, yes, tenant } => {
            let conversation = conversation.resolve(app, &tenant.id).await?;
            app.executions.conversation(&tenant.id, &conversation).await?;
            if !yes {
                let what = format!(
                    "this removes conversation {conversation}, its messages and files for good"
                );
                return Err(Failure::new(Exit::Refused, what, "add --yes if you mean it"));
            }
            app.executions.delete_conversation(&tenant.id, &conversation).await?;
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
    let page = app.executions.list_conversations(tenant, status, None, limit).await?;
    let row = |stored: &StoredDocument<Conversation>| {
        let conversation = &stored.value;
        vec![
            conversation.id.to_string(),
            conversation.status.as_str().to_owned(),
            conversation.turns.to_string(),
            stored.updated_at.to_string(),
            short(conversation.title.as_deref().unwrap_or_default(), 60),
        ]
    };
    let columns = [
        TableColumn::id("id"),
        TableColumn::state("status"),
        TableColumn::text("turns"),
        TableColumn::time("changed"),
        TableColumn::text("title"),
    ];
    let empty = none_yet("conversations", status.is_some(), "run \"Hello\"");
    let page = if json.json { page } else { (page.0, None) };
    print_page::<ConversationJson, _>(page, json, &columns, &empty, row)
}

fn show(stored: StoredDocument<Conversation>, json: JsonArgument) -> Result<(), Failure> {
    print_record::<ConversationJson, _>(stored, json, |stored| {
        let conversation = &stored.value;
        let model = conversation.model_id.as_ref().map(ModelId::as_str);
        let workspace = conversation.workspace_enabled;
        vec![
            ("conversation", conversation.id.to_string()),
            ("title", or_none(conversation.title.as_deref())),
            ("status", Output::stdout().state(conversation.status.as_str())),
            ("turns", conversation.turns.to_string()),
            ("model", model.map_or("the tenant's".to_owned(), str::to_owned)),
            ("workspace", workspace.map_or("as the tenant".to_owned(), |yes| yes.to_string())),
            ("session", or_none(conversation.session_id.as_deref())),
            ("created", Output::stdout().time(stored.created_at)),
            ("changed", Output::stdout().time(stored.updated_at)),
        ]
    })
}

async fn messages(
    app: &App,
    tenant: &TenantId,
    id: &ConversationId,
    json: JsonArgument,
) -> Result<(), Failure> {
    let all =
        all_pages(async |after| app.executions.list_messages(tenant, id, after, 100).await).await?;
    let row = |stored: &StoredDocument<MessageLog>| {
        let message = &stored.value;
        let content = match &message.content {
            Value::String(text) => short(text, 80),
            other => short(&other.to_string(), 80),
        };
        vec![message.turn.to_string(), message.at.to_string(), message.kind.word(), content]
    };
    let columns = [
        TableColumn::text("turn"),
        TableColumn::time("at"),
        TableColumn::text("type"),
        TableColumn::text("content"),
    ];
    let empty =
        format!("No messages yet. Say something: shikiri run \"Hello\" --conversation {id}");
    print_page::<MessageJson, _>((all, None), json, &columns, &empty, row)
}
