//! The table of settings. From an entry come a setting's flag, its variables, its key in the
//! configuration files, its line in the help and in `docs/reference/configuration.md`, and its place
//! in [`Config`].
//!
//! `field` makes a field of `Config` and gives its default. `sets` names a field of a domain's own
//! options, which have their defaults: `runtime` is `RuntimeOptions`, `executions` `ExecutionOptions`,
//! `team` `TeamLimits`, `lanes` `LaneOptions`. The domain reads it there; nothing else is to be done.
//! A setting's `///` lines go to the reference. An example: CONTRIBUTING, *Add a setting*.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use shikiri_store::postgres::PostgresOptions;
use shikiri_tenancy::gate::GateOptions;
use shikiri_web::WebOptions;

use super::kinds::{
    Address, Choice, Count, Days, Folders, LaneCount, LaneMinutes, List, Mebibytes, Number,
    Program, Seconds, SettingKind, StoreLocation, Switch, Text,
};
use super::pages::{PageSource, Pages};
use super::table::DefaultText::{ReferenceOnly, Shown};
use super::table::ProjectRule::{Guarded, Never};
use super::table::settings;
use super::{Durability, LogFormat};
use crate::trust::ConfigUse::{Browser, Engines, Listener, Store};

settings! {
    "Store and server" {
        store {
            help: "sqlite:PATH or postgres://user:password@host/database",
            variables: ["SHIKIRI_STORE"],
            kind: StoreLocation,
            sets: store,
            default: ReferenceOnly(|| "sqlite:.shikiri/state.db in the project".to_owned()),
            flag: Global "--store <URL>" "Where the data lies: sqlite:PATH or postgres://… (put passwords in SHIKIRI_STORE instead)",
            project: Guarded(Store, "where the data lies"),
        }
        listen {
            help: "address of the server",
            variables: ["SHIKIRI_LISTEN"],
            kind: Address,
            field: listen: SocketAddr = SocketAddr::from((Ipv4Addr::LOCALHOST, 7420)),
            flag: Serve "--listen <IP:PORT>" "Address to listen on [default]",
            project: Guarded(Listener, "where the server listens"),
        }
        allow_remote {
            help: "true: listening beyond this machine is wanted",
            variables: ["SHIKIRI_ALLOW_REMOTE"],
            kind: Switch,
            field: allow_remote: bool = false,
            flag: Serve "--allow-remote" "Allow an address that other machines can reach",
            project: Guarded(Listener, "other machines can reach the server"),
        }
        /// The names of the loopback interface are always allowed.
        allowed_hosts {
            help: "names under which the server may be called, with commas",
            variables: ["SHIKIRI_ALLOWED_HOSTS"],
            kind: List,
            field: allowed_hosts: Vec<String> = Vec::new(),
            flag: Serve "--allow-host <HOST>" "A name under which the server may be called; may be repeated",
            project: Guarded(Listener, "names under which it may be called"),
        }
        metrics_public {
            help: "true: /metrics answers others than this machine",
            variables: ["SHIKIRI_METRICS_PUBLIC"],
            kind: Switch,
            field: metrics_public: bool = false,
            project: Guarded(Listener, "other machines can read /metrics"),
        }
        sample_agents {
            help: "false: without travel_agent, research_agent and long_running_agent",
            variables: ["SHIKIRI_SAMPLE_AGENTS"],
            kind: Switch,
            field: sample_agents: bool = true,
        }
        max_connections {
            help: "connections that the server holds at once",
            variables: ["SHIKIRI_MAX_CONNECTIONS"],
            kind: Count<usize>,
            field: max_connections: Option<usize> = None,
            default: ReferenceOnly(|| WebOptions::default().max_connections.to_string()),
        }
        max_streams {
            help: "event streams that the server holds at once",
            variables: ["SHIKIRI_MAX_STREAMS"],
            kind: Count<usize>,
            field: max_streams: Option<usize> = None,
            default: ReferenceOnly(|| GateOptions::default().max_streams.to_string()),
        }
    }
    "Runs and executions" {
        node_lease_seconds {
            help: "a silent server's runs are taken over after this",
            variables: ["SHIKIRI_NODE_LEASE_SECONDS"],
            kind: Seconds,
            sets: runtime.node_lease,
        }
        retention_days {
            help: "events of ended runs are kept this long",
            variables: ["SHIKIRI_RETENTION_DAYS"],
            kind: Days,
            sets: runtime.retention,
        }
        execution_timeout_seconds {
            help: "longest time of one execution",
            variables: ["SHIKIRI_EXECUTION_TIMEOUT_SECONDS"],
            kind: Seconds,
            sets: executions.timeout,
        }
        lock_wait_seconds {
            help: "how long a request waits for a busy conversation",
            variables: ["SHIKIRI_LOCK_WAIT_SECONDS"],
            kind: Seconds,
            sets: executions.lock_wait,
        }
        lock_lease_seconds {
            help: "a conversation whose server is silent is free after",
            variables: ["SHIKIRI_LOCK_LEASE_SECONDS"],
            kind: Seconds,
            sets: executions.lock_lease,
        }
    }
    "Teams" {
        dialogue_pending_seconds {
            help: "a dialogue whose partner does not come ends after this",
            variables: ["SHIKIRI_DIALOGUE_PENDING_SECONDS"],
            kind: Seconds,
            sets: team.dialogue_pending,
        }
        dialogue_idle_seconds {
            help: "a dialogue in which nothing is said ends after this",
            variables: ["SHIKIRI_DIALOGUE_IDLE_SECONDS"],
            kind: Seconds,
            sets: team.dialogue_idle,
        }
        session_seconds {
            help: "longest time of an agent's session",
            variables: ["SHIKIRI_SESSION_SECONDS"],
            kind: Seconds,
            sets: team.session,
        }
        chat_idle_seconds {
            help: "a chat session that calls nothing ends after this",
            variables: ["SHIKIRI_CHAT_IDLE_SECONDS"],
            kind: Seconds,
            sets: team.chat_idle,
        }
        delegation_claim_seconds {
            help: "a silent chat session gives a delegation back after this",
            variables: ["SHIKIRI_DELEGATION_CLAIM_SECONDS"],
            kind: Seconds,
            sets: team.delegation_claim,
        }
        delegation_depth {
            help: "delegations that may follow from one another",
            variables: ["SHIKIRI_DELEGATION_DEPTH"],
            kind: Count<u32>,
            sets: team.delegation_depth,
        }
        messages_per_cause {
            help: "messages between two agents that may follow from one message, task or delegation",
            variables: ["SHIKIRI_MESSAGES_PER_CAUSE"],
            kind: Count<u32>,
            sets: team.messages_per_cause,
        }
        delegation_seconds {
            help: "longest time of a delegation and what follows from it",
            variables: ["SHIKIRI_DELEGATION_SECONDS"],
            kind: Seconds,
            sets: team.delegation_wall,
        }
        spawn_guard_seconds {
            help: "an agent that was started has so long to log in",
            variables: ["SHIKIRI_SPAWN_GUARD_SECONDS"],
            kind: Seconds,
            sets: team.spawn_guard,
        }
        /// An agent that waits for another one does not count.
        max_spawns {
            help: "agents that are started and at work at once",
            variables: ["SHIKIRI_MAX_SPAWNS"],
            kind: Count<u32>,
            sets: team.max_spawns,
        }
    }
    "Lanes" {
        session_ttl_minutes {
            help: "a lane that is not used for so long ends",
            variables: ["SHIKIRI_SESSION_TTL_MINUTES", "CAI_SESSION_TTL_MINUTES"],
            kind: LaneMinutes,
            sets: lanes.limits.ttl_minutes,
        }
        max_agents {
            help: "lanes at once; for one more the idlest ends",
            variables: ["SHIKIRI_MAX_AGENTS", "CAI_MAX_AGENTS"],
            kind: LaneCount,
            sets: lanes.limits.max_lanes,
        }
        /// All processes on a store count together.
        max_questions {
            help: "questions that are put to providers at once",
            variables: ["SHIKIRI_MAX_QUESTIONS"],
            kind: Count<u32>,
            sets: lanes.max_questions,
        }
        max_queued_questions {
            help: "questions that may wait in one process",
            variables: ["SHIKIRI_MAX_QUEUED_QUESTIONS"],
            kind: Count<usize>,
            sets: lanes.max_queued,
        }
        question_wait_seconds {
            help: "how long a question waits for its turn",
            variables: ["SHIKIRI_QUESTION_WAIT_SECONDS"],
            kind: Seconds,
            sets: lanes.queue_wait,
        }
        /// `offline:FILE` writes every question to the file.
        pages {
            help: "browser, or for trying and testing offline: lanes answer without a browser",
            variables: ["SHIKIRI_PAGES"],
            kind: PageSource,
            field: pages: Pages = Pages::Browser,
            project: Guarded(Browser, "the file that questions are written to"),
        }
    }
    "Claude Code" {
        claude_bin {
            help: "the Claude Code program",
            variables: ["SHIKIRI_CLAUDE_BIN"],
            kind: Program,
            field: claude_bin: Option<PathBuf> = None,
            default: Shown("claude, found in PATH"),
            project: Guarded(Engines, "the program that is started as Claude Code"),
        }
        /// Folders in `PATH` can be read anyway, and so can the toolchains of a rustup in `PATH` or
        /// in `RUSTUP_HOME`.
        engine_paths {
            help: "folders with : between, that Claude Code may read besides its own and the system's",
            variables: ["SHIKIRI_ENGINE_PATHS"],
            kind: Folders,
            field: engine_paths: Vec<PathBuf> = Vec::new(),
            project: Guarded(Engines, "what engines may read"),
        }
        /// The kernel enforces it where the server has a cgroup of its own (for systemd,
        /// `Delegate=yes`). Elsewhere the server watches the run.
        engine_memory_mb {
            help: "memory of one run of Claude Code, in MiB",
            variables: ["SHIKIRI_ENGINE_MEMORY_MB"],
            kind: Mebibytes,
            sets: engine_limits.memory_bytes,
        }
        engine_processes {
            help: "processes and threads of one run of Claude Code",
            variables: ["SHIKIRI_ENGINE_PROCESSES"],
            kind: Number<u64>,
            sets: engine_limits.tasks,
        }
        engine_file_mb {
            help: "largest file that a run of Claude Code writes, in MiB",
            variables: ["SHIKIRI_ENGINE_FILE_MB"],
            kind: Mebibytes,
            sets: engine_limits.file_bytes,
        }
        engine_open_files {
            help: "open files of one process of Claude Code",
            variables: ["SHIKIRI_ENGINE_OPEN_FILES"],
            kind: Number<u64>,
            sets: engine_limits.open_files,
        }
        unconfined_engines {
            help: "true: Claude Code works for all tenants even if it cannot be confined here",
            variables: ["SHIKIRI_UNCONFINED_ENGINES"],
            kind: Switch,
            field: unconfined_engines: bool = false,
            flag: Serve "--unconfined-engines" "Let Claude Code work for all tenants even where it cannot be confined",
            project: Never,
        }
    }
    "Browser" {
        browser_url {
            help: "a running Chrome to ask providers with, such as http://127.0.0.1:9222",
            variables: ["SHIKIRI_BROWSER_URL"],
            kind: Text,
            sets: browser.url,
            default: Shown("one is started"),
            flag: Browser "--browser-url <URL>" "Use this running Chrome, such as http://127.0.0.1:9222 [default]",
            project: Guarded(Browser, "the browser that is driven"),
        }
        browser_allow_remote {
            help: "true: that Chrome may be on another machine, or another user's",
            variables: ["SHIKIRI_BROWSER_ALLOW_REMOTE"],
            kind: Switch,
            sets: browser.allow_remote,
            project: Guarded(Browser, "it may be another machine's"),
        }
        browser_headless {
            help: "true: a Chrome that is started shows no window",
            variables: ["SHIKIRI_BROWSER_HEADLESS"],
            kind: Switch,
            sets: browser.is_headless,
            default: Shown("true without a display"),
        }
        chrome_bin {
            help: "the Chrome or Chromium to start",
            variables: ["SHIKIRI_CHROME_BIN"],
            kind: Program,
            sets: browser.chrome_bin,
            default: Shown("found in PATH"),
            project: Guarded(Browser, "the program that is started as Chrome"),
        }
    }
    "Database and logs" {
        durability {
            help: "full: a commit survives a power cut; normal: a crash",
            variables: ["SHIKIRI_DURABILITY"],
            kind: Choice<Durability>,
            field: durability: Durability = Durability::Full,
        }
        postgres_connections {
            help: "connections to PostgreSQL at once",
            variables: ["SHIKIRI_POSTGRES_CONNECTIONS"],
            kind: Number<u32>,
            field: postgres_connections: Option<u32> = None,
            default: ReferenceOnly(|| PostgresOptions::default().max_connections.to_string()),
        }
        log {
            help: "what is logged, such as info or shikiri_mcp=debug",
            variables: ["SHIKIRI_LOG", "RUST_LOG"],
            kind: Text,
            field: log: Option<String> = None,
            default: Shown("serve: info, else warn"),
        }
        log_format {
            help: "text or json",
            variables: ["SHIKIRI_LOG_FORMAT", "LOG_FORMAT"],
            kind: Choice<LogFormat>,
            field: log_format: LogFormat = LogFormat::Text,
            flag: Global "--log-format <FORMAT>" "How logs are written to stderr",
        }
    }
}
