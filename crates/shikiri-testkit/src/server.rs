//! One `shikiri serve` process: started, observed, killed and ended.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::process::Follower;
use crate::rng::Rng;

/// How long a server may take to listen: the machine may be compiling at the same time.
const PATIENCE: Duration = Duration::from_secs(60);

/// How to start the program in an isolated environment.
#[derive(Clone, Debug)]
pub(crate) struct Launch {
    pub(crate) program: PathBuf,
    pub(crate) root: PathBuf,
    pub(crate) store: Option<String>,
    pub(crate) env: Vec<(OsString, OsString)>,
    pub(crate) user: Option<(u32, u32)>,
}

impl Launch {
    /// The program with an empty environment except `PATH`.
    pub(crate) fn command(&self) -> Command {
        use std::os::unix::process::CommandExt as _;
        let mut command = Command::new(&self.program);
        command.current_dir(&self.root).env_clear();
        command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command.env("HOME", &self.root).env("RUST_BACKTRACE", "1").env("NO_COLOR", "1");
        if let Some(store) = &self.store {
            command.env("SHIKIRI_STORE", store);
            // Nodes of one store share its key, but tests give each node its own folder. So all
            // test databases use one key.
            let user = self.user.map_or(String::new(), |(uid, _)| format!("-{uid}"));
            let key = std::env::temp_dir().join(format!("shikiri-tests-sealing{user}.key"));
            command.env("SHIKIRI_SEALING_KEY_FILE", key);
        }
        command.envs(self.env.iter().map(|(name, value)| (name, value)));
        if let Some((uid, gid)) = self.user {
            command.uid(uid).gid(gid);
        }
        command
    }
}

/// A running server. It is killed when dropped.
#[derive(Debug)]
pub struct ServerProcess {
    follower: Follower,
    base: String,
}

impl ServerProcess {
    /// Starts `shikiri serve` and waits until it reports that it listens. Otherwise returns its
    /// output.
    pub(crate) async fn start(launch: &Launch, port: u16, args: &[String]) -> Result<Self, String> {
        let mut command = launch.command();
        command.args(["serve", "--listen", &format!("127.0.0.1:{port}")]).args(args);
        let mut follower = Follower::start(&mut command);
        let start = Instant::now();
        loop {
            let listening =
                |line: &str| line.split_once("listening on ").map(|(_, url)| url.to_owned());
            if let Some(url) = follower.find(Duration::ZERO, listening) {
                let url = url.split_whitespace().next().unwrap_or_default();
                return Ok(Self { follower, base: url.trim_end_matches('/').to_owned() });
            }
            if let Some(code) = follower.ended() {
                // Its last output may still be in the pipe.
                follower.read_to_the_end();
                return Err(format!("exit {code}\n{}", follower.output()));
            }
            if start.elapsed() > PATIENCE {
                return Err(format!("not listening after {PATIENCE:?}\n{}", follower.output()));
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// `http://127.0.0.1:PORT`
    pub fn base(&self) -> &str {
        &self.base
    }

    pub fn pid(&self) -> u32 {
        self.follower.pid()
    }

    pub fn log(&self) -> String {
        self.follower.output()
    }

    /// Kills it with SIGKILL: no destructor, flush or exit handler runs.
    pub fn kill9(&mut self) {
        self.follower.kill9();
    }

    pub fn signal(&self, which: Signal) {
        self.follower.signal(which);
    }

    /// The exit code, or the negated signal; None while it runs.
    pub fn ended(&mut self) -> Option<i32> {
        self.follower.ended()
    }

    /// Waits for its end. Returns the exit code and how long that took.
    pub async fn wait(&mut self, patience: Duration) -> (i32, Duration) {
        let start = Instant::now();
        loop {
            if let Some(code) = self.ended() {
                let took = start.elapsed();
                self.follower.read_to_the_end();
                return (code, took);
            }
            assert!(start.elapsed() < patience, "the server did not end within {patience:?}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

/// A port below the range of outgoing connections: while the server is down, a client's own socket
/// must not take it.
pub(crate) fn free_port() -> u16 {
    let mut rng = Rng::random();
    for _ in 0..200 {
        let port = u16::try_from(rng.range(20_000, 32_000)).unwrap_or(20_000);
        if std::net::TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
    panic!("found no free port on 127.0.0.1");
}
