//! Records: typed documents with a few searchable columns.
//!
//! A change names the version that was read, so two writers never overwrite each other. `due_at`
//! makes any kind of record a work queue: a record can be claimed from that time on, a claim moves
//! the time into the future, and a change with the claimed version completes the work. If a claimer
//! dies, the record becomes due again.

use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::ids::TenantId;
use crate::time::Timestamp;

/// The key of a record, unique in the store.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RecordKey {
    pub kind: &'static str,
    pub tenant: TenantId,
    pub id: String,
}

/// The searchable columns of a record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecordColumns {
    pub state: String,
    /// The owner in listings, such as a run's parent or a key's tenant.
    pub parent: Option<String>,
    /// The node that works on it, or the agent whose list it is on.
    pub owner: Option<String>,
    /// Unique among the records of this kind and tenant.
    pub unique: Option<String>,
    /// When it can be claimed next. None: never.
    pub due_at: Option<Timestamp>,
}

impl RecordColumns {
    /// Columns that hold only a state.
    pub(crate) fn in_state(state: &str) -> Self {
        Self { state: state.to_owned(), ..Self::default() }
    }
}

/// A record as the store returns it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    pub key: RecordKey,
    /// 1 at first, and one more with every change.
    pub version: u64,
    /// Claims since the last change.
    pub attempts: u32,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    pub columns: RecordColumns,
    /// One JSON document.
    pub doc: String,
}

/// A type that is stored as a record.
pub trait Document: Serialize + DeserializeOwned {
    const KIND: &'static str;

    fn tenant(&self) -> TenantId;
    fn id(&self) -> &str;
    fn columns(&self) -> RecordColumns;

    fn key(&self) -> RecordKey {
        RecordKey { kind: Self::KIND, tenant: self.tenant(), id: self.id().to_owned() }
    }
}

/// A document with the store's data about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredDocument<T> {
    pub version: u64,
    pub attempts: u32,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    pub value: T,
}

impl Record {
    pub fn decode<T: Document>(&self) -> Result<StoredDocument<T>, serde_json::Error> {
        Ok(StoredDocument {
            version: self.version,
            attempts: self.attempts,
            created_at: self.created_at,
            updated_at: self.updated_at,
            value: serde_json::from_str(&self.doc)?,
        })
    }
}

/// The version that a writer expects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpectedVersion {
    New,
    Version(u64),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecordChange {
    Put { key: RecordKey, expect: ExpectedVersion, columns: RecordColumns, doc: String },
    Delete { key: RecordKey, version: u64 },
}

impl RecordChange {
    pub fn put<T: Document>(value: &T, expect: ExpectedVersion) -> Result<Self, serde_json::Error> {
        Ok(Self::Put {
            key: value.key(),
            expect,
            columns: value.columns(),
            doc: serde_json::to_string(value)?,
        })
    }

    pub fn key(&self) -> &RecordKey {
        match self {
            Self::Put { key, .. } | Self::Delete { key, .. } => key,
        }
    }
}

/// Claims up to `limit` due records, oldest due first, and hides them for `hold`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordClaim {
    pub kind: &'static str,
    /// Only records of this tenant, if given.
    pub tenant: Option<TenantId>,
    /// Only records with this parent, if given.
    pub parent: Option<String>,
    /// The new owner; None keeps the owner.
    pub owner: Option<String>,
    pub hold: Duration,
    pub limit: u32,
}

impl RecordClaim {
    pub fn wants(&self, record: &Record, now: Timestamp) -> bool {
        self.kind == record.key.kind
            && self.tenant.as_ref().is_none_or(|tenant| *tenant == record.key.tenant)
            && self.parent.as_ref().is_none_or(|p| Some(p) == record.columns.parent.as_ref())
            && record.columns.due_at.is_some_and(|due| due <= now)
    }

    /// The record as claimed.
    pub fn take(&self, record: &Record, now: Timestamp) -> Record {
        let mut claimed = record.clone();
        claimed.version += 1;
        claimed.attempts += 1;
        claimed.updated_at = now;
        if self.owner.is_some() {
            claimed.columns.owner.clone_from(&self.owner);
        }
        claimed.columns.due_at = Some(now + self.hold);
        claimed
    }
}

/// Selects a page of records in order of creation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecordQuery {
    pub kind: &'static str,
    pub tenant: Option<TenantId>,
    pub state: Option<String>,
    pub parent: Option<String>,
    pub owner: Option<String>,
    /// Only records after this position.
    pub after: Option<RecordPosition>,
    pub newest_first: bool,
    pub limit: u32,
}

impl RecordQuery {
    /// All records of a kind and tenant.
    pub fn of<T: Document>(tenant: &TenantId) -> Self {
        Self { kind: T::KIND, tenant: Some(tenant.clone()), ..Self::default() }
    }
}

/// The position of a record in a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordPosition {
    pub created_at: Timestamp,
    pub id: String,
}

impl RecordPosition {
    /// An opaque text for `next_cursor`.
    pub fn encode(&self) -> String {
        format!("{:x}.{}", self.created_at.as_millis(), self.id)
    }

    pub fn decode(text: &str) -> Option<Self> {
        let (at, id) = text.split_once('.')?;
        let ms = i64::from_str_radix(at, 16).ok()?;
        crate::ids::is_valid(id)
            .then(|| Self { created_at: Timestamp::from_millis(ms), id: id.to_owned() })
    }
}

impl Record {
    pub fn position(&self) -> RecordPosition {
        RecordPosition { created_at: self.created_at, id: self.key.id.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(due_at: Option<i64>) -> Record {
        Record {
            key: RecordKey { kind: "thing", tenant: TenantId::local(), id: "t1".into() },
            version: 3,
            attempts: 0,
            created_at: Timestamp::default(),
            updated_at: Timestamp::default(),
            columns: RecordColumns {
                parent: Some("p".into()),
                due_at: due_at.map(Timestamp::from_millis),
                ..RecordColumns::default()
            },
            doc: "{}".into(),
        }
    }

    fn claim(parent: Option<&str>) -> RecordClaim {
        RecordClaim {
            kind: "thing",
            tenant: Some(TenantId::local()),
            parent: parent.map(str::to_owned),
            owner: Some("me".into()),
            hold: Duration::from_millis(50),
            limit: 1,
        }
    }

    #[test]
    fn a_claim_takes_what_is_due_and_hides_it_for_its_hold() {
        let now = Timestamp::from_millis(10);
        assert!(claim(None).wants(&record(Some(10)), now));
        assert!(claim(Some("p")).wants(&record(Some(10)), now));
        assert!(!claim(Some("q")).wants(&record(Some(10)), now));
        assert!(!claim(None).wants(&record(Some(11)), now));
        assert!(!claim(None).wants(&record(None), now));

        let taken = claim(None).take(&record(Some(10)), now);
        assert_eq!((taken.version, taken.attempts), (4, 1));
        assert_eq!(taken.columns.owner.as_deref(), Some("me"));
        let kept = RecordClaim { owner: None, ..claim(None) }.take(&taken, now);
        assert_eq!(kept.columns.owner.as_deref(), Some("me"));
        assert!(!claim(None).wants(&taken, Timestamp::from_millis(59)));
        assert!(claim(None).wants(&taken, Timestamp::from_millis(60)));
    }

    #[test]
    fn list_positions_are_read_back_and_nonsense_is_refused() {
        let position = record(None).position();
        assert_eq!(RecordPosition::decode(&position.encode()), Some(position));
        for bad in ["", ".", "x", "zz.t1", "1.", "1.a b"] {
            assert_eq!(RecordPosition::decode(bad), None, "{bad:?}");
        }
    }
}
