//! A Chrome of our own: found if another process of the project has it started, started otherwise.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::{
    DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _,
};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use shikiri_model::ids::TenantId;
use tokio::time::Instant;

use super::socket::KeeperAddress;
use super::{BrowserOptions, Endpoint, Held, find, flags, keeper};
use crate::cdp::Tabs;
use crate::error::BrowserError;

/// How long a Chrome may take to answer, on a busy machine.
const START: Duration = Duration::from_secs(40);
const LOOK: Duration = Duration::from_millis(20);
/// So much of its last words is told.
const TAIL: u64 = 600;
/// This program, even if its file was replaced since it started.
const THIS_PROGRAM: &str = "/proc/self/exe";

/// Where everything of one tenant's browser lies.
struct Places {
    /// All of it. Only its user can enter.
    home: PathBuf,
    profile: PathBuf,
    /// Locked by whoever starts a browser, and meanwhile.
    start: PathBuf,
    /// Locked, with others, by whoever uses it.
    users: PathBuf,
    log: PathBuf,
}

pub(super) async fn hold(
    options: &BrowserOptions,
    tenant: &TenantId,
) -> Result<Held, BrowserError> {
    let places = prepare(&options.folder, tenant)?;
    let (starting, users) = lock(&places).await?;
    let held = match running(&places.home).await {
        Some((endpoint, is_headless)) => Held { endpoint, is_headless, _users: Some(users) },
        None => {
            let endpoint = start(options, &places).await?;
            Held { endpoint, is_headless: options.is_headless, _users: Some(users) }
        }
    };
    drop(starting);
    Ok(held)
}

fn prepare(folder: &Path, tenant: &TenantId) -> Result<Places, BrowserError> {
    let home = folder.join("browser").join(tenant.to_string());
    let profile = home.join("profile");
    let unusable = |error: io::Error| {
        BrowserError::unavailable(format!("{} cannot be used: {error}", profile.display()))
    };
    DirBuilder::new().recursive(true).mode(0o700).create(&profile).map_err(unusable)?;
    for folder in [&home, &profile] {
        let found = fs::symlink_metadata(folder).map_err(unusable)?;
        if !found.is_dir() {
            return Err(unusable(io::ErrorKind::NotADirectory.into()));
        }
        if found.uid() != rustix::process::geteuid().as_raw() {
            return Err(BrowserError::unavailable(format!(
                "{} belongs to another user (id {}): remove it, or work as that user",
                folder.display(),
                found.uid()
            )));
        }
        if found.mode() & 0o077 != 0 {
            fs::set_permissions(folder, fs::Permissions::from_mode(0o700)).map_err(unusable)?;
        }
    }
    let [start, users, log] =
        ["start.lock", keeper::USERS, "chrome.log"].map(|name| home.join(name));
    Ok(Places { home, profile, start, users, log })
}

/// The right to start, and a share of the browser, which is waited for while one is being ended.
async fn lock(places: &Places) -> Result<(File, File), BrowserError> {
    let (start, users) = (places.start.clone(), places.users.clone());
    let locking = tokio::task::spawn_blocking(move || {
        let open = |path: &Path| {
            OpenOptions::new()
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .mode(0o600)
                .open(path)
        };
        let starting = open(&start)?;
        starting.lock()?;
        let using = open(&users)?;
        using.lock_shared()?;
        Ok::<_, io::Error>((starting, using))
    });
    let failed = |error: String| {
        BrowserError::unavailable(format!("{} cannot be locked: {error}", places.users.display()))
    };
    locking.await.map_err(|error| failed(error.to_string()))?.map_err(|e| failed(e.to_string()))
}

/// The browser whose keeper listens in this folder.
async fn running(home: &Path) -> Option<(Endpoint, bool)> {
    let endpoint = Endpoint::Keeper(KeeperAddress::read(home).ok()?);
    let tabs = Tabs::of(&endpoint).await.ok()?;
    let is_headless = tabs.is_headless().await.ok()?;
    Some((endpoint, is_headless))
}

async fn start(options: &BrowserOptions, places: &Places) -> Result<Endpoint, BrowserError> {
    let chrome = find::program(options.chrome_bin.as_deref())?;
    if flags::is_root() {
        tracing::warn!("as root, Chrome runs without its sandbox: better work as another user");
    }
    let mut keeper = spawn(options, places, &chrome).map_err(|error| {
        BrowserError::unavailable(format!("no browser can be started: {error}"))
    })?;
    let deadline = Instant::now() + START;
    let found = loop {
        if let Some((endpoint, _)) = running(&places.home).await {
            break Ok(endpoint);
        }
        if keeper.try_wait().is_ok_and(|ended| ended.is_some()) {
            break Err(failed_to_start(places, &chrome, "ended at once"));
        }
        if Instant::now() >= deadline {
            // Its keeper ends it as soon as we let go of the lock.
            break Err(failed_to_start(places, &chrome, "does not answer"));
        }
        tokio::time::sleep(LOOK).await;
    };
    // It may outlive us, but not be left unburied while we live.
    std::thread::spawn(move || keeper.wait());
    found
}

fn spawn(options: &BrowserOptions, places: &Places, chrome: &Path) -> io::Result<Child> {
    // Older versions had Chrome listen, and left this behind.
    match fs::remove_file(places.profile.join("DevToolsActivePort")) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let log =
        OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&places.log)?;
    let here = || Path::new(THIS_PROGRAM).exists().then(|| PathBuf::from(THIS_PROGRAM));
    let program = match options.keeper.clone().or_else(here) {
        Some(program) => program,
        None => std::env::current_exe()?,
    };
    let flags = flags::arguments(&places.profile, options.is_headless);
    let mut command = Command::new(program);
    command.args(keeper::arguments(&places.home, chrome, flags));
    command.env_clear().envs(flags::environment());
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
    // Signals of a terminal are for us; the browser ends when nobody uses it.
    std::os::unix::process::CommandExt::process_group(&mut command, 0);
    command.spawn()
}

fn failed_to_start(places: &Places, chrome: &Path, what: &str) -> BrowserError {
    let words = last_words(&places.log).unwrap_or_default();
    let chrome = chrome.display();
    if let Some(other) = locked_by(&places.profile) {
        return BrowserError::unavailable(format!(
            "{chrome} {what}: the profile {} is open in another Chrome ({other}); close that one",
            places.profile.display()
        ));
    }
    BrowserError::unavailable(format!("{chrome} {what}; see {} {words:?}", places.log.display()))
}

fn last_words(log: &Path) -> io::Result<String> {
    let mut file = File::open(log)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(TAIL)))?;
    let mut words = Vec::new();
    file.take(TAIL).read_to_end(&mut words)?;
    Ok(String::from_utf8_lossy(&words).trim().to_owned())
}

/// Who has a profile open: Chrome keeps a link there that names its machine and process.
fn locked_by(profile: &Path) -> Option<String> {
    let link = fs::read_link(profile.join("SingletonLock")).ok()?;
    let (machine, pid) = link.to_str()?.rsplit_once('-')?;
    let is_alive = Path::new("/proc").join(pid).exists();
    let here = rustix::system::uname();
    let is_elsewhere = here.nodename().to_str().is_ok_and(|name| name != machine);
    (is_alive || is_elsewhere).then(|| format!("process {pid} on {machine}"))
}
