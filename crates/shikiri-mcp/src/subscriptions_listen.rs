//! Notifications of changes: `subscriptions/listen` of the newer era, and the parts that it shares
//! with the connection's stream of the older one.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt};
use serde_json::{Value, json};
use shikiri_app::App;
use shikiri_model::ids::{RunId, TenantId};
use shikiri_model::run::run_stream;
use shikiri_runtime::Watch;
use tokio::sync::broadcast;

use crate::mcp_caller::McpCaller;
use crate::message::{self, RpcRequest};
use crate::rpc_error::RpcError;
use crate::server::McpService;
use crate::tasks;

/// Something that every client may want to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListChange {
    Tools,
    Prompts,
}

impl ListChange {
    pub(crate) fn method(self) -> &'static str {
        match self {
            Self::Tools => "notifications/tools/list_changed",
            Self::Prompts => "notifications/prompts/list_changed",
        }
    }

    fn flag(self) -> &'static str {
        match self {
            Self::Tools => "toolsListChanged",
            Self::Prompts => "promptsListChanged",
        }
    }
}

const CHANGES: [ListChange; 2] = [ListChange::Tools, ListChange::Prompts];
/// What one request may listen to.
const MAX_WATCHED: usize = 256;
const SUBSCRIPTION_ID: &str = "io.modelcontextprotocol/subscriptionId";

/// Runs that are followed only to notice that they changed.
#[derive(Default)]
pub(crate) struct WatchedRuns {
    /// By address or task id; the number tells a watch from an earlier one of the same name.
    by_name: BTreeMap<String, (RunId, u64)>,
    begun: u64,
    changes: FuturesUnordered<BoxFuture<'static, (String, u64, Option<Watch>)>>,
}

impl WatchedRuns {
    pub(crate) fn is_watched(&self, name: &str) -> bool {
        self.by_name.contains_key(name)
    }

    /// Watches from now on. A run that does not exist cannot change.
    pub(crate) async fn add(&mut self, app: &App, tenant: &TenantId, name: &str, run: RunId) {
        if self.is_watched(name) {
            return;
        }
        let stream = run_stream(&run);
        let head = match app.runtime.store().stream(tenant, &stream).await {
            Ok(Some(state)) => state.extent.head,
            _ => return,
        };
        if let Ok(watch) = app.runtime.watch(tenant, stream, head).await {
            self.begun += 1;
            self.by_name.insert(name.to_owned(), (run, self.begun));
            self.changes.push(change_of(name.to_owned(), self.begun, watch));
        }
    }

    pub(crate) fn keep(&mut self, keep: impl Fn(&str) -> bool) {
        self.by_name.retain(|name, _| keep(name));
    }

    /// The name under which a run is watched that changed, and the run; pending while none does.
    pub(crate) async fn next(&mut self) -> (String, RunId) {
        loop {
            let Some((name, number, watch)) = self.changes.next().await else {
                return std::future::pending().await;
            };
            let known = self.by_name.get(&name).filter(|(_, current)| *current == number);
            let Some((run, _)) = known.cloned() else { continue };
            match watch {
                Some(watch) => self.changes.push(change_of(name.clone(), number, watch)),
                // The run has ended: nothing more will change.
                None => continue,
            }
            return (name, run);
        }
    }
}

/// Resolves at the next change, however many events it has.
fn change_of(
    name: String,
    number: u64,
    mut watch: Watch,
) -> BoxFuture<'static, (String, u64, Option<Watch>)> {
    Box::pin(async move {
        match watch.next().await {
            Ok(Some(_)) => {
                while watch.take_ready().is_some() {}
                (name, number, Some(watch))
            }
            Ok(None) | Err(_) => (name, number, None),
        }
    })
}

/// A `subscriptions/listen` request while it is open.
pub(crate) struct ListenSubscription {
    app: App,
    caller: McpCaller,
    id: Value,
    accepted: Value,
    changes: broadcast::Receiver<ListChange>,
    wanted: Vec<ListChange>,
    /// Not looked up yet.
    pending: Vec<(String, RunId)>,
    tasks: Vec<String>,
    runs: WatchedRuns,
    acknowledged: bool,
}

