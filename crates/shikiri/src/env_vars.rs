//! Every environment variable that Shikiri reads, with what it does: the only list there is, and
//! the text of `shikiri --help`.

/// A variable and its manual line.
#[derive(Clone, Copy, Debug)]
pub struct EnvVar {
    pub name: &'static str,
    pub about: &'static str,
}

const fn var(name: &'static str, about: &'static str) -> EnvVar {
    EnvVar { name, about }
}

pub const CLAUDE_PROJECT_DIR: EnvVar =
    var("CLAUDE_PROJECT_DIR", "the project's folder, in which .shikiri lies [current folder]");
pub const CLAUDE_CONFIG_DIR: EnvVar =
    var("CLAUDE_CONFIG_DIR", "the folder of your Claude Code settings [~/.claude]");
pub const CLAUDE_CODE_OAUTH_TOKEN: EnvVar =
    var("CLAUDE_CODE_OAUTH_TOKEN", "your token of `claude setup-token`, for `run --my-login`");
pub const STORE: EnvVar =
    var("SHIKIRI_STORE", "sqlite:PATH or postgres://user:password@host/database");
pub const LISTEN: EnvVar = var("SHIKIRI_LISTEN", "address of the server [127.0.0.1:7420]");
pub const ALLOW_REMOTE: EnvVar =
    var("SHIKIRI_ALLOW_REMOTE", "true: listening beyond this machine is wanted [false]");
pub const ALLOWED_HOSTS: EnvVar =
    var("SHIKIRI_ALLOWED_HOSTS", "names under which the server may be called, with commas");
pub const METRICS_PUBLIC: EnvVar =
    var("SHIKIRI_METRICS_PUBLIC", "true: /metrics answers others than this machine [false]");
pub const MAX_CONNECTIONS: EnvVar =
    var("SHIKIRI_MAX_CONNECTIONS", "connections that the server holds at once");
pub const MAX_STREAMS: EnvVar =
    var("SHIKIRI_MAX_STREAMS", "event streams that the server holds at once");
pub const NODE_LEASE_SECONDS: EnvVar =
    var("SHIKIRI_NODE_LEASE_SECONDS", "a silent server's runs are taken over after this [15]");
pub const RETENTION_DAYS: EnvVar =
    var("SHIKIRI_RETENTION_DAYS", "events of ended runs are kept this long [30]");
pub const EXECUTION_TIMEOUT_SECONDS: EnvVar =
    var("SHIKIRI_EXECUTION_TIMEOUT_SECONDS", "longest time of one execution [300]");
pub const LOCK_WAIT_SECONDS: EnvVar =
    var("SHIKIRI_LOCK_WAIT_SECONDS", "how long a request waits for a busy conversation [5]");
pub const LOCK_LEASE_SECONDS: EnvVar =
    var("SHIKIRI_LOCK_LEASE_SECONDS", "a conversation whose server is silent is free after [600]");
pub const DIALOGUE_PENDING_SECONDS: EnvVar = var(
    "SHIKIRI_DIALOGUE_PENDING_SECONDS",
    "a dialogue whose partner does not come ends after this [300]",
);
pub const DIALOGUE_IDLE_SECONDS: EnvVar = var(
    "SHIKIRI_DIALOGUE_IDLE_SECONDS",
    "a dialogue in which nothing is said ends after this [600]",
);
pub const SESSION_SECONDS: EnvVar =
    var("SHIKIRI_SESSION_SECONDS", "longest time of an agent's session [3600]");
pub const CHAT_IDLE_SECONDS: EnvVar =
    var("SHIKIRI_CHAT_IDLE_SECONDS", "a chat session that calls nothing ends after this [600]");
pub const DELEGATION_CLAIM_SECONDS: EnvVar = var(
    "SHIKIRI_DELEGATION_CLAIM_SECONDS",
    "a silent chat session gives a delegation back after this [120]",
);
pub const DELEGATION_DEPTH: EnvVar =
    var("SHIKIRI_DELEGATION_DEPTH", "delegations that may follow from one another [3]");
pub const DELEGATION_SECONDS: EnvVar = var(
    "SHIKIRI_DELEGATION_SECONDS",
    "longest time of a delegation and what follows from it [3600]",
);
pub const SPAWN_GUARD_SECONDS: EnvVar =
    var("SHIKIRI_SPAWN_GUARD_SECONDS", "an agent that was started has so long to log in [120]");
pub const MAX_SPAWNS: EnvVar =
    var("SHIKIRI_MAX_SPAWNS", "agents that are started and at work at once [3]");
