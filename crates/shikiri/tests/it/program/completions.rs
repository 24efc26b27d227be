//! What a shell gets when a person presses the key for completion.

use std::time::{Duration, Instant};

use shikiri_testkit::Cli;

use super::fresh;

/// What is offered for the last of these words, as bash asks for it.
fn offered(cli: &Cli, words: &[&str]) -> Vec<String> {
    let index = words.len().to_string();
    let cli = cli.clone().env("SHIKIRI_COMPLETE", "bash").env("_CLAP_IFS", "\n");
    let cli = cli.env("_CLAP_COMPLETE_INDEX", &index).env("_CLAP_COMPLETE_COMP_TYPE", "9");
    let ended = cli.run(&[&["--", "shikiri"], words].concat()).done();
    assert_eq!(ended.stderr, "", "a shell would show it");
    ended.stdout.lines().map(str::to_owned).collect()
}

#[test]
fn ids_and_names_are_completed_from_the_store() {
    let (_folder, cli) = fresh();
    cli.run(&["tenants", "create", "acme"]).done();
    cli.run(&["projects", "create", "site"]).done();
    cli.run(&["agents", "add", "ana"]).done();
    let run = cli.run(&["runs", "start", "long_running_agent"]).done().stdout.trim().to_owned();
    let conversation = cli.run(&["conversations", "create"]).done().stdout.trim().to_owned();
    assert_eq!(offered(&cli, &["tenants", "show", "ac"]), ["acme"]);
    assert_eq!(offered(&cli, &["runs", "list", "--tenant", "a"]), ["acme"]);
    assert_eq!(offered(&cli, &["run", "hi", "-m", "off"]), ["offline"]);
    assert_eq!(offered(&cli, &["runs", "show", "run_"]), [run.as_str()]);
    assert_eq!(offered(&cli, &["attach", ""]).first(), Some(&run));
    assert_eq!(offered(&cli, &["run", "hi", "--conversation", ""]), [conversation]);
    assert_eq!(offered(&cli, &["agents", "show", "a"]), ["ana"]);
    assert_eq!(offered(&cli, &["agents", "list", "--project", ""]), ["site"]);
    assert_eq!(offered(&cli, &["runs", "start", "trav"]), ["travel_agent"]);
    assert_eq!(offered(&cli, &["conv"]), ["conversations"]);
}

#[test]
fn completion_is_silent_and_quick_without_a_store() {
    let (folder, cli) = fresh();
    assert_eq!(offered(&cli, &["runs", "show", "run_"]), Vec::<String>::new());
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "something was made");
    // A server that never answers.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap();
    let slow = cli.store(&format!("postgres://u@{address}/x"));
    let start = Instant::now();
    assert_eq!(offered(&slow, &["runs", "show", "run_"]), Vec::<String>::new());
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
}

#[test]
fn a_shell_gets_a_script_that_asks() {
    let (_folder, cli) = fresh();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = cli.clone().env("SHIKIRI_COMPLETE", shell).run(&[]).done().stdout;
        assert!(script.contains("SHIKIRI_COMPLETE"), "{shell}: {script}");
    }
    let shown = cli.run(&["completions", "bash"]).done().stdout;
    assert!(shown.contains("complete -F _shikiri"), "{shown}");
}
