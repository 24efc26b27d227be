//! Options that a command takes over from its parents and has no use for. They are refused, with
//! the reason, and not shown in its help: an option that is ignored silently misleads.

use clap::ArgMatches;
use clap::parser::ValueSource;

use crate::exit::{Exit, Failure};

struct UnusedOptions {
    /// The command's path. Its subcommands have no use for them either.
    command: &'static str,
    /// The ids of the options.
    options: &'static [&'static str],
    /// Only then, if it depends on the other arguments.
    unless: Option<fn(&ArgMatches) -> bool>,
    reason: &'static str,
}

const EVERYWHERE: &[&str] = &["store", "log_format", "utc"];
const FILES: &[&str] = &["store", "utc"];
const UTC: &[&str] = &["utc"];
const STORE: &[&str] = &["store"];

const NO_TIMES: &str = "it shows no times";

const UNUSED: &[UnusedOptions] = &[
    always("demo", EVERYWHERE, "the demo plays on a store of its own, and shows no times"),
    always("hook", EVERYWHERE, "a hook reads SHIKIRI_STORE alone, and prints no logs or times"),
    always("schema", EVERYWHERE, "it only prints"),
    always("completions", EVERYWHERE, "it only prints"),
    always("openapi", EVERYWHERE, "it only prints"),
    always("env", EVERYWHERE, "it only prints"),
    always("hooks uninstall", FILES, "it works on Claude Code's settings alone"),
    always("hooks status", FILES, "hooks take no flags"),
    always("hooks init", FILES, "it writes a file alone"),
    always("hooks check", FILES, "it looks at a file alone"),
    always("hooks import", EVERYWHERE, "it only prints"),
    always("hooks install", UTC, NO_TIMES),
    always("serve", UTC, "its logs have times in UTC anyway"),
    always("mcp", UTC, "its logs have times in UTC anyway"),
    always("status", UTC, NO_TIMES),
    always("doctor", UTC, NO_TIMES),
    always("subagents", UTC, NO_TIMES),
    always("run", UTC, NO_TIMES),
    always("ask", UTC, NO_TIMES),
    always("cancel", UTC, NO_TIMES),
    always("usage", UTC, "its days are those of UTC anyway"),
    always("browser", FILES, "it works on a browser's profile alone, and shows no times"),
    always("db", UTC, NO_TIMES),
    depends("hooks install", STORE, makes_key, "only --http without --key uses the store"),
    depends("hooks install", &["tenant"], makes_key, "only --http without --key makes a key"),
    always("trust", &["log_format"], "it logs nothing"),
    depends("trust", STORE, |given| !given.get_flag("list"), "--list reads your agreements alone"),
    depends("run", STORE, |given| !is_given(given, "server"), "the server of --server has its own"),
    always("host tokens", &["header", "config", "protocol"], "it calls no server"),
    always("host login", &["protocol"], "a login does not speak MCP"),
    always("host logout", &["protocol"], "a login does not speak MCP"),
    depends("host", &["config"], |given| !is_given(given, "url"), "--url names the server"),
];

const fn always(
    command: &'static str,
    options: &'static [&'static str],
    reason: &'static str,
) -> UnusedOptions {
    UnusedOptions { command, options, unless: None, reason }
}

const fn depends(
    command: &'static str,
    options: &'static [&'static str],
    unless: fn(&ArgMatches) -> bool,
    reason: &'static str,
) -> UnusedOptions {
    UnusedOptions { command, options, unless: Some(unless), reason }
}

/// A key is made for a server that hooks post to.
fn makes_key(given: &ArgMatches) -> bool {
    is_given(given, "http") && !is_given(given, "key")
}

/// The inherited options that the command never uses, by their ids.
pub(super) fn always_unused(path: &str) -> Vec<&'static str> {
    let of_command = UNUSED.iter().filter(|unused| unused.unless.is_none() && is_of(unused, path));
    of_command.flat_map(|unused| unused.options.iter().copied()).collect()
}

/// Refuses an option on the command line that the command does not use.
pub(super) fn refuse(matches: &ArgMatches) -> Result<(), Failure> {
    let (path, given) = leaf(matches);
    for unused in UNUSED.iter().filter(|unused| is_of(unused, &path)) {
        if unused.unless.is_some_and(|uses| uses(given)) {
            continue;
        }
        if let Some(option) = unused.options.iter().find(|option| is_given(given, option)) {
            let flag = option.replace('_', "-");
            let what = format!("`shikiri {path}` does not use --{flag}: {}", unused.reason);
            return Err(Failure::new(exit_of(&path), what, "leave it out"));
        }
    }
    Ok(())
}

/// Claude Code reads the usual code for usage, 2, as a refusal of the tool call.
fn exit_of(path: &str) -> Exit {
    if path == "hook" { Exit::Failed } else { Exit::Usage }
}

/// The path and the arguments of the command that is run.
fn leaf(matches: &ArgMatches) -> (String, &ArgMatches) {
    let (mut path, mut at) = (Vec::new(), matches);
    while let Some((name, sub)) = at.subcommand() {
        path.push(name);
        at = sub;
    }
    (path.join(" "), at)
}

fn is_of(unused: &UnusedOptions, path: &str) -> bool {
    path.strip_prefix(unused.command).is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
}

fn is_given(matches: &ArgMatches, option: &str) -> bool {
    let source = matches.try_contains_id(option).ok().and_then(|_| matches.value_source(option));
    source == Some(ValueSource::CommandLine)
}
