//! The witness of one call: keeps first, shows then.

use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use serde_json::Value;
use shikiri_client::{LetGo, Witness};
use shikiri_model::host::{Answer, Form, HostCall, News};
use shikiri_model::record::Stored;
use tokio::sync::Mutex;

use super::Host;
use super::audience::{Audience, Shown};

pub(super) struct Notebook<'a> {
    host: &'a Host,
    call: Mutex<Stored<HostCall>>,
    audience: &'a dyn Audience,
    /// What the server has told so far.
    heard: AtomicU64,
}

impl<'a> Notebook<'a> {
    pub(super) fn new(host: &'a Host, call: Stored<HostCall>, audience: &'a dyn Audience) -> Self {
        Self { host, call: Mutex::new(call), audience, heard: AtomicU64::new(0) }
    }

    pub(super) async fn page(&self) -> Stored<HostCall> {
        self.call.lock().await.clone()
    }

    /// Grows with everything that the server tells.
    pub(super) fn heard(&self) -> u64 {
        self.heard.load(Ordering::Relaxed)
    }
}

#[async_trait]
impl Witness for Notebook<'_> {
    async fn note(&self, news: Vec<News>) -> Result<(), LetGo> {
        let mut call = self.call.lock().await;
        match self.host.keep(&call, &news).await {
            Ok(Some((next, events))) => {
                *call = next;
                for event in events {
                    self.heard.fetch_add(u64::from(event.kind() != "sent"), Ordering::Relaxed);
                    let data = serde_json::from_str(event.data()).unwrap_or_default();
                    self.audience.show(&call.value, &Shown { kind: event.kind(), data });
                }
                Ok(())
            }
            Ok(None) => Err(LetGo("another process has taken this call up".to_owned())),
            Err(error) => Err(LetGo(format!("what happens cannot be kept: {error}"))),
        }
    }

    async fn ask(&self, form: &Form) -> Answer {
        let call = self.page().await;
        self.audience.ask(&call.value, form).await
    }

    async fn visit(&self, message: &str, url: &str) -> Answer {
        let call = self.page().await;
        self.audience.visit(&call.value, message, url).await
    }

    async fn sample(&self, params: &Value) -> Result<Value, String> {
        let call = self.page().await;
        self.host.sample(&call.value, params, self.audience).await
    }
}
