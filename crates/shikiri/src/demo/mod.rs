//! The demo, in four parts: a run over REST and a run called as an MCP tool, whose servers are
//! killed and which continue without loss; a conversation whose turn dies with its server and is
//! still billed; and a team of two agents that the server starts to play a game.
//!
//! Everything is real: a server process of this program on its own store, REST, MCP and event
//! streams over a socket, SIGKILL.

mod child;
mod ledger;
mod story;
mod talk;
mod team;
mod trip;

use std::path::{Path, PathBuf};

use child::ServerProcess;

use crate::exit::{Exit, Failure};
use crate::output::{Output, Style};
use crate::signals::Signals;

/// Plays the demo in `root`, or in a folder that is removed at the end.
pub async fn run(root: Option<&Path>, once: bool) -> Result<(), Failure> {
    let folder = ProjectFolder::make(root)?;
    let mut signals = Signals::catch()?;
    let mut server = tokio::select! {
        played = story::play(folder.path()) => played?,
        signal = signals.next() => return Err(Failure::Stopped(signal)),
    };
    if once {
        return server.stop().await;
    }
    invite(&server)?;
    tokio::select! {
        _ = signals.next() => server.stop().await,
        failure = server.died() => Err(failure),
    }
}

/// Shows what to try while the server is up.
fn invite(server: &ServerProcess) -> Result<(), Failure> {
    let output = Output::stdout();
    let (url, key) =
        (format!("http://{}", server.address()), server.key_file().display().to_string());
    let shown = |name: &str, value: &str| {
        output.line(&format!("  {}  {value}", output.paint(Style::Dim, &format!("{name:7}"))))
    };
    output.line("")?;
    output
        .line(&output.paint(Style::Bold, "The server stays up. Try it from another terminal:"))?;
    shown("address", &url)?;
    shown("key", &key)?;
    shown(
        "start",
        &format!(
            "curl -s {url}/v1/tenants/local/runs -H \"Authorization: Bearer $(cat '{key}')\" \
         -H 'Content-Type: application/json' -d '{{\"agent\":\"long_running_agent\",\"input\":{{\"steps\":10,\"step_ms\":500}}}}'"
        ),
    )?;
    shown(
        "list",
        &format!("curl -s {url}/v1/tenants/local/runs -H \"Authorization: Bearer $(cat '{key}')\""),
    )?;
    shown(
        "claude",
        &format!(
            "claude mcp add --transport http shikiri {url}/mcp --header \"Authorization: Bearer \
         $(cat '{key}')\""
        ),
    )?;
    shown("docs", &format!("{url}/docs"))?;
    output.line("Ctrl-C ends it.")
}

/// The project folder of the demo.
enum ProjectFolder {
    Given(PathBuf),
    Temporary(tempfile::TempDir),
}

impl ProjectFolder {
    fn make(root: Option<&Path>) -> Result<Self, Failure> {
        let unusable = |what: String, error: std::io::Error| {
            Failure::new(
                Exit::Unavailable,
                format!("cannot use {what}: {error}"),
                "name a writable folder with --root",
            )
        };
        let Some(root) = root else {
            let folder = tempfile::Builder::new().prefix("shikiri-demo-").tempdir();
            return folder
                .map(Self::Temporary)
                .map_err(|error| unusable("the temporary folder".to_owned(), error));
        };
        let made = std::fs::create_dir_all(root).and_then(|()| std::fs::canonicalize(root));
        made.map(Self::Given).map_err(|error| unusable(root.display().to_string(), error))
    }

    fn path(&self) -> &Path {
        match self {
            Self::Given(path) => path,
            Self::Temporary(folder) => folder.path(),
        }
    }
}