pub const SESSION_TTL_MINUTES: EnvVar =
    var("SHIKIRI_SESSION_TTL_MINUTES", "a lane that is not used for so long ends [30]");
pub const CAI_SESSION_TTL_MINUTES: EnvVar =
    var("CAI_SESSION_TTL_MINUTES", "the same, if SHIKIRI_SESSION_TTL_MINUTES is not set");
pub const MAX_AGENTS: EnvVar =
    var("SHIKIRI_MAX_AGENTS", "lanes at once; for one more the idlest ends [10]");
pub const CAI_MAX_AGENTS: EnvVar =
    var("CAI_MAX_AGENTS", "the same, if SHIKIRI_MAX_AGENTS is not set");
pub const MAX_QUESTIONS: EnvVar =
    var("SHIKIRI_MAX_QUESTIONS", "questions that are put to providers at once [10]");
pub const MAX_QUEUED_QUESTIONS: EnvVar =
    var("SHIKIRI_MAX_QUEUED_QUESTIONS", "questions that may wait in one process [64]");
pub const QUESTION_WAIT_SECONDS: EnvVar =
    var("SHIKIRI_QUESTION_WAIT_SECONDS", "how long a question waits for its turn [300]");
pub const PAGES: EnvVar = var(
    "SHIKIRI_PAGES",
    "browser, or for trying and testing offline: lanes answer without a browser [browser]",
);
pub const CLAUDE_BIN: EnvVar =
    var("SHIKIRI_CLAUDE_BIN", "the Claude Code program [claude, found in PATH]");
pub const ENGINE_PATHS: EnvVar = var(
    "SHIKIRI_ENGINE_PATHS",
    "folders with : between, that Claude Code may read besides its own and the system's",
);
pub const ENGINE_MEMORY_MB: EnvVar =
    var("SHIKIRI_ENGINE_MEMORY_MB", "memory of one run of Claude Code, in MiB [4096]");
pub const ENGINE_PROCESSES: EnvVar =
    var("SHIKIRI_ENGINE_PROCESSES", "processes and threads of one run of Claude Code [1024]");
pub const ENGINE_FILE_MB: EnvVar =
    var("SHIKIRI_ENGINE_FILE_MB", "largest file that a run of Claude Code writes, in MiB [4096]");
pub const ENGINE_OPEN_FILES: EnvVar =
    var("SHIKIRI_ENGINE_OPEN_FILES", "open files of one process of Claude Code [4096]");
pub const UNCONFINED_ENGINES: EnvVar = var(
    "SHIKIRI_UNCONFINED_ENGINES",
    "true: Claude Code works for all tenants even if it cannot be confined here [false]",
);
pub const BROWSER_URL: EnvVar = var(
    "SHIKIRI_BROWSER_URL",
    "a running Chrome to ask providers with, such as http://127.0.0.1:9222 [one is started]",
);
pub const BROWSER_ALLOW_REMOTE: EnvVar = var(
    "SHIKIRI_BROWSER_ALLOW_REMOTE",
    "true: that Chrome may be on another machine, or another user's [false]",
);
pub const BROWSER_HEADLESS: EnvVar = var(
    "SHIKIRI_BROWSER_HEADLESS",
    "true: a Chrome that is started shows no window [true without a display]",
);
pub const CHROME_BIN: EnvVar =
    var("SHIKIRI_CHROME_BIN", "the Chrome or Chromium to start [found in PATH]");
pub const DISPLAY: EnvVar = var("DISPLAY", "tells that windows can be shown");
pub const WAYLAND_DISPLAY: EnvVar = var("WAYLAND_DISPLAY", "the same");
pub const KEY: EnvVar =
    var("SHIKIRI_KEY", "key for `shikiri run --server` [the one in .shikiri/admin.key]");
pub const SEALING_KEY_FILE: EnvVar = var(
    "SHIKIRI_SEALING_KEY_FILE",
    "the key that seals secrets in the store, one for all its nodes [.shikiri/sealing.key]",
);
pub const DURABILITY: EnvVar =
    var("SHIKIRI_DURABILITY", "full: a commit survives a power cut; normal: a crash [full]");
pub const POSTGRES_CONNECTIONS: EnvVar =
    var("SHIKIRI_POSTGRES_CONNECTIONS", "connections to PostgreSQL at once");
pub const LOG: EnvVar = var(
    "SHIKIRI_LOG",
    "what is logged, such as info or shikiri_app=debug [serve: info, else warn]",
);
pub const RUST_LOG: EnvVar = var("RUST_LOG", "the same, if SHIKIRI_LOG is not set");
pub const LOG_FORMAT: EnvVar = var("SHIKIRI_LOG_FORMAT", "text or json [text]");
pub const PLAIN_LOG_FORMAT: EnvVar =
    var("LOG_FORMAT", "the same, if SHIKIRI_LOG_FORMAT is not set");
