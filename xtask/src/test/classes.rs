//! The tests of each level. Tests that need more than Rust and PostgreSQL, or many minutes, are
//! listed only here. All others run in `cargo xtask test`.

/// How much a run covers. Each level includes the ones before it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Level {
    Quick,
    Usual,
    All,
}

/// Tests for `--all` only: the class, a package, and prefixes of its integration tests. An empty
/// prefix means all of them.
const CLASSES: &[(&str, &str, &[&str])] = &[
    ("chaos", "shikiri", &["chaos::", "host::chaos::", "lanes::chaos::", "teams::chaos::"]),
    (
        "peers",
        "shikiri",
        &[
            "executions::gateway::claude_code_reaches_bedrock_with_our_signature",
            "executions::gateway::my_login::claude_code_calls_the_api_with_a_lent_login",
            "executions::openapi::claude_code_calls_an_api_through_the_door_of_its_run",
            "executions::sandbox::real_cli::",
            "executions::schemathesis::",
            "hooks::plugin::claude_code_finds_the_plugin_valid_and_installs_it",
            "hooks::real_cli::",
            "hooks::real_cli_sessions::",
            "hooks::real_names::",
            "hooks::who_called::calls_of_the_real_claude_code_are_known_by_their_subagents",
            "host::conformance::",
            "host::foreign::",
            "mcp::claude_code::",
            "mcp::clients::",
            "mcp::conformance::",
            "teams::real_cli::",
        ],
    ),
    (
        "peers",
        "shikiri-engines",
        &[
            "claude_code::commands::",
            "claude_code::confined::",
            "claude_code::limits::a_turn_ends_at_its_limit_of_replies_or_of_cost",
            "claude_code::outside::",
            "claude_code::subagents::the_text_of_subagents_and_the_tools_of_nested_ones_are_told",
        ],
    ),
    ("browser", "shikiri", &["browser::", "lanes::whole_way::"]),
    ("browser", "shikiri-browser", &[""]),
];

/// The integration tests of `--quick`: the store's, the rules about the code, and the snapshots of
/// the public interfaces.
const QUICK: &[(&str, &[&str])] = &[
    ("shikiri", &["public_surface::", "tidy::"]),
    ("shikiri-store", &[""]),
    ("shikiri-web", &["openapi::"]),
];

/// Tests that start their own PostgreSQL, in packages of `--quick`.
const QUICK_SKIPS: (&str, &[&str]) = ("shikiri-store", &["postgres_"]);

/// The tests of a program that run.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Selection {
    only: Vec<&'static str>,
    skipped: Vec<&'static str>,
}

impl Selection {
    /// The integration tests of a package; none if there is nothing to run. The test harness
    /// compares parts of names, so a test below checks that no other name contains one of them.
    pub(super) fn of_integration_tests(level: Level, package: &str) -> Option<Self> {
        let of_package = |entry: &&(&str, &str, &'static [&'static str])| entry.1 == package;
        let classed = CLASSES.iter().filter(of_package).flat_map(|(_, _, names)| *names).copied();
        let selection = match level {
            Level::All => Self::default(),
            Level::Usual => Self { skipped: classed.collect(), ..Self::default() },
            Level::Quick => {
                let (_, names) = QUICK.iter().find(|(known, _)| *known == package)?;
                let only = names.iter().filter(|name| !name.is_empty()).copied().collect();
                let skipped = if package == QUICK_SKIPS.0 { QUICK_SKIPS.1 } else { &[] };
                Self { only, skipped: skipped.to_vec() }
            }
        };
        (!selection.skipped.contains(&"")).then_some(selection)
    }

    pub(super) fn arguments(&self) -> Vec<&'static str> {
        let skips = self.skipped.iter().flat_map(|name| ["--skip", name]);
        self.only.iter().copied().chain(skips).collect()
    }
}

#[cfg(test)]
#[path = "classes_tests.rs"]
mod tests;
