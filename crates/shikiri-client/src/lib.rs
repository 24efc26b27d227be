//! The one MCP client of Shikiri: it speaks both eras of the protocol over HTTP and stdio, and
//! follows a call so that another process can take it up where this one left it.
//!
//! Everything that a server says is a stranger's word: bounded in size, never taken for more than
//! text, and cleaned before it is shown.

mod authority;
mod call;
mod error;
mod exchange;
mod headers;
mod link;
mod listener;
mod oauth;
mod place;
mod router;
mod server;
mod tools;
mod wire;
mod witness;

pub use authority::{Authority, Challenge};
pub use call::{End, Order, follow};
pub use error::ClientError;
pub use link::tls::tls;
pub use oauth::{Browser, OAuth, Vault};
pub use place::is_here;
pub use server::{About, Introduction, Server};
pub use tools::{Offer, Tool};
pub use wire::RpcError;
pub use witness::{LetGo, Witness};
