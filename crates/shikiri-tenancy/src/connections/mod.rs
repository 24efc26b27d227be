//! Use cases of MCP clients' connections: open, use, follow calls on them, close.

mod connection_counts;
mod connection_sweep;
mod tickets;

use std::time::Duration;

use serde_json::{Value, json};
use shikiri_model::connection::{
    CallContinuation, ClientInfo, InterimReply, LogLevel, MAX_SUBSCRIPTIONS, McpConnection,
};
use shikiri_model::event::{EventRef, NewEvent, Seq};
use shikiri_model::ids::{ConnectionId, RunId, TenantId};
use shikiri_model::key::SecretToken;
use shikiri_model::record::{
    Document, ExpectedVersion, Record, RecordChange, RecordClaim, RecordQuery, StoredDocument,
};
use shikiri_model::time::Timestamp;
use shikiri_store::{Commit, CommitError, StoreError, StoreExt, StreamAppend, store};

pub(crate) use self::connection_counts::ConnectionCounts;
pub use self::connection_sweep::ConnectionSweep;
use crate::Tenancy;
use shikiri_runtime::AppError;
use shikiri_runtime::run::{NewRun, RunView};
use shikiri_runtime::{entropy, random};

/// A connection to be opened.
#[derive(Clone, Debug)]
pub struct NewConnection {
    pub tenant: TenantId,
    pub principal: String,
    pub protocol: String,
    pub client: ClientInfo,
    pub capabilities: Value,
}

/// Records that one sweep ends at a time.
const SWEEP_BATCH: u32 = 100;
const DAILY_LIFE_MS: u64 = 48 * 3_600_000;
/// How many recent events are searched for a call that its caller cancels.
const RECENT_EVENTS: u64 = 2_000;
const PAGE_BYTES: usize = 256 * 1024;
/// Connections that are considered when room for another must be made.
const CANDIDATES: u32 = 50;

impl Tenancy {
    pub async fn open_connection(&self, new: NewConnection) -> Result<McpConnection, AppError> {
        self.make_room(&new.tenant, &new.principal).await?;
        let now = self.runtime.store().now().await?;
        let connection = self.new_connection(ConnectionId::mint(now, entropy()?), new, now)?;
        self.runtime.commit_in_tenant(&connection.tenant, opening(&connection)?).await?;
        Ok(connection)
    }

    /// The connection that holds today's calls of a caller without a connection of its own.
    pub async fn daily_connection(&self, new: NewConnection) -> Result<McpConnection, AppError> {
        let now = self.runtime.store().now().await?;
        let id = daily_id(&new.principal, now)?;
        let mut connection = self.new_connection(id, new, now)?;
        // It lives through its day, even if the idle limit is shorter.
        connection.idle_limit_ms = connection.idle_limit_ms.max(DAILY_LIFE_MS);
        match self.runtime.commit_in_tenant(&connection.tenant, opening(&connection)?).await {
            Ok(_) => Ok(connection),
            Err(refused) => match AppError::from(refused) {
                // Made by an earlier call of today, here or on another node.
                AppError::Exists { .. } => {
                    let found = self
                        .runtime
                        .store()
                        .load(&connection.tenant, connection.id.as_str())
                        .await?;
                    found.map(|stored: StoredDocument<McpConnection>| stored.value).ok_or_else(
                        || {
                            AppError::Unavailable(
                                "the connection ended just now: try again".to_owned(),
                            )
                        },
                    )
                }
                other => Err(other),
            },
        }
    }

    fn new_connection(
        &self,
        id: ConnectionId,
        new: NewConnection,
        now: Timestamp,
    ) -> Result<McpConnection, AppError> {
        let idle = self.options.idle.as_millis();
        Ok(McpConnection {
            id,
            tenant: new.tenant,
            principal: new.principal,
            protocol: new.protocol,
            client: new.client,
            capabilities: new.capabilities,
            log_level: None,
            subscriptions: Vec::new(),
            seen_at: now,
            idle_limit_ms: u64::try_from(idle).unwrap_or(u64::MAX),
            salt: SecretToken::mint(random()?).reveal().to_owned(),
        })
    }

