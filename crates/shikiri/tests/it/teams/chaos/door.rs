//! Calls of team tools by a client that may lose the answer, at a server that may be gone.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::Value;
use shikiri_testkit::{Client, Message, ModernClient};

/// What a caller knows after a call.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Reply {
    Done(Value),
    /// With the contract's code.
    Refused(String),
    /// It was sent, and its outcome is unknown.
    Lost,
}

/// What no caller should have met.
#[derive(Clone, Debug, Default)]
pub(crate) struct Faults(Arc<Mutex<Vec<String>>>);

impl Faults {
    pub(crate) fn add(&self, fault: String) {
        let mut all = self.0.lock().unwrap();
        if all.len() < 30 {
            eprintln!("FAULT {fault}");
        }
        all.push(fault);
    }

    pub(crate) fn all(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Door {
    client: ModernClient,
    /// Its key is a session's token.
    shows_token: bool,
    /// It asks again where the server had no room for it.
    is_patient: bool,
    faults: Faults,
}

/// Between two tries to reach a server that is down.
const PAUSE: Duration = Duration::from_millis(25);
/// A restart on a busy machine takes some of it.
const DOWN_AT_MOST: Duration = Duration::from_secs(60);

impl Door {
    pub(crate) fn new(client: &Client, faults: &Faults) -> Self {
        let client = ModernClient::new(client);
        Self { client, shows_token: false, is_patient: false, faults: faults.clone() }
    }

    /// The same for who may do everything twice.
    pub(crate) fn patient(client: &Client, faults: &Faults) -> Self {
        Self { is_patient: true, ..Self::new(client, faults) }
    }

    /// The same for a session that shows its token at the door.
    pub(crate) fn with_token(client: &Client, token: &str, faults: &Faults) -> Self {
        Self { shows_token: true, ..Self::new(&client.with_key(token), faults) }
    }

    /// Waits while no server listens: what was not taken was not done.
    pub(crate) async fn call(&self, tool: &str, arguments: Value) -> Reply {
        let params = serde_json::json!({ "name": tool, "arguments": arguments });
        let prepared = self.client.prepare("tools/call", params);
        let started = std::time::Instant::now();
        let mut exchange = loop {
            match self.client.try_send(&prepared).await {
                Ok(busy) if self.is_patient && busy.status == 503 => {
                    assert!(started.elapsed() < DOWN_AT_MOST, "the server stays busy");
                    tokio::time::sleep(PAUSE).await;
                }
                Ok(exchange) => break exchange,
                Err(error) if error.is_connect() => {
                    assert!(started.elapsed() < DOWN_AT_MOST, "the server stays down");
                    tokio::time::sleep(PAUSE).await;
                }
                Err(_) => return Reply::Lost,
            }
        };
        if exchange.status == 401 && self.shows_token {
            return Reply::Refused("sessionExpired".to_owned());
        }
        if exchange.status == 503 {
            // More players than this machine carries: as good as a server that is away.
            return Reply::Lost;
        }
        if exchange.status != 200 {
            let said = exchange.next().await.map(|message| message.json);
            self.faults.add(format!("{tool}: status {} {said:?}", exchange.status));
            return Reply::Lost;
        }
        loop {
            match exchange.next().await {
                Some(message) if message.is_reply() => return self.read(tool, &message),
                Some(_) => {}
                None => return Reply::Lost,
            }
        }
    }

    fn read(&self, tool: &str, message: &Message) -> Reply {
        let result = &message.json["result"];
        let answer = &result["structuredContent"];
        if result["isError"] == true {
            if let Some(code) = answer["error"]["code"].as_str() {
                return Reply::Refused(code.to_owned());
            }
        } else if answer.is_object() {
            return Reply::Done(answer.clone());
        }
        self.faults.add(format!("{tool}: {}", message.json));
        Reply::Lost
    }
}
