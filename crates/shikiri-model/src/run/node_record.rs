//! The record of a node: which process it is, and where it answers. Whether it still lives is told
//! by its lease.

use serde::{Deserialize, Serialize};

use crate::ids::NodeId;
use crate::macros::{document, text_enum};

text_enum! {
    /// What kind of process a node is.
    pub enum NodeProcess {
        Server = "server",
        /// It serves one client over stdin and stdout.
        Mcp = "mcp",
        /// A command that carries only its own runs.
        Command = "command",
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeRecord {
    pub id: NodeId,
    pub process: NodeProcess,
    /// Where a server listens: `IP:PORT`.
    #[serde(default)]
    pub address: Option<String>,
    pub version: String,
    /// The machine's own name.
    pub host: String,
    pub pid: u32,
}

document!(NodeRecord, "node", system, id);
