//! Shares one Chrome among the processes of its user: reads commands at the keeper's socket and
//! passes allowed ones to Chrome's pipe. A slow or closed client does not delay the others.

mod client_router;
mod command_policy;

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::net::unix::OwnedReadHalf;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;

use self::client_router::{RelayClientId, RelayDelivery, RelayRouter};
use super::keeper_socket::{KeeperSocket, KeeperToken, check_peer};
use crate::cdp::{CdpFrame, CdpFrameReader, MAX_ANSWER};

/// The longest command: a question with the script that compares it.
const MAX_COMMAND: usize = 4 * 1024 * 1024;
/// Commands queued for the pipe; further clients wait.
const TO_CHROME: usize = 16;
/// Unread messages and bytes that a client may have before its connection is closed.
const UNREAD_MESSAGES: usize = 1_024;
const UNREAD_BYTES: usize = 2 * MAX_ANSWER;
const MAX_CLIENTS: usize = 1_024;
/// How long a client may take to send its token.
const GREETING: Duration = Duration::from_secs(5);
/// Pause after a failed accept, such as without free descriptors.
const NO_ACCEPT: Duration = Duration::from_millis(100);

pub(super) struct DevtoolsRelay {
    state: Mutex<RelayState>,
    to_chrome: mpsc::Sender<Vec<u8>>,
}

#[derive(Default)]
struct RelayState {
    router: RelayRouter,
    outboxes: HashMap<RelayClientId, ClientOutbox>,
    last_client: RelayClientId,
}

/// Messages queued for a client. Dropping it closes the client's connection.
struct ClientOutbox {
    messages: mpsc::Sender<Vec<u8>>,
    unread: Arc<AtomicUsize>,
    _connection: oneshot::Sender<()>,
}

impl ClientOutbox {
    /// Queues a message; false if the client is gone or has too much unread.
    fn put(&self, message: Vec<u8>) -> bool {
        let length = message.len();
        let unread = self.unread.fetch_add(length, Ordering::SeqCst) + length;
        unread <= UNREAD_BYTES && self.messages.try_send(message).is_ok()
    }
}

impl DevtoolsRelay {
    /// Serves clients until Chrome closes its pipe.
    pub(super) async fn serve(
        socket: &KeeperSocket,
        to_chrome: impl AsyncWrite + Unpin,
        from_chrome: impl AsyncRead + Unpin,
    ) {
        let (sender, commands) = mpsc::channel(TO_CHROME);
        let relay = Arc::new(Self { state: Mutex::default(), to_chrome: sender });
        tokio::select! {
            () = relay.read_chrome(from_chrome) => {}
            _ = write_messages(to_chrome, commands, |_| {}) => {}
            () = relay.accept(socket) => {}
        }
    }

    async fn read_chrome(&self, from_chrome: impl AsyncRead + Unpin) {
        let mut messages = CdpFrameReader::new(from_chrome, MAX_ANSWER);
        while let Ok(Some(message)) = messages.next().await {
            let delivery = {
                let router = &mut self.state().router;
                match message {
                    CdpFrame::Whole(message) => router.chrome_message(&message),
                    CdpFrame::TooLong(head) => router.chrome_message_too_long(&head),
                }
            };
            if let Some(delivery) = delivery {
                self.deliver_at_once(delivery);
            }
        }
    }

    async fn accept(self: &Arc<Self>, socket: &KeeperSocket) {
        let mut clients = JoinSet::new();
        loop {
            while clients.try_join_next().is_some() {}
            match socket.listener.accept().await {
                Ok((stream, _)) if clients.len() < MAX_CLIENTS && check_peer(&stream).is_ok() => {
                    let (relay, token) = (Arc::clone(self), socket.token.clone());
                    clients.spawn(async move { relay.serve_client(stream, &token).await });
                }
                // Dropping the stream closes it.
                Ok(_) => {}
                Err(_) => tokio::time::sleep(NO_ACCEPT).await,
            }
        }
    }

    async fn serve_client(&self, stream: UnixStream, token: &KeeperToken) {
        let (read, write) = stream.into_split();
        let mut commands = CdpFrameReader::new(read, MAX_COMMAND);
        match tokio::time::timeout(GREETING, commands.next()).await {
            Ok(Ok(Some(CdpFrame::Whole(given)))) if token.is(&given) => {}
            _ => return,
        }
        let (messages, queue) = mpsc::channel(UNREAD_MESSAGES);
        let unread = Arc::new(AtomicUsize::new(0));
        let (connection, cut) = oneshot::channel();
        let outbox =
            ClientOutbox { messages, unread: Arc::clone(&unread), _connection: connection };
        let client = self.add(outbox);
        let is_written = |length| {
            unread.fetch_sub(length, Ordering::SeqCst);
        };
        tokio::select! {
            () = self.read_client(client, commands) => {}
            _ = write_messages(write, queue, is_written) => {}
            _ = cut => {}
        }
        self.remove(client);
    }

    /// Reads commands until the client closes its connection or sends a malformed message.
    async fn read_client(
        &self,
        client: RelayClientId,
        mut commands: CdpFrameReader<OwnedReadHalf>,
    ) {
        while let Ok(Some(CdpFrame::Whole(command))) = commands.next().await {
            let passed = self.state().router.client_message(client, &command);
            match passed {
                // A full pipe delays this client only.
                Ok(RelayDelivery::ToChrome(message)) => {
                    if self.to_chrome.send(message).await.is_err() {
                        return;
                    }
                }
                Ok(answer) => self.deliver_at_once(answer),
                Err(_) => return,
            }
        }
    }

    /// Delivers without waiting, because the caller serves other clients, too.
    fn deliver_at_once(&self, delivery: RelayDelivery) {
        match delivery {
            RelayDelivery::ToChrome(message) => {
                let to_chrome = self.to_chrome.clone();
                tokio::spawn(async move { to_chrome.send(message).await });
            }
            RelayDelivery::ToClient(client, message) => {
                let outboxes = &mut self.state().outboxes;
                if outboxes.get(&client).is_some_and(|outbox| !outbox.put(message)) {
                    outboxes.remove(&client);
                }
            }
        }
    }

    fn add(&self, outbox: ClientOutbox) -> RelayClientId {
        let mut state = self.state();
        state.last_client += 1;
        let client = state.last_client;
        state.router.add_client(client);
        state.outboxes.insert(client, outbox);
        client
    }

    fn remove(&self, client: RelayClientId) {
        let left = {
            let mut state = self.state();
            state.outboxes.remove(&client);
            state.router.remove_client(client)
        };
        left.into_iter().for_each(|delivery| self.deliver_at_once(delivery));
    }

    fn state(&self) -> MutexGuard<'_, RelayState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Writes messages until the channel is closed or the peer stops reading.
async fn write_messages(
    mut to: impl AsyncWrite + Unpin,
    mut messages: mpsc::Receiver<Vec<u8>>,
    is_written: impl Fn(usize),
) -> io::Result<()> {
    while let Some(mut message) = messages.recv().await {
        let length = message.len();
        message.push(0);
        to.write_all(&message).await?;
        is_written(length);
    }
    Ok(())
}

#[cfg(test)]
#[path = "relay_tests.rs"]
mod tests;
