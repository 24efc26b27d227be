//! One private cluster, from `initdb` to its removal.

use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{fmt, fs};

use crate::account::Account;
use crate::error::Error;
use crate::guard::Guard;
use crate::installed::Installed;
use crate::{folder, sweep};

/// A running server in a temporary folder. Dropping it stops the server at once and removes the
/// folder.
pub struct Cluster {
    installed: Installed,
    account: Account,
    folder: PathBuf,
    password: String,
    port: u16,
    // Dropped after our own `drop` has run, and then finds nothing left to do.
    _guard: Guard,
}

impl Cluster {
    /// Sweeps what dead creators left behind, makes a new cluster and waits until it answers.
    pub fn start(installed: &Installed) -> Result<Cluster, Error> {
        let account = Account::for_servers()?;
        sweep::sweep(installed, account);
        let folder = folder::create(account)?;
        let mut cluster = Cluster {
            installed: installed.clone(),
            account,
            password: folder::random_hex(16)?,
            port: 0,
            _guard: Guard::post(&folder)?,
            folder,
        };
        cluster.initialise()?;
        cluster.start_on_a_free_port()?;
        Ok(cluster)
    }

    /// Where to connect, as superuser. Stays the same over restarts.
    pub fn url(&self) -> String {
        format!("postgres://postgres:{}@127.0.0.1:{}/postgres", self.password, self.port)
    }

    /// The data folder, which is also the folder of the Unix socket.
    pub fn data_dir(&self) -> PathBuf {
        folder::data(&self.folder)
    }

    /// What the server wrote to its log.
    pub fn log(&self) -> String {
        fs::read(folder::log(&self.folder))
            .map_or_else(|_| String::new(), |log| String::from_utf8_lossy(&log).into_owned())
    }

    /// Stops the server in good order, breaking connections. `restart` brings it back. Stopping
    /// a stopped cluster does nothing.
    pub fn stop(&self) -> Result<(), Error> {
        if folder::server(&self.folder).is_none() {
            return Ok(());
        }
        self.pg_ctl(&["stop", "-m", "fast"])
    }

    /// Restarts in good order, or starts if stopped; back when it answers again.
    pub fn restart(&self) -> Result<(), Error> {
        self.pg_ctl(&["restart", "-m", "fast"])
    }

    /// Restarts as after a crash: no checkpoint, recovery from the log.
    pub fn restart_immediate(&self) -> Result<(), Error> {
        self.pg_ctl(&["restart", "-m", "immediate"])
    }

    /// From now on it takes TLS connections only, with this certificate and key in PEM.
    pub fn require_tls(&self, certificate: &str, key: &str) -> Result<(), Error> {
        let data = self.data_dir();
        let settings = format!("{}ssl = on\n", self.settings());
        for (name, text) in [
            ("server.crt", certificate),
            ("server.key", key),
            ("pg_hba.conf", "hostssl all all 127.0.0.1/32 scram-sha-256\n"),
            ("postgresql.auto.conf", &settings),
        ] {
            let path = data.join(name);
            fs::write(&path, text).map_err(|cause| Error::file("write", &path, &cause))?;
            // The server refuses a key that others may read.
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600))
                .map_err(|cause| Error::file("close", &path, &cause))?;
            self.account.give(&path)?;
        }
        self.restart()
    }

    fn initialise(&self) -> Result<(), Error> {
        let password_file = self.folder.join("password");
        fs::write(&password_file, &self.password)
            .map_err(|cause| Error::file("write", &password_file, &cause))?;
        self.account.give(&password_file)?;
        let mut initdb = self.account.command(self.installed.program("initdb"), &self.folder);
        initdb
            .args(["--auth=scram-sha-256", "--username=postgres", "--encoding=UTF8", "--locale=C"])
            // Only the making of the files: the running server syncs as usual.
            .arg("--no-sync")
            .arg("--pwfile")
            .arg(&password_file)
            .arg("-D")
            .arg(self.data_dir());
        let outcome = run("initdb", &mut initdb);
        fs::remove_file(&password_file)
            .map_err(|cause| Error::file("remove", &password_file, &cause))?;
        outcome
    }

    fn start_on_a_free_port(&mut self) -> Result<(), Error> {
        let mut last = Error::new("found no free port on 127.0.0.1");
        for _ in 0..20 {
            let Some(port) = free_port()? else { continue };
            self.port = port;
            self.write_settings()?;
            match self.pg_ctl(&["start"]) {
                Ok(()) => return Ok(()),
                // Another process took the port between the check and the server's start.
                Err(error) if self.log().contains("Address already in use") => last = error,
                Err(error) => return Err(error),
            }
            let _ = fs::remove_file(folder::log(&self.folder));
        }
        Err(last)
    }

    fn write_settings(&self) -> Result<(), Error> {
        let path = self.data_dir().join("postgresql.auto.conf");
        fs::write(&path, self.settings()).map_err(|cause| Error::file("write", &path, &cause))
    }

    fn settings(&self) -> String {
        format!(
            "listen_addresses = '127.0.0.1'\n\
             port = {}\n\
             unix_socket_directories = '{}'\n\
             max_connections = 200\n",
            self.port,
            socket_directory(&self.data_dir(), self.port)
        )
    }

    /// Runs `pg_ctl` on this cluster and waits for the outcome.
    fn pg_ctl(&self, arguments: &[&str]) -> Result<(), Error> {
        let mut pg_ctl = self.account.command(self.installed.program("pg_ctl"), &self.folder);
        pg_ctl.args(arguments).args(["-w", "-t", "60", "-D"]).arg(self.data_dir());
        if arguments[0] != "stop" {
            pg_ctl.arg("-l").arg(folder::log(&self.folder));
        }
        run(&format!("pg_ctl {}", arguments.join(" ")), &mut pg_ctl).map_err(|error| {
            Error::new(format!("{error}\nend of the server's log:\n{}", last_lines(&self.log())))
        })
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        sweep::end_and_remove(&self.folder, &self.installed, self.account);
    }
}

// By hand: the password stays out of test output.
impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cluster")
            .field("folder", &self.folder)
            .field("port", &self.port)
            .finish_non_exhaustive()
    }
}

fn run(name: &str, command: &mut Command) -> Result<(), Error> {
    let output =
        command.output().map_err(|cause| Error::new(format!("cannot run {name}: {cause}")))?;
    if output.status.success() {
        return Ok(());
    }
    Err(Error::new(format!(
        "{name}: {}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )))
}

/// A port below the range of outgoing connections: while the server restarts, a client's own
/// socket must not take its place.
fn free_port() -> Result<Option<u16>, Error> {
    let random = u16::from_str_radix(&folder::random_hex(2)?, 16).unwrap_or_default();
    let port = 20_000 + random % 12_000;
    Ok(TcpListener::bind(("127.0.0.1", port)).is_ok().then_some(port))
}

/// The data folder, or none at all where the socket's path would not fit the system's limit of
/// 107 bytes: tests use the port anyway.
fn socket_directory(data: &Path, port: u16) -> String {
    let socket = data.join(format!(".s.PGSQL.{port}.lock"));
    if socket.as_os_str().len() > 107 {
        return String::new();
    }
    data.display().to_string().replace('\'', "''")
}

fn last_lines(log: &str) -> String {
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(20)..].join("\n")
}