impl ListenSubscription {
    pub(crate) fn open(
        mcp: &Arc<McpService>,
        caller: &McpCaller,
        request: &RpcRequest,
    ) -> Result<Self, RpcError> {
        let filter = match request.params.get("notifications") {
            Some(Value::Object(filter)) => filter,
            _ => return Err(RpcError::params("notifications: must be an object")),
        };
        let wanted: Vec<_> = CHANGES
            .into_iter()
            .filter(|change| filter.get(change.flag()) == Some(&json!(true)))
            .collect();
        let uris = strings(filter.get("resourceSubscriptions"), "resourceSubscriptions")?;
        let task_ids = strings(filter.get("taskIds"), "taskIds")?;
        if !task_ids.is_empty() && !caller.has_tasks() {
            return Err(RpcError::capability(&tasks::required()));
        }
        if uris.len() + task_ids.len() > MAX_WATCHED {
            return Err(RpcError::params(format!(
                "at most {MAX_WATCHED} can be listened to at once"
            )));
        }
        let run_of = |uri: &String| mcp.catalogue.sources(caller).find_map(|s| s.run_of(uri));
        let resources = uris.iter().filter_map(|uri| Some((uri.clone(), run_of(uri)?)));
        let tasks = task_ids.iter().filter_map(|id| Some((id.clone(), id.parse().ok()?)));
        let mut accepted = serde_json::Map::new();
        for change in &wanted {
            accepted.insert(change.flag().to_owned(), json!(true));
        }
        if !uris.is_empty() {
            accepted.insert("resourceSubscriptions".to_owned(), json!(uris));
        }
        if !task_ids.is_empty() {
            accepted.insert("taskIds".to_owned(), json!(task_ids));
        }
        Ok(Self {
            app: mcp.app.clone(),
            caller: caller.clone(),
            id: request.id.clone(),
            accepted: Value::Object(accepted),
            changes: mcp.changes(),
            wanted,
            pending: resources.chain(tasks).collect(),
            tasks: task_ids.clone(),
            runs: WatchedRuns::default(),
            acknowledged: false,
        })
    }

    pub(crate) async fn next(&mut self) -> String {
        if !self.acknowledged {
            self.acknowledged = true;
            for (name, run) in std::mem::take(&mut self.pending) {
                let tenant = &self.caller.connection.tenant;
                self.runs.add(&self.app, tenant, &name, run).await;
            }
            let params = json!({ "notifications": self.accepted });
            return self.tell("notifications/subscriptions/acknowledged", params);
        }
        loop {
            tokio::select! {
                change = next_change(&mut self.changes) => {
                    if let Some(notice) = self.changed(change) {
                        return notice;
                    }
                }
                (name, run) = self.runs.next() => {
                    if let Some(notice) = self.run_changed(name, &run).await {
                        return notice;
                    }
                }
            }
        }
    }

    fn changed(&self, change: Option<ListChange>) -> Option<String> {
        // Having missed some, it cannot be wrong to say that the first wanted thing changed.
        let change = change.or(self.wanted.first().copied())?;
        self.wanted.contains(&change).then(|| self.tell(change.method(), json!({})))
    }

    async fn run_changed(&mut self, name: String, run: &RunId) -> Option<String> {
        if !self.tasks.contains(&name) {
            return Some(self.tell("notifications/resources/updated", json!({ "uri": name })));
        }
        let view = self.app.runtime.run(&self.caller.connection.tenant, run).await.ok()?;
        let task = tasks::detailed(&view, &self.app);
        tasks::is_task_owner(&view, &self.caller).then(|| self.tell("notifications/tasks", task))
    }

    fn tell(&self, method: &str, mut params: Value) -> String {
        params["_meta"] = json!({ SUBSCRIPTION_ID: self.id });
        message::notification(method, &params)
    }

    /// The answer that ends the request when the server goes.
    pub(crate) fn end(&self) -> String {
        let mut result = crate::server::finish_result(&self.caller, json!({}));
        result["_meta"][SUBSCRIPTION_ID] = self.id.clone();
        message::reply(&self.id, &Ok(result))
    }
}

/// None if some were missed.
pub(crate) async fn next_change(
    changes: &mut broadcast::Receiver<ListChange>,
) -> Option<ListChange> {
    match changes.recv().await {
        Ok(change) => Some(change),
        Err(broadcast::error::RecvError::Lagged(_)) => None,
        Err(broadcast::error::RecvError::Closed) => std::future::pending().await,
    }
}

fn strings(value: Option<&Value>, name: &str) -> Result<Vec<String>, RpcError> {
    match value {
        None => Ok(Vec::new()),
        Some(value) => serde_json::from_value(value.clone())
            .map_err(|_| RpcError::params(format!("{name}: must be a list of strings"))),
    }
}