    /// The connection, if it is this principal's and has not ended. Notes that it is in use.
    pub async fn connection(
        &self,
        tenant: &TenantId,
        id: &ConnectionId,
        principal: &str,
    ) -> Result<Option<McpConnection>, AppError> {
        let found = self.runtime.store().load::<McpConnection>(tenant, id.as_str()).await?;
        let Some(stored) = found.filter(|stored| stored.value.principal == principal) else {
            return Ok(None);
        };
        let now = self.runtime.store().now().await?;
        if stored.value.ends_at() <= now {
            return Ok(None);
        }
        if stored.value.is_touch_due(now) {
            let seen = |connection: &mut McpConnection| {
                connection.seen_at = now;
                Ok(())
            };
            return match self.runtime.update(tenant, id.as_str(), seen).await {
                Ok(stored) => Ok(Some(stored.value)),
                Err(AppError::NotFound { .. }) => Ok(None),
                Err(other) => Err(other),
            };
        }
        Ok(Some(stored.value))
    }

    pub async fn set_log_level(
        &self,
        connection: &McpConnection,
        level: LogLevel,
    ) -> Result<McpConnection, AppError> {
        self.change_connection(connection, |connection| {
            connection.log_level = Some(level);
            Ok(())
        })
        .await
    }

    pub async fn subscribe(
        &self,
        connection: &McpConnection,
        uri: &str,
    ) -> Result<McpConnection, AppError> {
        self.change_connection(connection, |connection| {
            if connection.subscriptions.iter().any(|known| known == uri) {
                return Ok(());
            }
            if connection.subscriptions.len() >= MAX_SUBSCRIPTIONS {
                let reason = format!("at most {MAX_SUBSCRIPTIONS} subscriptions: end one first");
                return Err(AppError::invalid("uri", reason));
            }
            connection.subscriptions.push(uri.to_owned());
            Ok(())
        })
        .await
    }

    pub async fn unsubscribe(
        &self,
        connection: &McpConnection,
        uri: &str,
    ) -> Result<McpConnection, AppError> {
        self.change_connection(connection, |connection| {
            connection.subscriptions.retain(|known| known != uri);
            Ok(())
        })
        .await
    }

    /// Changes a connection, and notes that on its stream so that every node learns of it.
    async fn change_connection(
        &self,
        connection: &McpConnection,
        change: impl Fn(&mut McpConnection) -> Result<(), AppError> + Send + Sync,
    ) -> Result<McpConnection, AppError> {
        let changed =
            self.runtime.update(&connection.tenant, connection.id.as_str(), change).await?.value;
        self.note_on_connection(&changed, NewEvent::from_value("changed", &json!({}))).await?;
        Ok(changed)
    }

    /// Appends an event to the connection's stream; returns its sequence number.
    pub async fn note_on_connection(
        &self,
        connection: &McpConnection,
        event: NewEvent,
    ) -> Result<Seq, AppError> {
        let append =
            StreamAppend::to_existing(connection.tenant.clone(), connection.stream(), vec![event]);
        match self.runtime.store().commit(Commit::new().append(append)).await {
            Ok(committed) => Ok(committed.appended.first().map_or(0, |a| a.last_seq)),
            Err(CommitError::Closed(_)) => Err(AppError::not_found("connection", &connection.id)),
            Err(other) => Err(other.into()),
        }
    }

