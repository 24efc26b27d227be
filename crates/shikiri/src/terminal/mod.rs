//! Executions at the terminal: where they run, and how they are shown.

mod here;
pub(crate) mod host;
mod teller;
mod there;

use std::collections::{BTreeMap, VecDeque};

use serde_json::Value;
use shikiri_app::App;
use shikiri_model::event::Seq;
use shikiri_model::ids::{ConversationId, RunId, TenantId};
use shikiri_model::native::ExecutionLimits;
use shikiri_model::run::run_stream;
use shikiri_runtime::Watch;

use crate::exit::Failure;
use crate::follow::json_of;

pub use here::Here;
pub use teller::{Form, Teller};
pub use there::There;

/// Where executions run.
pub enum Place {
    /// In this process, on the store itself.
    Here(Box<Here>),
    /// By a server.
    There(There),
}

/// The request for an execution.
pub struct Wanted {
    pub conversation: ConversationId,
    pub user_input: String,
    /// The user on whose behalf it runs.
    pub user_id: String,
    pub model_id: Option<String>,
    /// Values for the headers of MCP servers.
    pub tokens: BTreeMap<String, String>,
    pub limits: ExecutionLimits,
}

/// A model that can be requested.
pub struct ModelChoice {
    pub id: String,
    pub engine: String,
    pub is_active: bool,
}

/// An event of an execution: its name, and its data as in the server's streams.
pub struct Happening {
    pub kind: String,
    pub data: Value,
}

/// The events of one execution, to its end.
pub enum Feed {
    Here(Local),
    There(there::Remote),
}

impl Place {
    pub async fn models(&self) -> Result<Vec<ModelChoice>, Failure> {
        match self {
            Self::Here(here) => here.models().await,
            Self::There(there) => there.models().await,
        }
    }

    pub async fn new_conversation(&self) -> Result<ConversationId, Failure> {
        match self {
            Self::Here(here) => here.new_conversation().await,
            Self::There(there) => there.new_conversation().await,
        }
    }

    pub async fn execute(&self, wanted: Wanted) -> Result<RunId, Failure> {
        match self {
            Self::Here(here) => here.execute(wanted).await,
            Self::There(there) => there.execute(wanted).await,
        }
    }

    pub async fn feed(&self, execution: &RunId) -> Result<Feed, Failure> {
        match self {
            Self::Here(here) => Ok(Feed::Here(here.feed(execution).await?)),
            Self::There(there) => Ok(Feed::There(there.feed(execution))),
        }
    }

    /// Requests a stop. An execution that has ended needs none.
    pub async fn cancel(&self, execution: &RunId) -> Result<(), Failure> {
        match self {
            Self::Here(here) => here.cancel(execution).await,
            Self::There(there) => there.cancel(execution).await,
        }
    }

    /// As `GET …/executions/{e}` shows it.
    pub async fn record(&self, execution: &RunId) -> Result<Value, Failure> {
        match self {
            Self::Here(here) => here.record(execution).await,
            Self::There(there) => there.record(execution).await,
        }
    }

    /// Ends everything that still runs in this process.
    pub async fn close(self) {
        match self {
            Self::Here(here) => here.close().await,
            Self::There(_) => {}
        }
    }
}

impl Feed {
    /// The next event; None after the last. Dropping the future loses no event.
    pub async fn next(&mut self) -> Result<Option<Happening>, Failure> {
        match self {
            Self::Here(local) => local.next().await,
            Self::There(remote) => remote.next().await,
        }
    }
}

/// Events from the store itself.
pub struct Local {
    run: RunId,
    watch: Watch,
    ready: VecDeque<Happening>,
}

impl Local {
    pub async fn start(
        app: &App,
        tenant: &TenantId,
        run: &RunId,
        after: Seq,
    ) -> Result<Self, Failure> {
        let watch = app.runtime.watch(tenant, run_stream(run), after).await?;
        Ok(Self { run: run.clone(), watch, ready: VecDeque::new() })
    }

    pub async fn next(&mut self) -> Result<Option<Happening>, Failure> {
        loop {
            if let Some(happening) = self.ready.pop_front() {
                return Ok(Some(happening));
            }
            let Some(delivery) = self.watch.next().await? else { return Ok(None) };
            let happened = delivery.events().map(|event| Happening {
                kind: event.kind.to_owned(),
                data: json_of(&self.run, event),
            });
            self.ready.extend(happened);
        }
    }
}
