//! What one can ask of connections: open, use, follow calls on them, close. Used by the MCP door.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use shikiri_model::connection::{
    ClientInfo, Connection, Continuation, Handover, LogLevel, MAX_SUBSCRIPTIONS,
};
use shikiri_model::event::{EventRef, NewEvent, Seq};
use shikiri_model::ids::{ConnectionId, QuestionId, RunId, TenantId};
use shikiri_model::key::Secret;
use shikiri_model::record::{Claim, Document, Expect, Record, RecordChange, RecordQuery, Stored};
use shikiri_model::time::Timestamp;
use shikiri_store::{Append, Commit, CommitError, StoreError, StoreExt, store};

use crate::app::{App, entropy, random};
use crate::error::AppError;
use crate::run::{NewRun, RunView};

/// Whoever wants a connection.
#[derive(Clone, Debug)]
pub struct NewConnection {
    pub tenant: TenantId,
    pub principal: String,
    pub protocol: String,
    pub client: ClientInfo,
    pub capabilities: Value,
}

/// How long a question to the caller of a stateless request can be answered.
const TICKET_LIFE: Duration = Duration::from_secs(3_600);
/// Ended at a time by one sweep.
const SWEEP_BATCH: u32 = 100;
const DAILY_LIFE_MS: u64 = 48 * 3_600_000;
/// How far back a call is looked for that its caller gives up.
const RECENT_EVENTS: u64 = 2_000;
const PAGE_BYTES: usize = 256 * 1024;
/// Looked at when room for a connection must be made.
const CANDIDATES: u32 = 50;

impl App {
    pub async fn open_connection(&self, new: NewConnection) -> Result<Connection, AppError> {
        self.make_room(&new.tenant, &new.principal).await?;
        let now = self.store.now().await?;
        let connection = self.new_connection(ConnectionId::mint(now, entropy()?), new, now)?;
        self.commit_in_tenant(&connection.tenant, opening(&connection)?).await?;
        Ok(connection)
    }

