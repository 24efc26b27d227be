//! A terminal that tests type at and look at: a pane of a private tmux.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use shikiri_testkit::{skip, until};
use tempfile::TempDir;

/// A machine that builds at the same time is slow.
const PATIENCE: Duration = Duration::from_secs(60);

/// A program in a pane. Its tmux ends when dropped.
pub(crate) struct Pane {
    folder: TempDir,
    size: (u16, u16),
}

impl Pane {
    /// None, and said loudly, where there is no tmux.
    pub(crate) async fn start(command: &Command, size: (u16, u16)) -> Option<Self> {
        let has_tmux = Command::new("tmux").arg("-V").stdout(Stdio::null()).status();
        if !has_tmux.is_ok_and(|status| status.success()) {
            skip("the host at a terminal", "tmux is not installed: apt-get install tmux");
            return None;
        }
        let pane = Self { folder: tempfile::tempdir().unwrap(), size };
        let (width, height) = (size.0.to_string(), size.1.to_string());
        // It waits for a line, so that nothing of what it writes is missed. Its end is told by its
        // shell: where the output of a pane is copied, tmux may not notice that its program ended.
        let (line, status) = (shell_line(command), pane.status_file());
        let line = format!("trap : INT; read go; {line}; echo $? > '{}'", status.display());
        let session = ["new-session", "-d", "-x", &width, "-y", &height, "sh", "-c", &line];
        pane.tmux(&[&["-f", "/dev/null"], &session[..]].concat());
        pane.tmux(&["set-option", "-g", "remain-on-exit", "on"]);
        pane.tmux(&["set-option", "-g", "history-limit", "5000"]);
        pane.tmux(&["pipe-pane", "-o", &format!("cat >> {}", pane.raw_file().display())]);
        pane.keys(&["Enter"]);
        Some(pane)
    }

    fn status_file(&self) -> PathBuf {
        self.folder.path().join("status")
    }

    fn raw_file(&self) -> PathBuf {
        self.folder.path().join("raw")
    }

    fn tmux(&self, words: &[&str]) -> String {
        let mut command = Command::new("tmux");
        command.arg("-u").arg("-S").arg(self.folder.path().join("socket"));
        let output = command.args(words).env_remove("TMUX").output().unwrap();
        assert!(output.status.success(), "tmux {words:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Presses keys, by tmux's names for them.
    pub(crate) fn keys(&self, keys: &[&str]) {
        self.tmux(&[&["send-keys"], keys].concat());
    }

    /// Types a text and the key Enter.
    pub(crate) fn line(&self, text: &str) {
        if !text.is_empty() {
            self.tmux(&["send-keys", "-l", text]);
        }
        self.keys(&["Enter"]);
    }

    pub(crate) fn resize(&mut self, width: u16) {
        self.size.0 = width;
        let (width, height) = (width.to_string(), self.size.1.to_string());
        self.tmux(&["resize-window", "-x", &width, "-y", &height]);
    }

    /// What is on the screen, with what has gone off its top.
    pub(crate) fn screen(&self) -> String {
        self.tmux(&["capture-pane", "-p", "-S", "-"])
    }

    /// Every byte that was written to the terminal.
    pub(crate) fn raw(&self) -> Vec<u8> {
        std::fs::read(self.raw_file()).unwrap_or_default()
    }

    pub(crate) fn title(&self) -> String {
        self.tmux(&["display-message", "-p", "#{pane_title}"])
    }

    /// Waits until the screen is as wanted.
    pub(crate) async fn until(&self, what: &str, wanted: impl Fn(&str) -> bool) -> String {
        let mut seen = String::new();
        let looking = until(what, async || {
            seen = self.screen();
            wanted(&seen)
        });
        let found = tokio::time::timeout(PATIENCE - Duration::from_secs(1), looking).await;
        assert!(found.is_ok(), "never on the screen: {what}\n{}", self.screen());
        seen
    }

    /// Waits until a text is on the screen.
    pub(crate) async fn sees(&self, text: &str) -> String {
        self.until(text, |screen| screen.contains(text)).await
    }

    /// The exit code of the program.
    pub(crate) async fn ended(&self) -> i32 {
        let mut code = String::new();
        until("the program ends", async || {
            code = std::fs::read_to_string(self.status_file()).unwrap_or_default();
            code.ends_with('\n')
        })
        .await;
        code.trim().parse().unwrap()
    }
}

impl Drop for Pane {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the screen was:\n{}", self.screen());
        }
        self.tmux(&["kill-server"]);
    }
}

/// A command as `sh` takes it: with its folder and nothing but its own environment.
fn shell_line(command: &Command) -> String {
    let quoted =
        |text: &std::ffi::OsStr| format!("'{}'", text.to_str().unwrap().replace('\'', r"'\''"));
    let mut words = vec!["env".to_owned(), "-i".to_owned()];
    if let Some(folder) = command.get_current_dir() {
        words.extend(["-C".to_owned(), quoted(folder.as_os_str())]);
    }
    words.push("TERM=\"$TERM\"".to_owned());
    for (name, value) in command.get_envs() {
        let pair =
            value.map(|value| quoted(format!("{}={}", name.display(), value.display()).as_ref()));
        words.extend(pair);
    }
    words.push(quoted(command.get_program()));
    words.extend(command.get_args().map(quoted));
    words.join(" ")
}