pub const AGENT_ID: EnvVar =
    var("SHIKIRI_AGENT_ID", "names the agent that `shikiri mcp` serves [the client's own name]");
pub const CAI_AGENT_ID: EnvVar = var("CAI_AGENT_ID", "the same, if SHIKIRI_AGENT_ID is not set");
pub const XDG_CONFIG_HOME: EnvVar =
    var("XDG_CONFIG_HOME", "folder of shikiri/config.toml [~/.config]");
pub const XDG_STATE_HOME: EnvVar =
    var("XDG_STATE_HOME", "folder of shikiri/trust.json, your agreements [~/.local/state]");
pub const TRUST: EnvVar =
    var("SHIKIRI_TRUST", "1: agree to what this project's files ask for, for one command");
pub const HOME: EnvVar = var("HOME", "your folder, for ~/.config and ~/.local/state");
pub const USER: EnvVar = var("USER", "on whose behalf `shikiri run` acts [local]");
pub const PATH: EnvVar = var("PATH", "where the claude program is looked for");
pub const NO_COLOR: EnvVar = var("NO_COLOR", "anything: no colours");
pub const TERM: EnvVar = var("TERM", "dumb: no colours");
/// Read in `shikiri-app`, in debug builds only.
pub const FAILPOINT: EnvVar =
    var("SHIKIRI_FAILPOINT", "NAME:N, in debug builds: die at the Nth passage of a failpoint");

pub const ALL: &[EnvVar] = &[
    CLAUDE_PROJECT_DIR,
    CLAUDE_CONFIG_DIR,
    CLAUDE_CODE_OAUTH_TOKEN,
    STORE,
    LISTEN,
    ALLOW_REMOTE,
    ALLOWED_HOSTS,
    METRICS_PUBLIC,
    MAX_CONNECTIONS,
    MAX_STREAMS,
    NODE_LEASE_SECONDS,
    RETENTION_DAYS,
    EXECUTION_TIMEOUT_SECONDS,
    LOCK_WAIT_SECONDS,
    LOCK_LEASE_SECONDS,
    DIALOGUE_PENDING_SECONDS,
    DIALOGUE_IDLE_SECONDS,
    SESSION_SECONDS,
    CHAT_IDLE_SECONDS,
    DELEGATION_CLAIM_SECONDS,
    DELEGATION_DEPTH,
    DELEGATION_SECONDS,
    SPAWN_GUARD_SECONDS,
    MAX_SPAWNS,
    SESSION_TTL_MINUTES,
    CAI_SESSION_TTL_MINUTES,
    MAX_AGENTS,
    CAI_MAX_AGENTS,
    MAX_QUESTIONS,
    MAX_QUEUED_QUESTIONS,
    QUESTION_WAIT_SECONDS,
    PAGES,
    CLAUDE_BIN,
    ENGINE_PATHS,
    ENGINE_MEMORY_MB,
    ENGINE_PROCESSES,
    ENGINE_FILE_MB,
    ENGINE_OPEN_FILES,
    UNCONFINED_ENGINES,
    BROWSER_URL,
    BROWSER_ALLOW_REMOTE,
    BROWSER_HEADLESS,
    CHROME_BIN,
    DISPLAY,
    WAYLAND_DISPLAY,
    KEY,
    SEALING_KEY_FILE,
    DURABILITY,
    POSTGRES_CONNECTIONS,
    LOG,
    RUST_LOG,
    LOG_FORMAT,
    PLAIN_LOG_FORMAT,
    AGENT_ID,
    CAI_AGENT_ID,
    XDG_CONFIG_HOME,
    XDG_STATE_HOME,
    TRUST,
    HOME,
    USER,
    PATH,
    NO_COLOR,
    TERM,
    FAILPOINT,
];

/// The list as a section of the help text.
pub fn manual() -> String {
    let width = ALL.iter().map(|v| v.name.len()).max().unwrap_or(0);
    let lines = ALL.iter().map(|v| format!("  {:width$}  {}\n", v.name, v.about));
    format!("Environment:\n{}", lines.collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_readme_names_every_variable_that_is_ours() {
        let readme = include_str!("../../../README.md");
        for name in ALL.iter().map(|v| v.name).filter(|n| n.starts_with("SHIKIRI_")) {
            assert!(readme.contains(name), "README.md does not mention {name}");
        }
    }
}
