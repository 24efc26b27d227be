//! The command line and environment of a Chrome: its own profile, no port, no background traffic to
//! its vendor.

use std::ffi::OsString;
use std::path::Path;

/// Below this, /dev/shm is too small for Chrome's pages, as in many containers.
const SHARED_MEMORY: u64 = 256 * 1024 * 1024;

pub(super) fn arguments(profile: &Path, is_headless: bool) -> Vec<OsString> {
    let mut all: Vec<OsString> = [
        "--no-first-run",
        "--no-default-browser-check",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-quic",
        "--disable-sync",
        "--disable-gpu",
        "--hide-crash-restore-bubble",
        // Background tabs must run at full speed.
        "--disable-background-timer-throttling",
        "--disable-backgrounding-occluded-windows",
        "--disable-renderer-backgrounding",
        // A person logs in with a window; later runs are headless and have no keyring.
        "--password-store=basic",
        "--window-size=1280,900",
    ]
    .map(OsString::from)
    .to_vec();
    let mut folder = OsString::from("--user-data-dir=");
    folder.push(profile);
    all.push(folder);
    if is_headless {
        all.push("--headless=new".into());
    }
    if is_root() {
        // Chrome does not start as root otherwise.
        all.push("--no-sandbox".into());
    }
    if rustix::fs::statvfs("/dev/shm").is_ok_and(|s| s.f_blocks * s.f_frsize < SHARED_MEMORY) {
        all.push("--disable-dev-shm-usage".into());
    }
    all.push("about:blank".into());
    all
}

pub(super) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// The variables that a browser needs. They hold no credentials.
pub(super) fn environment() -> impl Iterator<Item = (OsString, OsString)> {
    const NAMES: [&str; 18] = [
        "PATH",
        "HOME",
        "USER",
        "LOGNAME",
        "LANG",
        "LANGUAGE",
        "TZ",
        "TMPDIR",
        "DISPLAY",
        "WAYLAND_DISPLAY",
        "XAUTHORITY",
        "DBUS_SESSION_BUS_ADDRESS",
        "http_proxy",
        "https_proxy",
        "no_proxy",
        "HTTP_PROXY",
        "HTTPS_PROXY",
        "NO_PROXY",
    ];
    std::env::vars_os().filter(|(name, _)| {
        name.to_str().is_some_and(|name| {
            NAMES.contains(&name) || name.starts_with("LC_") || name.starts_with("XDG_")
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_port_is_opened_and_the_sandbox_is_off_only_for_root() {
        let all = arguments(Path::new("/a profile"), true);
        let has = |flag: &str| all.iter().any(|argument| argument == flag);
        assert!(has("--user-data-dir=/a profile") && has("--headless=new"));
        let is_port = |flag: &OsString| flag.to_string_lossy().contains("debugging-port");
        assert!(!all.iter().any(is_port));
        assert_eq!(has("--no-sandbox"), is_root());
        assert!(!arguments(Path::new("/p"), false).contains(&"--headless=new".into()));
    }
}