    /// One event of the connection's stream.
    pub async fn connection_event<T>(
        &self,
        connection: &McpConnection,
        seq: Seq,
        read: impl FnOnce(EventRef<'_>) -> Option<T>,
    ) -> Result<Option<T>, AppError> {
        let Some(before) = seq.checked_sub(1) else { return Ok(None) };
        let page = match self
            .runtime
            .store()
            .read(&connection.tenant, &connection.stream(), before, 1)
            .await
        {
            Ok(page) => page,
            Err(StoreError::NoStream(_) | StoreError::Cursor(_)) => return Ok(None),
            Err(other) => return Err(other.into()),
        };
        let mut events = page.chunks.iter().flat_map(|chunk| chunk.events());
        Ok(events.find(|event| event.seq == seq).and_then(read))
    }

    /// The latest events of the connection's stream, oldest first.
    pub async fn read_connection(
        &self,
        connection: &McpConnection,
        mut read: impl FnMut(EventRef<'_>) + Send,
    ) -> Result<(), AppError> {
        let (tenant, stream) = (&connection.tenant, connection.stream());
        let Some(state) = self.runtime.store().stream(tenant, &stream).await? else {
            return Ok(());
        };
        let mut after = state.extent.head.saturating_sub(RECENT_EVENTS);
        while after < state.extent.head {
            let page = self.runtime.store().read(tenant, &stream, after, PAGE_BYTES).await?;
            let Some(last) = page.chunks.last() else { break };
            let reached = last.last_seq();
            page.chunks.iter().flat_map(|chunk| chunk.events_after(after)).for_each(&mut read);
            after = reached;
        }
        Ok(())
    }

    /// Starts a run and records, in the same commit, the call that it answers; returns the sequence
    /// number of the call.
    pub async fn start_called_run(
        &self,
        connection: &McpConnection,
        new: NewRun,
        call: impl Fn(&RunId) -> NewEvent + Send + Sync,
    ) -> Result<(RunView, Seq), AppError> {
        let append = |run: &RunId| {
            let event = call(run);
            StreamAppend::to_existing(connection.tenant.clone(), connection.stream(), vec![event])
        };
        self.runtime.start_run_beside(&connection.tenant, new, append).await
    }

    /// Answers a call before its run has ended. The first reply is the one that counts.
    pub async fn hand_over(
        &self,
        connection: &McpConnection,
        call: Seq,
        after: Seq,
        reply: Value,
    ) -> Result<InterimReply, AppError> {
        let interim = InterimReply::new(connection, call, after, reply);
        let put = RecordChange::put(&interim, ExpectedVersion::New)?;
        match self.runtime.store().commit(Commit::new().record(put)).await {
            Ok(_) => Ok(interim),
            Err(CommitError::Exists(_)) => {
                let found = self.handover(connection, call).await?;
                found.ok_or_else(|| AppError::not_found("connection", &connection.id))
            }
            Err(other) => Err(other.into()),
        }
    }

    pub async fn handover(
        &self,
        connection: &McpConnection,
        call: Seq,
    ) -> Result<Option<InterimReply>, AppError> {
        let id = InterimReply::id_of(&connection.id, call);
        let found = self.runtime.store().load::<InterimReply>(&connection.tenant, &id).await?;
        Ok(found.map(|stored| stored.value))
    }

    /// Ends a connection: its stream and its id are no longer valid.
    pub async fn close_connection(&self, connection: &McpConnection) -> Result<(), AppError> {
        let found = self
            .runtime
            .store()
            .load::<McpConnection>(&connection.tenant, connection.id.as_str())
            .await?;
        match found {
            Some(stored) => self.end_connection(&stored).await,
            None => Ok(()),
        }
    }

    async fn end_connection(&self, stored: &StoredDocument<McpConnection>) -> Result<(), AppError> {
        let connection = &stored.value;
        let mut replies = self.replies_of(connection).await?;
        let ended = NewEvent::from_value("ended", &json!({}));
        let close =
            StreamAppend::to_existing(connection.tenant.clone(), connection.stream(), vec![ended]);
        let mut commit = Commit::new().append(StreamAppend { close: true, ..close });
        let delete = |key, version| RecordChange::Delete { key, version };
        commit.records.push(delete(connection.key(), stored.version));
        while commit.records.len() + replies.len() > 0 {
            let old = replies.into_iter().map(|old| delete(old.key, old.version));
            commit.records.extend(old);
            match self.runtime.store().commit(std::mem::take(&mut commit)).await {
                Ok(_) => {}
                // It was ended or used meanwhile.
                Err(CommitError::Conflict(_) | CommitError::Closed(_)) => return Ok(()),
                Err(other) => return Err(other.into()),
            }
            replies = self.replies_of(connection).await?;
        }
        Ok(())
    }

    /// Interim replies of a connection: at most as many as one commit should hold.
    async fn replies_of(&self, connection: &McpConnection) -> Result<Vec<Record>, AppError> {
        let query = RecordQuery {
            parent: Some(connection.id.to_string()),
            limit: SWEEP_BATCH,
            ..RecordQuery::of::<InterimReply>(&connection.tenant)
        };
        Ok(self.runtime.store().list(query).await?)
    }

    /// Makes room for a connection: a principal at its limit loses the one that was idle longest.
    async fn make_room(&self, tenant: &TenantId, principal: &str) -> Result<(), AppError> {
        let max = self.options.max_per_principal;
        if !self.connection_counts.is_full(principal, max) {
            self.connection_counts.add(principal);
            return Ok(());
        }
        let own = |limit, after| RecordQuery {
            parent: Some(principal.to_owned()),
            after,
            limit,
            ..RecordQuery::of::<McpConnection>(tenant)
        };
        let (mut count, mut after) = (0, None);
        loop {
            let (page, next) = self.runtime.list_records::<McpConnection>(own(200, after)).await?;
            count += page.len();
            match next {
                Some(next) => after = Some(next),
                None => break,
            }
        }
        if count >= max {
            let (oldest, _) =
                self.runtime.list_records::<McpConnection>(own(CANDIDATES, None)).await?;
            // The connection of today is in use, however long ago it was opened.
            let daily = daily_id(principal, self.runtime.store().now().await?)?;
            let others = oldest.iter().filter(|stored| stored.value.id != daily);
            if let Some(idlest) = others.min_by_key(|stored| stored.value.seen_at) {
                self.end_connection(idlest).await?;
                count -= 1;
            }
        }
        self.connection_counts.set(principal, count + 1);
        Ok(())
    }

    /// Ends connections that were idle for too long, and deletes expired tickets. A run whose caller
    /// was asked and never came back is stopped.
    pub(crate) async fn sweep_connections(&self) -> Result<(), AppError> {
        for record in self.claim_due(McpConnection::KIND).await? {
            let stored = store::decode::<McpConnection>(&record)?;
            if stored.value.ends_at() <= self.runtime.store().now().await? {
                self.end_connection(&stored).await?;
            } else {
                // Used since: due again at its new end.
                let put =
                    RecordChange::put(&stored.value, ExpectedVersion::Version(stored.version))?;
                match self.runtime.store().commit(Commit::new().record(put)).await {
                    Ok(_) | Err(CommitError::Conflict(_)) => {}
                    Err(other) => return Err(other.into()),
                }
            }
        }
        for record in self.claim_due(CallContinuation::KIND).await? {
            self.stop_unanswered(&store::decode::<CallContinuation>(&record)?.value).await?;
            let delete = RecordChange::Delete { key: record.key, version: record.version };
            match self.runtime.store().commit(Commit::new().record(delete)).await {
                Ok(_) | Err(CommitError::Conflict(_)) => {}
                Err(other) => return Err(other.into()),
            }
        }
        Ok(())
    }

    async fn claim_due(&self, kind: &'static str) -> Result<Vec<Record>, AppError> {
        // Checked first: a sweep that has nothing to do should write nothing.
        let next = self.runtime.store().next_due(kind).await?;
        let now = self.runtime.store().now().await?;
        if next.is_none_or(|due| due > now) {
            return Ok(Vec::new());
        }
        let claim = RecordClaim {
            kind,
            tenant: None,
            parent: None,
            owner: Some("sweep".to_owned()),
            hold: Duration::from_secs(30),
            limit: SWEEP_BATCH,
        };
        Ok(self.runtime.store().commit(Commit::new().claim(claim)).await?.claimed)
    }
}

fn daily_id(principal: &str, now: Timestamp) -> Result<ConnectionId, AppError> {
    let day = now.as_millis() / 86_400_000;
    let id = format!("con_{principal}-{day}").parse();
    id.map_err(|_| AppError::invalid("principal", "cannot be part of an id"))
}

fn opening(connection: &McpConnection) -> Result<Commit, AppError> {
    let data = json!({
        "principal": connection.principal,
        "protocol": connection.protocol,
        "client": connection.client,
    });
    let opened = NewEvent::from_value("opened", &data);
    let append = StreamAppend::new(connection.tenant.clone(), connection.stream(), vec![opened]);
    Ok(Commit::new().record(RecordChange::put(connection, ExpectedVersion::New)?).append(append))
}
