//! The Claude Code plugin in `plugin/`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use shikiri_testkit::{Cli, claude_programs, script};
use tempfile::TempDir;

use super::call::told;
use crate::PROGRAM;

fn plugin() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../plugin").canonicalize().unwrap()
}

fn read(path: impl AsRef<Path>) -> Value {
    serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

/// Events, matchers and timeouts are those of `hooks install`; only what is called differs.
#[test]
fn the_plugin_wants_the_events_that_hooks_install_wants() {
    let folder = TempDir::new().unwrap();
    Cli::new(PROGRAM, folder.path()).run(&["hooks", "install"]).done();
    let mut expected = read(folder.path().join(".claude/settings.json"))["hooks"].clone();
    for groups in expected.as_object_mut().unwrap().values_mut() {
        let hook = &mut groups[0]["hooks"][0];
        hook["command"] = json!("/bin/sh");
        hook["args"] = json!(["${CLAUDE_PLUGIN_ROOT}/bin/hook"]);
    }
    let found = read(plugin().join("hooks/hooks.json"))["hooks"].clone();
    assert_eq!(found, expected, "as it should be: {expected:#}");
}

#[test]
fn its_version_is_the_programs() {
    let version = read(plugin().join(".claude-plugin/plugin.json"))["version"].clone();
    assert_eq!(version, env!("CARGO_PKG_VERSION"));
}

/// A `claude` that knows nothing of this machine's user.
fn claude(program: &Path, home: &Path, args: &[&str]) -> String {
    let done = Command::new(program)
        .args(args)
        .current_dir(home)
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("HOME", home)
        .envs([("DISABLE_AUTOUPDATER", "1"), ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1")])
        .output()
        .unwrap();
    let said = [done.stdout, done.stderr].concat();
    let said = String::from_utf8_lossy(&said).into_owned();
    assert!(done.status.success(), "claude {args:?}: {said}");
    said
}

#[test]
fn claude_code_finds_the_plugin_valid_and_installs_it() {
    let folder = plugin();
    let folder = folder.to_str().unwrap();
    for program in claude_programs() {
        let home = TempDir::new().unwrap();
        let home = home.path();
        for part in ["", "/.claude-plugin/plugin.json", "/.claude-plugin/marketplace.json"] {
            let said = claude(&program, home, &["plugin", "validate", &format!("{folder}{part}")]);
            assert!(said.contains("Validation passed"), "{said}");
            assert!(!said.contains("refuses a submission"), "{said}");
        }
        claude(&program, home, &["plugin", "marketplace", "add", folder]);
        claude(&program, home, &["plugin", "install", "shikiri@shikiri"]);
        let said = claude(&program, home, &["plugin", "list"]);
        assert!(said.contains("shikiri@shikiri") && said.contains("enabled"), "{said}");
        let status = Cli::new(PROGRAM, home).env("HOME", home).run(&["hooks", "status", "--json"]);
        assert_eq!(status.done().json()["places"][2]["plugin"], true);
    }
}

/// Whatever of ours is on the PATH is called; nothing is lost where nothing is.
#[test]
fn its_hook_calls_what_is_on_the_path() {
    let place = TempDir::new().unwrap();
    let programs = place.path().join("bin");
    fs::create_dir(&programs).unwrap();
    let called = |event: &str| {
        let mut command = Command::new("/bin/sh");
        command.arg(plugin().join("bin/hook")).env_clear();
        command.env("PATH", format!("{}:/usr/bin:/bin", programs.display()));
        told(&mut command, &json!({ "hook_event_name": event, "session_id": "s" }))
    };
    let put = |name: &str| {
        let text = format!("#!/bin/sh\necho \"{name}:$*:$(cat)\"\n");
        script(&programs.join(name), &text);
    };
    assert_eq!(called("PreToolUse"), "");
    let told: Value = serde_json::from_str(&called("SessionStart")).unwrap();
    assert!(told["systemMessage"].as_str().unwrap().contains("PATH"), "{told}");
    put("shikiri");
    let event = r#"{"hook_event_name":"PreToolUse","session_id":"s"}"#;
    assert_eq!(called("PreToolUse"), format!("shikiri:hook:{event}\n"));
    put("shikiri-hook");
    assert_eq!(called("PreToolUse"), format!("shikiri-hook::{event}\n"));
}
