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
fn what_teams_and_administration_stored_is_completed() {
    let (folder, cli) = fresh();
    let id = |words: &[&str]| cli.run(words).done().stdout.trim().to_owned();
    cli.run(&["projects", "create", "site"]).done();
    cli.run(&["agents", "add", "ana"]).done();
    cli.run(&["agents", "add", "ben"]).done();
    let task = id(&["tasks", "add", "Write it"]);
    let message = id(&["messages", "send", "--from", "ana", "--to", "ben", "hi"]);
    cli.run(&["keys", "create", "mine"]).done();
    let keys = cli.run(&["keys", "list", "--json"]).json();
    let key = keys["items"][0]["id"].as_str().unwrap();
    cli.run(&["servers", "create", "books", "--type", "http", "--url", "https://example.com/mcp"])
        .done();
    let lanes = r#"{"projects":{"p":{"chatgpt":{"url":"https://chatgpt.com/c/a"}}}}"#;
    std::fs::write(folder.path().join("sessions.json"), lanes).unwrap();
    cli.run(&["lanes", "import", "sessions.json"]).done();
    let lanes = cli.run(&["lanes", "list", "--all", "--json"]).json();
    let lane = lanes["items"][0]["name"].as_str().unwrap();
    assert_eq!(offered(&cli, &["tasks", "show", ""]).first(), Some(&task));
    assert_eq!(offered(&cli, &["tasks", "add", "More", "--parent", "tsk_"]), [task]);
    assert_eq!(offered(&cli, &["messages", "show", "msg_"]), [message]);
    assert_eq!(offered(&cli, &["keys", "revoke", "key_"]), [key]);
    assert_eq!(offered(&cli, &["lanes", "show", &lane[..2]]), [lane]);
    assert_eq!(offered(&cli, &["host", "tools", "bo"]), ["books"]);
    assert_eq!(offered(&cli, &["delegations", "show", "dlg_"]), Vec::<String>::new());
    // The project's file counts after trust only.
    let file = r#"{"mcpServers":{"boats":{"type":"http","url":"http://127.0.0.1:9/mcp"}}}"#;
    std::fs::write(folder.path().join(".mcp.json"), file).unwrap();
    assert_eq!(offered(&cli, &["host", "call", "bo"]), ["books"]);
    let trusting = cli.env("SHIKIRI_TRUST", "1");
    assert_eq!(offered(&trusting, &["host", "call", "bo"]), ["boats", "books"]);
}

#[test]
fn the_store_tenant_and_project_on_the_line_are_used() {
    let (_folder, cli) = fresh();
    let id = |words: &[&str]| cli.run(words).done().stdout.trim().to_owned();
    let other = ["--store", "sqlite:other.db"];
    cli.run(&["tenants", "create", "acme"]).done();
    let here = id(&["runs", "start", "long_running_agent"]);
    let acme = id(&["runs", "start", "long_running_agent", "--tenant", "acme"]);
    let there = id(&["--store", "sqlite:other.db", "runs", "start", "long_running_agent"]);
    let of = |words: &[&str]| offered(&cli, &[&["runs", "show"], words, &["run_"]].concat());
    assert_eq!(of(&[]), [here.as_str()]);
    assert_eq!(of(&["--tenant", "acme"]), [acme.as_str()]);
    assert_eq!(of(&["-t", "acme"]), [acme.as_str()]);
    assert_eq!(of(&other), [there.as_str()]);
    let before = [&other[..], &["runs", "show", "run_"]].concat();
    assert_eq!(offered(&cli, &before), [there]);
    // With several projects, the one on the line.
    cli.run(&["projects", "create", "site"]).done();
    cli.run(&["projects", "create", "shop"]).done();
    let task = id(&["tasks", "add", "Write it", "--project", "shop"]);
    assert_eq!(offered(&cli, &["tasks", "show", "tsk_"]), Vec::<String>::new());
    assert_eq!(offered(&cli, &["tasks", "show", "-p", "shop", "tsk_"]), [task]);
}

#[test]
fn a_shell_gets_a_script_that_asks() {
    let (folder, cli) = fresh();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = cli.run(&["completions", shell]).done().stdout;
        assert!(script.contains("SHIKIRI_COMPLETE"), "{shell}: {script}");
        let same = cli.clone().env("SHIKIRI_COMPLETE", shell).run(&[]).done().stdout;
        assert_eq!(script.trim(), same.trim(), "{shell}");
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "something was made");
}

/// What bash itself fills in, after it read the script as its start file does.
#[test]
fn bash_completes_an_id_with_the_printed_script() {
    let (folder, cli) = fresh();
    cli.run(&["tenants", "create", "acme"]).done();
    let line = "source <(\"$PROGRAM\" completions bash)
        COMP_WORDS=(shikiri tenants show ac); COMP_CWORD=3; COMP_TYPE=9
        $(complete -p shikiri | grep -o -- '-F [^ ]*' | cut -c4-) shikiri ac show
        printf '%s\n' \"${COMPREPLY[@]}\"";
    let ended = std::process::Command::new("bash")
        .args(["--norc", "-c", line])
        .current_dir(folder.path())
        .env("PROGRAM", crate::PROGRAM)
        .env("HOME", folder.path())
        .output()
        .unwrap();
    let shown = String::from_utf8(ended.stdout).unwrap();
    let errors = String::from_utf8(ended.stderr).unwrap();
    assert_eq!(shown.trim(), "acme", "{errors}");
}