    /// The connection that holds today's calls of a caller that has none of its own.
    pub async fn daily_connection(&self, new: NewConnection) -> Result<Connection, AppError> {
        let now = self.store.now().await?;
        let id = daily_id(&new.principal, now)?;
        let mut connection = self.new_connection(id, new, now)?;
        // It lives through its day, however short others live.
        connection.idle_limit_ms = connection.idle_limit_ms.max(DAILY_LIFE_MS);
        match self.commit_in_tenant(&connection.tenant, opening(&connection)?).await {
            Ok(_) => Ok(connection),
            Err(refused) => match AppError::from(refused) {
                // Made by an earlier call of today, here or on another node.
                AppError::Exists { .. } => {
                    let found = self.store.load(&connection.tenant, connection.id.as_str()).await?;
                    found.map(|stored: Stored<Connection>| stored.value).ok_or_else(|| {
                        AppError::Unavailable("the connection ended just now: try again".to_owned())
                    })
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
    ) -> Result<Connection, AppError> {
        let idle = self.options.connection_idle.as_millis();
        Ok(Connection {
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
            salt: Secret::mint(random()?).reveal().to_owned(),
        })
    }

    /// The connection, if it is this principal's and has not ended. Notes that it is in use.
    pub async fn connection(
        &self,
        tenant: &TenantId,
        id: &ConnectionId,
        principal: &str,
    ) -> Result<Option<Connection>, AppError> {
        let found = self.store.load::<Connection>(tenant, id.as_str()).await?;
        let Some(stored) = found.filter(|stored| stored.value.principal == principal) else {
            return Ok(None);
        };
        let now = self.store.now().await?;
        if stored.value.ends_at() <= now {
            return Ok(None);
        }
        if stored.value.is_stale(now) {
            let seen = |connection: &mut Connection| {
                connection.seen_at = now;
                Ok(())
            };
            return match self.update(tenant, id.as_str(), seen).await {
                Ok(stored) => Ok(Some(stored.value)),
                Err(AppError::NotFound { .. }) => Ok(None),
                Err(other) => Err(other),
            };
        }
        Ok(Some(stored.value))
    }

    pub async fn set_log_level(
        &self,
        connection: &Connection,
        level: LogLevel,
    ) -> Result<Connection, AppError> {
        self.change_connection(connection, |connection| {
            connection.log_level = Some(level);
            Ok(())
        })
        .await
    }

    pub async fn subscribe(
        &self,
        connection: &Connection,
        uri: &str,
    ) -> Result<Connection, AppError> {
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
        connection: &Connection,
        uri: &str,
    ) -> Result<Connection, AppError> {
        self.change_connection(connection, |connection| {
            connection.subscriptions.retain(|known| known != uri);
            Ok(())
        })
        .await
    }

    /// Whoever has a stream of this connection open, on any node, learns of the change.
    async fn change_connection(
        &self,
        connection: &Connection,
        change: impl Fn(&mut Connection) -> Result<(), AppError> + Send,
    ) -> Result<Connection, AppError> {
        let changed = self.update(&connection.tenant, connection.id.as_str(), change).await?.value;
        self.note_on_connection(&changed, NewEvent::from_value("changed", &json!({}))).await?;
        Ok(changed)
    }

    /// Writes something that happened on the connection; returns its number.
    pub async fn note_on_connection(
        &self,
        connection: &Connection,
        event: NewEvent,
    ) -> Result<Seq, AppError> {
        let append =
            Append::to_existing(connection.tenant.clone(), connection.stream(), vec![event]);
        match self.store.commit(Commit::new().append(append)).await {
            Ok(committed) => Ok(committed.appended.first().map_or(0, |a| a.last_seq)),
            Err(CommitError::Closed(_)) => Err(AppError::not_found("connection", &connection.id)),
            Err(other) => Err(other.into()),
        }
    }

    /// One event of the connection's stream.
    pub async fn connection_event<T>(
        &self,
        connection: &Connection,
        seq: Seq,
        read: impl FnOnce(EventRef<'_>) -> Option<T>,
    ) -> Result<Option<T>, AppError> {
        let Some(before) = seq.checked_sub(1) else { return Ok(None) };
        let page = match self.store.read(&connection.tenant, &connection.stream(), before, 1).await
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
        connection: &Connection,
        mut read: impl FnMut(EventRef<'_>) + Send,
    ) -> Result<(), AppError> {
        let (tenant, stream) = (&connection.tenant, connection.stream());
        let Some(state) = self.store.stream(tenant, &stream).await? else { return Ok(()) };
        let mut after = state.extent.head.saturating_sub(RECENT_EVENTS);
        while after < state.extent.head {
            let page = self.store.read(tenant, &stream, after, PAGE_BYTES).await?;
            let Some(last) = page.chunks.last() else { break };
            let reached = last.last_seq();
            page.chunks.iter().flat_map(|chunk| chunk.events_after(after)).for_each(&mut read);
            after = reached;
        }
        Ok(())
    }

    /// Starts a run and writes down, together with it, the call that it answers; returns the
    /// number of the call.
    pub async fn start_called_run(
        &self,
        connection: &Connection,
        new: NewRun,
        call: impl Fn(&RunId) -> NewEvent + Send + Sync,
    ) -> Result<(RunView, Seq), AppError> {
        let append = |run: &RunId| {
            let event = call(run);
            Append::to_existing(connection.tenant.clone(), connection.stream(), vec![event])
        };
        self.start_run_beside(&connection.tenant, new, append).await
    }

    /// Answers a call before its run has ended. Whoever does so first decides what is read.
    pub async fn hand_over(
        &self,
        connection: &Connection,
        call: Seq,
        after: Seq,
        reply: Value,
    ) -> Result<Handover, AppError> {
        let handover = Handover::new(connection, call, after, reply);
        let put = RecordChange::put(&handover, Expect::New)?;
        match self.store.commit(Commit::new().record(put)).await {
            Ok(_) => Ok(handover),
            Err(CommitError::Exists(_)) => {
                let found = self.handover(connection, call).await?;
                found.ok_or_else(|| AppError::not_found("connection", &connection.id))
            }
            Err(other) => Err(other.into()),
        }
    }

    pub async fn handover(
        &self,
        connection: &Connection,
        call: Seq,
    ) -> Result<Option<Handover>, AppError> {
        let id = Handover::id_of(&connection.id, call);
        let found = self.store.load::<Handover>(&connection.tenant, &id).await?;
        Ok(found.map(|stored| stored.value))
    }

    /// A ticket with which the caller's next request goes on with the run.
    pub async fn issue_ticket(
        &self,
        tenant: &TenantId,
        principal: &str,
        run: &RunId,
        request_digest: &str,
        after: Seq,
        asked: BTreeMap<String, QuestionId>,
    ) -> Result<Secret, AppError> {
        let ticket = Secret::mint_ticket(random()?);
        let continuation = Continuation {
            id: ticket.hash().as_str().to_owned(),
            tenant: tenant.clone(),
            principal: principal.to_owned(),
            run: run.clone(),
            request_digest: request_digest.to_owned(),
            after,
            asked,
            expires_at: self.store.now().await? + TICKET_LIFE,
        };
        let put = RecordChange::put(&continuation, Expect::New)?;
        self.store.commit(Commit::new().record(put)).await?;
        Ok(ticket)
    }

    /// Looks a ticket up: None if it is not one, not this caller's, not for this request, too old
    /// or used.
    pub async fn ticket(
        &self,
        tenant: &TenantId,
        principal: &str,
        ticket: &Secret,
        request_digest: &str,
    ) -> Result<Option<Stored<Continuation>>, AppError> {
        let hash = ticket.hash();
        let found = self.store.load::<Continuation>(tenant, hash.as_str()).await?;
        let now = self.store.now().await?;
        Ok(found.filter(|found| found.value.admits(principal, request_digest, now)))
    }

    /// Takes a ticket that brings no answer. It is used up by this, even if what follows fails.
    pub async fn redeem_ticket(
        &self,
        tenant: &TenantId,
        principal: &str,
        ticket: &Secret,
        request_digest: &str,
    ) -> Result<Option<Continuation>, AppError> {
        let found = self.ticket(tenant, principal, ticket, request_digest).await?;
        let Some(stored) = found else { return Ok(None) };
        let used = RecordChange::Delete { key: stored.value.key(), version: stored.version };
        match self.store.commit(Commit::new().record(used)).await {
            Ok(_) => Ok(Some(stored.value)),
            Err(CommitError::Conflict(_)) => Ok(None),
            Err(other) => Err(other.into()),
        }
    }

    /// Ends a connection: its stream can be read no longer, and its id means nothing.
    pub async fn close_connection(&self, connection: &Connection) -> Result<(), AppError> {
        let found =
            self.store.load::<Connection>(&connection.tenant, connection.id.as_str()).await?;
        match found {
            Some(stored) => self.end_connection(&stored).await,
            None => Ok(()),
        }
    }

    async fn end_connection(&self, stored: &Stored<Connection>) -> Result<(), AppError> {
        let connection = &stored.value;
        let mut handovers = self.handovers_of(connection).await?;
        let ended = NewEvent::from_value("ended", &json!({}));
        let close =
            Append::to_existing(connection.tenant.clone(), connection.stream(), vec![ended]);
        let mut commit = Commit::new().append(Append { close: true, ..close });
        let delete = |key, version| RecordChange::Delete { key, version };
        commit.records.push(delete(connection.key(), stored.version));
        while commit.records.len() + handovers.len() > 0 {
            let old = handovers.into_iter().map(|old| delete(old.key, old.version));
            commit.records.extend(old);
            match self.store.commit(std::mem::take(&mut commit)).await {
                Ok(_) => {}
                // Somebody else ended it, or it was used just now.
                Err(CommitError::Conflict(_) | CommitError::Closed(_)) => return Ok(()),
                Err(other) => return Err(other.into()),
            }
            handovers = self.handovers_of(connection).await?;
        }
        Ok(())
    }

    /// Some of them: as many as one commit should hold.
    async fn handovers_of(&self, connection: &Connection) -> Result<Vec<Record>, AppError> {
        let query = RecordQuery {
            parent: Some(connection.id.to_string()),
            limit: SWEEP_BATCH,
            ..RecordQuery::of::<Handover>(&connection.tenant)
        };
        Ok(self.store.list(query).await?)
    }

    /// A principal that opens ever more connections ends its own oldest idle ones.
    async fn make_room(&self, tenant: &TenantId, principal: &str) -> Result<(), AppError> {
        let max = self.options.max_connections;
        if !self.connection_counts.is_full(principal, max) {
            self.connection_counts.add(principal);
            return Ok(());
        }
        let own = |limit, after| RecordQuery {
            parent: Some(principal.to_owned()),
            after,
            limit,
            ..RecordQuery::of::<Connection>(tenant)
        };
        let (mut count, mut after) = (0, None);
        loop {
            let (page, next) = self.list_records::<Connection>(own(200, after)).await?;
            count += page.len();
            match next {
                Some(next) => after = Some(next),
                None => break,
            }
        }
        if count >= max {
            let (oldest, _) = self.list_records::<Connection>(own(CANDIDATES, None)).await?;
            // Today's own is in use however long ago it was opened.
            let daily = daily_id(principal, self.store.now().await?)?;
            let others = oldest.iter().filter(|stored| stored.value.id != daily);
            if let Some(idlest) = others.min_by_key(|stored| stored.value.seen_at) {
                self.end_connection(idlest).await?;
                count -= 1;
            }
        }
        self.connection_counts.set(principal, count + 1);
        Ok(())
    }

    /// Ends connections that nobody used for long, and forgets tickets past their time.
    pub(crate) async fn sweep_connections(&self) -> Result<(), AppError> {
        for record in self.claim_due(Connection::KIND).await? {
            let stored = store::decode::<Connection>(&record)?;
            if stored.value.ends_at() <= self.store.now().await? {
                self.end_connection(&stored).await?;
            } else {
                // Used since: due again at its new end.
                let put = RecordChange::put(&stored.value, Expect::Version(stored.version))?;
                match self.store.commit(Commit::new().record(put)).await {
                    Ok(_) | Err(CommitError::Conflict(_)) => {}
                    Err(other) => return Err(other.into()),
                }
            }
        }
        for record in self.claim_due(Continuation::KIND).await? {
            let delete = RecordChange::Delete { key: record.key, version: record.version };
            match self.store.commit(Commit::new().record(delete)).await {
                Ok(_) | Err(CommitError::Conflict(_)) => {}
                Err(other) => return Err(other.into()),
            }
        }
        Ok(())
    }

    async fn claim_due(&self, kind: &'static str) -> Result<Vec<Record>, AppError> {
        // Looked at first: a sweep that has nothing to do should write nothing.
        let next = self.store.next_due(kind).await?;
        let now = self.store.now().await?;
        if next.is_none_or(|due| due > now) {
            return Ok(Vec::new());
        }
        let claim = Claim {
            kind,
            tenant: None,
            parent: None,
            owner: Some("sweep".to_owned()),
            hold: Duration::from_secs(30),
            limit: SWEEP_BATCH,
        };
        Ok(self.store.commit(Commit::new().claim(claim)).await?.claimed)
    }
}

fn daily_id(principal: &str, now: Timestamp) -> Result<ConnectionId, AppError> {
    let day = now.as_millis() / 86_400_000;
    let id = format!("con_{principal}-{day}").parse();
    id.map_err(|_| AppError::invalid("principal", "cannot be part of an id"))
}

fn opening(connection: &Connection) -> Result<Commit, AppError> {
    let data = json!({
        "principal": connection.principal,
        "protocol": connection.protocol,
        "client": connection.client,
    });
    let opened = NewEvent::from_value("opened", &data);
    let append = Append::new(connection.tenant.clone(), connection.stream(), vec![opened]);
    Ok(Commit::new().record(RecordChange::put(connection, Expect::New)?).append(append))
}

/// About how many connections each principal has, as far as this process knows.
#[derive(Debug, Default)]
pub(crate) struct ConnectionCounts(Mutex<HashMap<String, usize>>);

impl ConnectionCounts {
    /// Whether they must be counted: there may be too many, or nothing is known yet.
    fn is_full(&self, principal: &str, max: usize) -> bool {
        self.lock().get(principal).is_none_or(|count| *count >= max)
    }

    fn add(&self, principal: &str) {
        *self.lock().entry(principal.to_owned()).or_default() += 1;
    }

    fn set(&self, principal: &str, count: usize) {
        self.lock().insert(principal.to_owned(), count);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
