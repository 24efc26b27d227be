//! Transports of DevTools messages: the socket of a keeper, or the WebSocket of a Chrome that another
//! program started.

use std::io;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::{SinkExt as _, StreamExt as _};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async_with_config};

use super::frame_reader::{CdpFrame, CdpFrameReader};
use crate::chrome::BrowserEndpoint;

/// The longest accepted message from a browser: an answer may be a long text.
pub(crate) const MAX_ANSWER: usize = 16 * 1024 * 1024;

#[async_trait]
pub(crate) trait CdpTransport: Send {
    async fn send(&mut self, message: String) -> io::Result<()>;

    /// The next message; `None` once the other side has closed. Cancelling loses nothing.
    async fn receive(&mut self) -> io::Result<Option<Bytes>>;
}

pub(crate) async fn connect(endpoint: &BrowserEndpoint) -> io::Result<Box<dyn CdpTransport>> {
    match endpoint {
        BrowserEndpoint::Keeper(keeper) => {
            let (read, write) = keeper.connect().await?.into_split();
            Ok(Box::new(KeeperTransport { read: CdpFrameReader::new(read, MAX_ANSWER), write }))
        }
        BrowserEndpoint::WebSocket(url) => {
            let config = WebSocketConfig::default()
                .max_message_size(Some(MAX_ANSWER))
                .max_frame_size(Some(MAX_ANSWER));
            let connected = connect_async_with_config(url.as_str(), Some(config), true).await;
            let (socket, _) = connected.map_err(io::Error::other)?;
            Ok(Box::new(WebSocketTransport { socket }))
        }
    }
}

struct KeeperTransport {
    read: CdpFrameReader<OwnedReadHalf>,
    write: OwnedWriteHalf,
}

#[async_trait]
impl CdpTransport for KeeperTransport {
    async fn send(&mut self, message: String) -> io::Result<()> {
        let mut message = message.into_bytes();
        message.push(0);
        self.write.write_all(&message).await
    }

    async fn receive(&mut self) -> io::Result<Option<Bytes>> {
        match self.read.next().await? {
            Some(CdpFrame::Whole(message)) => Ok(Some(message)),
            Some(CdpFrame::TooLong(_)) => Err(io::Error::other("a message is too long")),
            None => Ok(None),
        }
    }
}

struct WebSocketTransport {
    socket: WebSocketStream<MaybeTlsStream<TcpStream>>,
}

#[async_trait]
impl CdpTransport for WebSocketTransport {
    async fn send(&mut self, message: String) -> io::Result<()> {
        self.socket.send(Message::text(message)).await.map_err(io::Error::other)
    }

    async fn receive(&mut self) -> io::Result<Option<Bytes>> {
        loop {
            match self.socket.next().await {
                None | Some(Ok(Message::Close(_))) => return Ok(None),
                Some(Ok(message @ (Message::Text(_) | Message::Binary(_)))) => {
                    return Ok(Some(message.into_data()));
                }
                // The socket itself answers pings.
                Some(Ok(_)) => {}
                Some(Err(error)) => return Err(io::Error::other(error)),
            }
        }
    }
}
