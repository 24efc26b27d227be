//! Records the events of one call: stores them first, then shows them to the user.

use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use serde_json::Value;
use shikiri_client::{CallHandler, CallOwnershipLost};
use shikiri_model::host::{CallEvent, ElicitationForm, FormAnswer, HostCall};
use shikiri_model::record::StoredDocument;
use tokio::sync::Mutex;

use super::Host;
use super::user_interaction::{CallUpdate, UserInteraction};

pub(super) struct CallRecorder<'a> {
    host: &'a Host,
    call: Mutex<StoredDocument<HostCall>>,
    user: &'a dyn UserInteraction,
    /// The number of events from the server so far.
    received_events: AtomicU64,
}

impl<'a> CallRecorder<'a> {
    pub(super) fn new(
        host: &'a Host,
        call: StoredDocument<HostCall>,
        user: &'a dyn UserInteraction,
    ) -> Self {
        Self { host, call: Mutex::new(call), user, received_events: AtomicU64::new(0) }
    }

    pub(super) async fn current_call(&self) -> StoredDocument<HostCall> {
        self.call.lock().await.clone()
    }

    /// The number of events from the server so far.
    pub(super) fn received_events(&self) -> u64 {
        self.received_events.load(Ordering::Relaxed)
    }
}

#[async_trait]
impl CallHandler for CallRecorder<'_> {
    async fn record_events(&self, call_events: Vec<CallEvent>) -> Result<(), CallOwnershipLost> {
        let mut call = self.call.lock().await;
        match self.host.persist_call_events(&call, &call_events).await {
            Ok(Some((next, events))) => {
                *call = next;
                for event in events {
                    self.received_events
                        .fetch_add(u64::from(event.kind() != "sent"), Ordering::Relaxed);
                    let data = serde_json::from_str(event.data()).unwrap_or_default();
                    self.user.show(&call.value, &CallUpdate { kind: event.kind(), data });
                }
                Ok(())
            }
            Ok(None) => Err(CallOwnershipLost("another process has taken this call up".to_owned())),
            Err(error) => Err(CallOwnershipLost(format!("what happens cannot be kept: {error}"))),
        }
    }

    async fn ask(&self, form: &ElicitationForm) -> FormAnswer {
        let call = self.current_call().await;
        self.user.ask(&call.value, form).await
    }

    async fn visit(&self, message: &str, url: &str) -> FormAnswer {
        let call = self.current_call().await;
        self.user.visit(&call.value, message, url).await
    }

    async fn sample(&self, params: &Value) -> Result<Value, String> {
        let call = self.current_call().await;
        self.host.sample(&call.value, params, self.user).await
    }
}
