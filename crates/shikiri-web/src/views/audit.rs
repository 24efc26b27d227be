use serde::Serialize;
use shikiri_model::audit::{Actor, AuditAction, AuditRecord};
use shikiri_model::event::Seq;
use shikiri_model::time::Timestamp;
use utoipa::ToSchema;

/// One change of who may do what.
#[derive(Serialize, ToSchema)]
#[schema(as = AuditEntry)]
pub struct AuditJson {
    seq: u64,
    #[schema(value_type = String, format = DateTime)]
    at: Timestamp,
    who: ActorJson,
    /// The address that the request came from.
    from: Option<String>,
    action: AuditActionJson,
    /// Of the record that was changed: tenant, key, model, mcp_server, tool_pins, agent,
    /// membership or trust.
    kind: String,
    id: String,
    /// Whose it is; null for what is the whole server's.
    tenant: Option<String>,
    /// Names of the fields that were set or changed, never their values.
    fields: Vec<String>,
}

/// The holder of a key, a person at the command line, or the server itself.
#[derive(Serialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
#[schema(as = Actor)]
enum ActorJson {
    Key { id: String, name: String },
    Cli { user: String },
    System,
}

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = AuditAction)]
enum AuditActionJson {
    Create,
    Change,
    Remove,
}

/// A page of the audit log.
#[derive(Serialize, ToSchema)]
pub struct AuditPage {
    items: Vec<AuditJson>,
    /// `after` of the next page; null on the last.
    next_cursor: Option<String>,
}

impl AuditPage {
    pub fn new(items: Vec<AuditJson>, next: Option<Seq>) -> Self {
        Self { items, next_cursor: next.map(|seq| seq.to_string()) }
    }
}

impl From<AuditRecord> for AuditJson {
    fn from(AuditRecord { seq, at, entry }: AuditRecord) -> Self {
        Self {
            seq,
            at,
            who: match entry.who {
                Actor::Key { id, name } => ActorJson::Key { id: id.to_string(), name },
                Actor::Cli { user } => ActorJson::Cli { user },
                Actor::System => ActorJson::System,
            },
            from: entry.from,
            action: match entry.action {
                AuditAction::Create => AuditActionJson::Create,
                AuditAction::Change => AuditActionJson::Change,
                AuditAction::Remove => AuditActionJson::Remove,
            },
            kind: entry.kind,
            id: entry.id,
            tenant: entry.tenant.map(|tenant| tenant.to_string()),
            fields: entry.fields,
        }
    }
}
