//! The pages for users, played as they are written: every shell block that is not marked, in order,
//! in one folder for each page, and its output compared. `page.rs` has the rules for authors.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use shikiri_testkit::skip;

mod examples;
mod links;
mod page;
mod readme;
mod reference;
mod session;

/// What a command that is stopped after some seconds gets of them: as written, then for busy machines.
const PATIENCE: [u32; 3] = [1, 4, 10];

fn project() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Without `curl` a page or an example is skipped, which fails in CI.
fn curl_is_missing(name: &str) -> bool {
    let curl = Command::new("curl").arg("--version").stdout(Stdio::null()).status();
    let missing = !curl.is_ok_and(|status| status.success());
    if missing {
        skip(name, "curl is not installed");
    }
    missing
}

fn check(page: &str) {
    let text = std::fs::read_to_string(project().join(page)).expect(page);
    let steps = page::steps(&text).unwrap_or_else(|error| panic!("{page}: {error}"));
    if steps.is_empty() {
        return;
    }
    if curl_is_missing(page) {
        return;
    }
    let tries = if text.contains("timeout -s ") { &PATIENCE[..] } else { &PATIENCE[..1] };
    let mut wrong = String::new();
    for patience in tries {
        match session::play(&steps, *patience) {
            Ok(()) => return,
            Err(error) => wrong = error,
        }
        eprintln!("{page}, with {patience} times the seconds: {wrong}");
    }
    panic!("{page}: {wrong}");
}

/// A test for each page, so that they run side by side and each can be run alone.
macro_rules! pages {
    ($($name:ident: $page:literal,)*) => {
        const PAGES: &[&str] = &[$($page),*];
        $(
            #[test]
            fn $name() {
                check($page);
            }
        )*
    };
}

pages! {
    readme_page: "README.md",
    install: "docs/install.md",
    start_claude_code: "docs/start/claude-code.md",
    start_your_agents: "docs/start/your-agents.md",
    start_your_users: "docs/start/your-users.md",
    five_systems: "docs/five-systems.md",
    guide_runs: "docs/guides/runs.md",
    guide_executions: "docs/guides/executions.md",
    guide_terminal: "docs/guides/terminal.md",
    guide_engines: "docs/guides/engines.md",
    guide_agents_over_mcp: "docs/guides/agents-over-mcp.md",
    guide_host: "docs/guides/host.md",
    guide_hooks: "docs/guides/hooks.md",
    guide_teams: "docs/guides/teams.md",
    guide_lanes: "docs/guides/lanes.md",
    guide_status: "docs/guides/status.md",
    guide_browser: "docs/guides/browser.md",
    guide_apis_as_tools: "docs/guides/apis-as-tools.md",
    guide_operating: "docs/guides/operating.md",
    from_claude_nagger: "docs/coming-from/claude-nagger.md",
    from_chrome_ai_bridge: "docs/coming-from/chrome-ai-bridge.md",
    from_ai_agent_pm: "docs/coming-from/ai-agent-pm.md",
    from_agent_sdk_service: "docs/coming-from/agent-sdk-service.md",
    from_mcp_agents_sample: "docs/coming-from/mcp-agents-sample.md",
    concepts: "docs/concepts.md",
    troubleshooting: "docs/troubleshooting.md",
    cli_page: "docs/reference/cli.md",
    rest_page: "docs/reference/rest.md",
    mcp_tools_page: "docs/reference/mcp-tools.md",
    configuration_page: "docs/reference/configuration.md",
    events_page: "docs/reference/events.md",
    errors_page: "docs/reference/errors.md",
}

/// Pages that are not played: the list of pages, how the program was built, what each version brought, and
/// what it must do.
const NOT_FOR_USERS: [&str; 4] =
    ["docs/SUMMARY.md", "docs/decisions/", "docs/releases/", "docs/requirements.md"];

fn markdown_below(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            markdown_below(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "md") {
            found.push(path);
        }
    }
}

#[test]
fn every_page_is_played() {
    let root = project();
    let mut found = Vec::new();
    markdown_below(&root.join("docs"), &mut found);
    let names = found.iter().map(|path| path.strip_prefix(&root).unwrap().to_str().unwrap());
    let is_for_users = |name: &&str| !NOT_FOR_USERS.iter().any(|other| name.starts_with(other));
    let found: BTreeSet<_> = names.filter(is_for_users).collect();
    let played = PAGES.iter().copied().filter(|page| page.starts_with("docs/"));
    assert_eq!(found, played.collect());
}
