//! The audit log: every change of permissions, in an append-only stream of its own.
//!
//! An entry is committed together with the change that it describes. It lists the names of fields,
//! never their values, which may be secrets.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::event::{EventRef, Seq, StreamId};
use crate::ids::{KeyId, TenantId};
use crate::key::ApiKey;
use crate::macros::text_enum;
use crate::models::Model;
use crate::record::Document;
use crate::server::McpServer;
use crate::team::{ProjectMembership, TeamAgent};
use crate::tenant::Tenant;
use crate::time::Timestamp;
use crate::tool::ToolPins;

/// The kind of the stream's events.
pub const AUDIT_EVENT: &str = "audit";

/// Kinds of records that decide who may do what. Their changes are audited.
pub const AUDITED_KINDS: [&str; 7] = [
    Tenant::KIND,
    ApiKey::KIND,
    Model::KIND,
    McpServer::KIND,
    ToolPins::KIND,
    TeamAgent::KIND,
    ProjectMembership::KIND,
];

/// A person's consent to a project's files. The store has no record of it: the id of the entry is
/// the project's folder, and the fields are the names of the files.
pub const TRUST_KIND: &str = "trust";

/// Fields that are left out: the entry names the record already.
const OMITTED_FIELDS: [&str; 3] = ["id", "tenant", "hash"];

pub fn audit_stream() -> StreamId {
    StreamId::new("audit")
}

pub fn is_audited(kind: &str) -> bool {
    AUDITED_KINDS.contains(&kind)
}

/// The author of a change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum AuditActor {
    /// The holder of an API key.
    Key { id: KeyId, name: String },
    /// A person at the command line with access to the store.
    Cli { user: String },
    /// The server itself.
    System,
}

/// The author of a change, and its origin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditOrigin {
    pub actor: AuditActor,
    /// The remote address of the connection.
    pub from: Option<String>,
}

impl AuditOrigin {
    pub fn system() -> Self {
        Self { actor: AuditActor::System, from: None }
    }
}

text_enum! {
    pub enum AuditAction {
        Create = "create",
        Change = "change",
        Remove = "remove",
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditEntry {
    pub who: AuditActor,
    #[serde(default)]
    pub from: Option<String>,
    pub action: AuditAction,
    /// The kind of the changed record.
    pub kind: String,
    pub id: String,
    /// The tenant of the record; None for records of the whole server.
    #[serde(default)]
    pub tenant: Option<TenantId>,
    /// Names of the fields that were set or changed.
    #[serde(default)]
    pub fields: Vec<String>,
}

/// An entry as the log stores it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditRecord {
    pub seq: Seq,
    pub at: Timestamp,
    #[serde(flatten)]
    pub entry: AuditEntry,
}

impl AuditRecord {
    pub fn read(event: EventRef<'_>) -> Result<Self, serde_json::Error> {
        Ok(Self { seq: event.seq, at: event.at, entry: serde_json::from_str(event.data)? })
    }
}

/// The entry for a change from `before` to `after`. None if the kind is not audited or nothing
/// changed.
pub fn audit_entry<T: Document>(
    origin: &AuditOrigin,
    before: Option<&T>,
    after: Option<&T>,
) -> Result<Option<AuditEntry>, serde_json::Error> {
    let Some(record) = after.or(before).filter(|_| is_audited(T::KIND)) else { return Ok(None) };
    let action = match (before, after) {
        (None, _) => AuditAction::Create,
        (Some(_), Some(_)) => AuditAction::Change,
        (Some(_), None) => AuditAction::Remove,
    };
    let value = |record: Option<&T>| record.map(serde_json::to_value).transpose();
    let fields = match action {
        AuditAction::Remove => Vec::new(),
        _ => {
            changed_fields(&value(before)?.unwrap_or_default(), &value(after)?.unwrap_or_default())
        }
    };
    if action == AuditAction::Change && fields.is_empty() {
        return Ok(None);
    }
    Ok(Some(AuditEntry {
        who: origin.actor.clone(),
        from: origin.from.clone(),
        action,
        kind: T::KIND.to_owned(),
        id: record.id().to_owned(),
        tenant: owner(record),
        fields,
    }))
}

/// The records of tenants and keys belong to the system, but are about a tenant.
fn owner<T: Document>(record: &T) -> Option<TenantId> {
    let named = match T::KIND {
        Tenant::KIND => Some(record.id().to_owned()),
        ApiKey::KIND => record.columns().parent,
        _ => Some(record.tenant().to_string()),
    };
    named.and_then(|id| id.parse().ok()).filter(|id| *id != TenantId::system())
}

/// The names of the fields in which two documents differ. Fields of nested objects are listed one
/// by one.
fn changed_fields(before: &Value, after: &Value) -> Vec<String> {
    let mut fields = Vec::new();
    for name in names(before, after) {
        let (old, new) = (&before[&name], &after[&name]);
        if old == new || OMITTED_FIELDS.contains(&name.as_str()) {
            continue;
        }
        let inner: Vec<_> = names(old, new).into_iter().filter(|n| old[n] != new[n]).collect();
        match inner.is_empty() {
            true => fields.push(name),
            false => fields.extend(inner.into_iter().map(|part| format!("{name}.{part}"))),
        }
    }
    fields
}

fn names(before: &Value, after: &Value) -> Vec<String> {
    let of = |value: &Value| value.as_object().map(|o| o.keys().cloned().collect::<Vec<_>>());
    let mut all = of(before).unwrap_or_default();
    all.extend(of(after).unwrap_or_default());
    all.sort_unstable();
    all.dedup();
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::{KeyScope, SecretToken};

    fn origin() -> AuditOrigin {
        AuditOrigin { actor: AuditActor::Cli { user: "taro".to_owned() }, from: None }
    }

    #[test]
    fn a_change_names_its_fields_and_no_values() {
        let before = Tenant::new("acme".parse().unwrap(), "Acme".to_owned());
        let mut after = before.clone();
        after.name = "secret name".to_owned();
        after.limits.max_streams = Some(7);
        let entry = audit_entry(&origin(), Some(&before), Some(&after)).unwrap().unwrap();
        assert_eq!(entry.action, AuditAction::Change);
        assert_eq!((entry.kind.as_str(), entry.id.as_str()), ("tenant", "acme"));
        assert_eq!(entry.tenant, Some("acme".parse().unwrap()));
        assert_eq!(entry.fields, ["limits.max_streams", "name"]);
        assert!(!serde_json::to_string(&entry).unwrap().contains("secret"));
        assert_eq!(audit_entry(&origin(), Some(&before), Some(&before)).unwrap(), None);
    }

    #[test]
    fn a_key_is_told_of_without_its_hash() {
        let key = ApiKey {
            id: "key_1".parse().unwrap(),
            name: "deploy".to_owned(),
            scope: KeyScope::Tenant("acme".parse().unwrap()),
            hash: SecretToken::mint([7; 32]).hash(),
            expires_at: None,
        };
        let made = audit_entry(&origin(), None, Some(&key)).unwrap().unwrap();
        assert_eq!((made.action, made.tenant), (AuditAction::Create, "acme".parse().ok()));
        assert_eq!(made.fields, ["name", "scope.tenant"]);
        let gone = audit_entry(&origin(), Some(&key), None).unwrap().unwrap();
        assert_eq!((gone.action, gone.fields), (AuditAction::Remove, Vec::new()));
    }
}
