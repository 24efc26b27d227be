//! Finds the Chrome that another process of the project has started, or starts one.

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

use super::keeper_socket::KeeperAddress;
use super::{
    BrowserEndpoint, BrowserHandle, BrowserOptions, browser_keeper, chrome_flags, find_chrome,
};
use crate::cdp::BrowserTabs;
use crate::error::BrowserError;

/// How long a Chrome may take to answer, on a busy machine.
const START: Duration = Duration::from_secs(40);
const LOOK: Duration = Duration::from_millis(20);
/// Bytes of the log's end that an error shows.
const TAIL: u64 = 600;
/// This program, even if its file was replaced since it started.
const THIS_PROGRAM: &str = "/proc/self/exe";

/// The files of one tenant's browser.
struct BrowserPaths {
    /// The folder of all of them, which only its user can enter.
    home: PathBuf,
    profile: PathBuf,
    /// Locked while a process finds or starts the browser.
    start: PathBuf,
    /// Every user of the browser holds a shared lock on it.
    users: PathBuf,
    log: PathBuf,
}

pub(super) async fn acquire_browser(
    options: &BrowserOptions,
    tenant: &TenantId,
) -> Result<BrowserHandle, BrowserError> {
    let paths = prepare(&options.folder, tenant)?;
    let (starting, users) = lock(&paths).await?;
    let browser = match find_running(&paths.home).await {
        Some((endpoint, is_headless)) => {
            BrowserHandle { endpoint, is_headless, _users: Some(users) }
        }
        None => {
            let endpoint = start(options, &paths).await?;
            BrowserHandle { endpoint, is_headless: options.is_headless, _users: Some(users) }
        }
    };
    drop(starting);
    Ok(browser)
}

fn prepare(folder: &Path, tenant: &TenantId) -> Result<BrowserPaths, BrowserError> {
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
        ["start.lock", browser_keeper::USERS, "chrome.log"].map(|name| home.join(name));
    Ok(BrowserPaths { home, profile, start, users, log })
}

/// Takes the exclusive start lock and a shared user lock. Waits while a browser is being ended.
async fn lock(paths: &BrowserPaths) -> Result<(File, File), BrowserError> {
    let (start, users) = (paths.start.clone(), paths.users.clone());
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
        BrowserError::unavailable(format!("{} cannot be locked: {error}", paths.users.display()))
    };
    locking.await.map_err(|error| failed(error.to_string()))?.map_err(|e| failed(e.to_string()))
}

/// The browser whose keeper listens in this folder.
async fn find_running(home: &Path) -> Option<(BrowserEndpoint, bool)> {
    let endpoint = BrowserEndpoint::Keeper(KeeperAddress::read(home).ok()?);
    let tabs = BrowserTabs::of(&endpoint).await.ok()?;
    let is_headless = tabs.is_headless().await.ok()?;
    Some((endpoint, is_headless))
}

async fn start(
    options: &BrowserOptions,
    paths: &BrowserPaths,
) -> Result<BrowserEndpoint, BrowserError> {
    let chrome = find_chrome::program(options.chrome_bin.as_deref())?;
    if chrome_flags::is_root() {
        tracing::warn!("as root, Chrome runs without its sandbox: better work as another user");
    }
    let mut keeper = spawn(options, paths, &chrome).map_err(|error| {
        BrowserError::unavailable(format!("no browser can be started: {error}"))
    })?;
    let deadline = Instant::now() + START;
    let found = loop {
        if let Some((endpoint, _)) = find_running(&paths.home).await {
            break Ok(endpoint);
        }
        if keeper.try_wait().is_ok_and(|ended| ended.is_some()) {
            break Err(failed_to_start(paths, &chrome, "ended at once"));
        }
        if Instant::now() >= deadline {
            // Its keeper ends it when the user lock is released.
            break Err(failed_to_start(paths, &chrome, "does not answer"));
        }
        tokio::time::sleep(LOOK).await;
    };
    // Waits for the keeper in the background, so that it does not stay a zombie.
    std::thread::spawn(move || keeper.wait());
    found
}

fn spawn(options: &BrowserOptions, paths: &BrowserPaths, chrome: &Path) -> io::Result<Child> {
    // Older versions used a port and left this file.
    match fs::remove_file(paths.profile.join("DevToolsActivePort")) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let log =
        OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&paths.log)?;
    let here = || Path::new(THIS_PROGRAM).exists().then(|| PathBuf::from(THIS_PROGRAM));
    let program = match options.keeper.clone().or_else(here) {
        Some(program) => program,
        None => std::env::current_exe()?,
    };
    let flags = chrome_flags::arguments(&paths.profile, options.is_headless);
    let mut command = Command::new(program);
    command.args(browser_keeper::arguments(&paths.home, chrome, flags));
    command.env_clear().envs(chrome_flags::environment());
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
    // Signals of the terminal must not reach the browser, which other processes may use.
    std::os::unix::process::CommandExt::process_group(&mut command, 0);
    command.spawn()
}

fn failed_to_start(paths: &BrowserPaths, chrome: &Path, what: &str) -> BrowserError {
    let tail = log_tail(&paths.log).unwrap_or_default();
    let chrome = chrome.display();
    if let Some(other) = locked_by(&paths.profile) {
        return BrowserError::unavailable(format!(
            "{chrome} {what}: the profile {} is open in another Chrome ({other}); close that one",
            paths.profile.display()
        ));
    }
    BrowserError::unavailable(format!("{chrome} {what}; see {} {tail:?}", paths.log.display()))
}

fn log_tail(log: &Path) -> io::Result<String> {
    let mut file = File::open(log)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(TAIL)))?;
    let mut tail = Vec::new();
    file.take(TAIL).read_to_end(&mut tail)?;
    Ok(String::from_utf8_lossy(&tail).trim().to_owned())
}

/// The process that has a profile open: Chrome keeps a link with its machine and process id there.
fn locked_by(profile: &Path) -> Option<String> {
    let link = fs::read_link(profile.join("SingletonLock")).ok()?;
    let (machine, pid) = link.to_str()?.rsplit_once('-')?;
    let is_alive = Path::new("/proc").join(pid).exists();
    let here = rustix::system::uname();
    let is_elsewhere = here.nodename().to_str().is_ok_and(|name| name != machine);
    (is_alive || is_elsewhere).then(|| format!("process {pid} on {machine}"))
}
