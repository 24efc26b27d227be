//! The demo, in four parts: a run over REST and a run called as an MCP tool, whose servers are
//! killed and which continue without loss; a conversation whose turn dies with its server and is
//! still billed; and a team of two agents that the server starts to play a game.
//!
//! Everything is real: a server process of this program on its own store, REST, MCP and event
//! streams over a socket, SIGKILL.

mod child;
mod ledger;
mod stage;
mod story;
mod talk;
mod team;
mod trip;

use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};

use child::ServerProcess;
use hyper::Method;
use serde_json::json;
use stage::Stage;

use crate::exit::{Exit, Failure};
use crate::output::{Output, Style};
use crate::signals::Signals;

/// How the demo is played.
#[derive(Default)]
pub struct DemoOptions {
    /// The folder; without one, a temporary folder that is removed at the end.
    pub root: Option<PathBuf>,
    /// Ends after the story instead of staying up.
    pub once: bool,
    /// Without pauses for a reader. There are none either if the output is no terminal.
    pub fast: bool,
}

/// Plays the demo.
pub async fn run(options: &DemoOptions) -> Result<(), Failure> {
    let folder = ProjectFolder::make(options.root.as_deref())?;
    let mut signals = Signals::catch()?;
    let stage = Stage::new(!options.fast && std::io::stdout().is_terminal());
    let mut server = tokio::select! {
        played = story::play(folder.path(), stage) => played?,
        signal = signals.next() => return Err(Failure::Stopped(signal)),
    };
    if options.once {
        return server.stop().await;
    }
    invite(&server).await?;
    tokio::select! {
        _ = signals.next() => server.stop().await,
        failure = server.died() => Err(failure),
    }
}

/// Shows what to try while the server is up, with a key of the tenant that the demo used.
async fn invite(server: &ServerProcess) -> Result<(), Failure> {
    let output = Output::stdout();
    let url = format!("http://{}", server.address());
    let key = tenant_key(server).await?;
    output.line("")?;
    output
        .line(&output.paint(Style::Bold, "The server stays up. Try it from another terminal:"))?;
    let shown = |text: &str| output.line(&format!("  {text}"));
    shown(&format!("export KEY={key}        # of the tenant `local`"))?;
    shown(&format!("curl -s {url}/v1/tenants/local/runs -H \"Authorization: Bearer $KEY\""))?;
    shown(&format!(
        "curl -sN {url}/v1/tenants/local/runs -H \"Authorization: Bearer $KEY\" -H \
         'Content-Type: application/json' -d '{{\"agent\":\"long_running_agent\",\"input\":{{\"steps\":10}}}}'"
    ))?;
    shown(&format!(
        "claude mcp add --transport http shikiri {url}/mcp --header \"Authorization: Bearer $KEY\""
    ))?;
    shown(&format!("open {url}/docs        # the API"))?;
    output.line("Ctrl-C ends it.")
}

async fn tenant_key(server: &ServerProcess) -> Result<String, Failure> {
    let asked = json!({ "name": "demo" });
    let keys = "/v1/tenants/local/keys";
    let made = server.client()?.request(Method::POST, keys, Some(&asked)).await;
    let (_, made) = made.map_err(|error| stage::went_wrong(&error.to_string()))?;
    let key = made["key"].as_str();
    key.map(str::to_owned).ok_or_else(|| stage::went_wrong("the server made no key"))
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
