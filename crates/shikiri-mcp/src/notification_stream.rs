//! Notifications to a client of the older era: a resource that it subscribed to has changed, or a
//! list has.
//!
//! Each is written to the connection's stream first and sent from there. So it has a number, can be
//! read again, and arrives no matter which node noticed the change.

use std::sync::Arc;
use std::time::Duration;

use serde_json::value::RawValue;
use serde_json::{Value, json};
use shikiri_model::connection::McpConnection;
use shikiri_model::event::{NewEvent, Seq};
use shikiri_model::ids::AgentSessionId;
use shikiri_runtime::{AppError, EventBatch, Watch};
use tokio::sync::broadcast;
use tokio::time::Instant;

use crate::message;
use crate::server::McpService;
use crate::subscriptions_listen::{ListChange, WatchedRuns, next_change};
use crate::tool_visibility::{self, ToolVisibility};

/// A connection that is listened to is in use.
const REFRESH_EVERY: Duration = Duration::from_secs(10);

pub(crate) struct NotificationStream {
    mcp: Arc<McpService>,
    connection: Arc<McpConnection>,
    watch: Watch,
    runs: WatchedRuns,
    changes: broadcast::Receiver<ListChange>,
    /// Agents' sessions that were opened on the connection.
    sessions: Vec<AgentSessionId>,
    /// The tools that the client was last notified of, and when to check them again.
    shown: ToolVisibility,
    look_at_tools: Option<Instant>,
    /// Subscriptions and sessions have not been looked at yet.
    is_fresh: bool,
    ended: bool,
}

/// A message and its number in the connection's stream.
pub(crate) struct NumberedNotification {
    pub(crate) seq: Seq,
    pub(crate) text: String,
}

impl NotificationStream {
    /// From `after` on, or from now on.
    pub(crate) async fn open(
        mcp: &Arc<McpService>,
        connection: Arc<McpConnection>,
        after: Option<Seq>,
    ) -> Result<Self, AppError> {
        let (tenant, stream) = (&connection.tenant, connection.stream());
        let from = match after {
            Some(after) => after,
            None => {
                let state = mcp.app.runtime.store().stream(tenant, &stream).await?;
                state.map_or(0, |state| state.extent.head)
            }
        };
        let watch = mcp.app.runtime.watch(tenant, stream, from).await?;
        Ok(Self {
            changes: mcp.changes(),
            mcp: Arc::clone(mcp),
            connection,
            watch,
            runs: WatchedRuns::default(),
            sessions: Vec::new(),
            shown: ToolVisibility::Everything,
            look_at_tools: None,
            is_fresh: true,
            ended: false,
        })
    }

    /// Number of the last event before what comes.
    pub(crate) fn cursor(&self) -> Seq {
        self.watch.cursor()
    }

    /// The next notices; None once the connection has ended. Dropping the future before it is
    /// ready loses some.
    pub(crate) async fn next(&mut self) -> Option<Vec<NumberedNotification>> {
        if std::mem::take(&mut self.is_fresh) {
            self.follow_subscriptions().await;
            match tool_visibility::sessions_on(&self.mcp.app, &self.connection).await {
                Ok(sessions) => self.sessions = sessions,
                Err(error) => tracing::debug!(%error, "logins were not looked up"),
            }
            self.follow_tools().await;
        }
        while !self.ended {
            let look_at_tools = self.look_at_tools;
            tokio::select! {
                biased;
                next = self.watch.next() => {
                    let Ok(Some(delivery)) = next else { return None };
                    let notices = self.take(&delivery).await;
                    if !notices.is_empty() {
                        return Some(notices);
                    }
                }
                change = next_change(&mut self.changes) => {
                    let change = change.unwrap_or(ListChange::Tools);
                    self.note(change.method(), &json!({})).await;
                }
                (uri, _) = self.runs.next() => self.note_update(&uri).await,
                () = until(look_at_tools) => self.follow_tools().await,
                () = tokio::time::sleep(REFRESH_EVERY) => self.refresh().await,
            }
        }
        None
    }

    async fn take(&mut self, delivery: &EventBatch) -> Vec<NumberedNotification> {
        let mut notices = Vec::new();
        let (mut changed, mut logged_in) = (false, false);
        for event in delivery.events() {
            match event.kind {
                "notice" => {
                    let text = written(event.data);
                    notices.extend(text.map(|text| NumberedNotification { seq: event.seq, text }));
                }
                "changed" => changed = true,
                tool_visibility::OPENED => {
                    tool_visibility::add_opened(&mut self.sessions, event.data);
                    logged_in = true;
                }
                "ended" => self.ended = true,
                _ => {}
            }
        }
        if changed {
            self.refresh().await;
        }
        if logged_in {
            self.follow_tools().await;
        }
        notices
    }

    /// Looks at the connection again, which also notes that it is in use.
    async fn refresh(&mut self) {
        let McpConnection { tenant, id, principal, .. } = &*self.connection;
        match self.mcp.app.tenancy.connection(tenant, id, principal).await {
            Ok(Some(connection)) => {
                self.connection = Arc::new(connection);
                self.follow_subscriptions().await;
            }
            Ok(None) => self.ended = true,
            // A store that cannot answer ends nothing.
            Err(_) => {}
        }
    }

    /// Follows what the client is subscribed to; says so once for each that is new, because it may
    /// have changed while the client was not listening.
    async fn follow_subscriptions(&mut self) {
        let connection = Arc::clone(&self.connection);
        self.runs.keep(|uri| connection.subscriptions.iter().any(|wanted| wanted == uri));
        for uri in &connection.subscriptions {
            if self.runs.is_watched(uri) {
                continue;
            }
            let mut sources = self.mcp.catalogue.resources.iter();
            if let Some(run) = sources.find_map(|source| source.run_of(uri)) {
                self.runs.add(&self.mcp.app, &connection.tenant, uri, run).await;
                self.note_update(uri).await;
            }
        }
    }

    /// Says so if the client would be shown other tools than before. It may say so once too often
    /// to a client that comes back, which asks and finds nothing new.
    async fn follow_tools(&mut self) {
        let (app, connection) = (&self.mcp.app, &self.connection);
        let (shown, left) =
            match ToolVisibility::on_connection(app, connection, &self.sessions).await {
                Ok(found) => found,
                // Looked at again soon.
                Err(_) => (self.shown, Some(REFRESH_EVERY)),
            };
        self.look_at_tools = left.map(|left| Instant::now() + left);
        if std::mem::replace(&mut self.shown, shown) != shown {
            self.note(ListChange::Tools.method(), &json!({})).await;
        }
    }

    async fn note_update(&mut self, uri: &str) {
        self.note("notifications/resources/updated", &json!({ "uri": uri })).await;
    }

    async fn note(&mut self, method: &str, params: &Value) {
        let message = message::raw(message::notification(method, params));
        let Ok(event) = NewEvent::new("notice", &json!({ "message": message })) else { return };
        if let Err(error) = self.mcp.app.tenancy.note_on_connection(&self.connection, event).await {
            tracing::debug!(%error, "a notice was not written");
        }
    }
}

async fn until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

#[derive(serde::Deserialize)]
struct NoticeEventData<'a> {
    #[serde(borrow)]
    message: &'a RawValue,
}

fn written(data: &str) -> Option<String> {
    serde_json::from_str::<NoticeEventData<'_>>(data)
        .ok()
        .map(|notice| notice.message.get().to_owned())
}
