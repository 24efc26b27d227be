//! Mistakes at the command line: what is wrong, what was looked at, and the command that helps.

use std::fs;
use std::net::TcpListener;

use shikiri_sqlite::{DatabaseOptions, SqliteDatabase};
use shikiri_testkit::TestApp;

use super::fresh;
use crate::PROGRAM;

#[test]
fn an_unknown_command_or_flag_gets_a_suggestion() {
    let (folder, cli) = fresh();
    cli.run(&["srve"]).refused(2, &["'srve'", "'serve'", "`shikiri --help`"]);
    cli.run(&["help", "srve"]).refused(2, &["'srve'", "'serve'", "`shikiri --help`"]);
    cli.run(&["runs", "shwo"]).refused(2, &["'shwo'", "'show'", "`shikiri runs --help`"]);
    let words = ["'--statsu'", "'--status'", "`shikiri runs list --help`"];
    cli.run(&["runs", "list", "--statsu", "failed"]).refused(2, &words);
    let words = ["'ofline'", "'offline'", "`shikiri run --help`"];
    cli.run(&["run", "hi", "--engine", "ofline"]).refused(2, &words);
    let words = ["travle_agent", "did you mean travel_agent?", "long_running_agent"];
    cli.run(&["runs", "start", "travle_agent"]).refused(2, &words);
    let left: Vec<_> = fs::read_dir(folder.path().join(".shikiri")).unwrap().collect();
    assert!(!left.is_empty(), "the last command alone needs the store");
}

#[test]
fn an_unknown_name_says_where_it_was_looked_for_and_what_is_close() {
    let (_folder, cli) = fresh();
    cli.run(&["tenants", "create", "acme"]).done();
    cli.run(&["projects", "create", "site"]).done();
    cli.run(&["agents", "add", "ana"]).done();
    let mut server = vec!["servers", "create", "docs", "--type", "http", "--json"];
    server.extend(["--url", "https://example.com/mcp"]);
    let server = cli.run(&server).done().json()["id"].as_str().unwrap().to_owned();
    let store = "/.shikiri/state.db";
    let cases: [(&[&str], &[&str]); 8] = [
        (&["tenants", "show", "acne"], &["tenant acne", "mean acme?", "`shikiri tenants list`"]),
        (
            &["models", "show", "ofline"],
            &["model ofline", "mean offline?", "`shikiri models list`"],
        ),
        (&["run", "hi", "--model", "offlin"], &["model offlin", "mean offline?"]),
        (&["servers", "show", "dcs"], &["server dcs", &server, "`shikiri servers list`"]),
        (&["projects", "show", "stie"], &["project stie", "mean site?", "`shikiri projects list`"]),
        (&["agents", "show", "anna"], &["agent anna", "mean ana?", "`shikiri agents list`"]),
        (&["runs", "show", "run_0"], &["run run_0", "`shikiri runs list`"]),
        (
            &["runs", "show", "run_0", "--tenant", "acme"],
            &["run run_0", "`shikiri runs list --tenant acme`"],
        ),
    ];
    for (command, words) in cases {
        cli.run(command).refused(4, &[words, &[store]].concat());
    }
    let far = cli.run(&["models", "show", "claude"]);
    assert!(!far.stderr.contains("did you mean"), "{}", far.stderr);
}

/// Each inherited option that a command has no use for.
#[test]
fn an_option_without_effect_is_refused() {
    let (folder, cli) = fresh();
    let store = ["--store", "sqlite:other.db"];
    let log = ["--log-format", "json"];
    let url = ["--url", "http://127.0.0.1:1/mcp"];
    let cases: [(&[&str], &[&str]); 21] = [
        (&["demo", "--once"], &store),
        (&["demo", "--once"], &log),
        (&["completions", "bash"], &store),
        (&["completions", "bash"], &log),
        (&["openapi"], &store),
        (&["openapi"], &log),
        (&["schema"], &store),
        (&["schema"], &log),
        (&["env"], &store),
        (&["env"], &log),
        (&["hooks", "install", "--dry-run"], &store),
        (&["hooks", "install", "--dry-run"], &["--tenant", "local"]),
        (&["hooks", "uninstall", "--dry-run"], &store),
        (&["hooks", "status"], &store),
        (&["hooks", "init"], &store),
        (&["hooks", "check"], &store),
        (&["trust"], &log),
        (&["trust", "--list"], &store),
        (&["run", "hi", "--server", "http://127.0.0.1:1"], &store),
        (&["host", "tokens", "list"], &["--config", "servers.json"]),
        (&["host", "list", "--config", "servers.json"], &url),
    ];
    for (command, option) in cases {
        for words in [[command, option].concat(), [option, command].concat()] {
            // Only the options of every command may stand before it.
            if words[0].starts_with('-') && !["--store", "--log-format"].contains(&words[0]) {
                continue;
            }
            let asked = cli.run(&words);
            asked.refused(2, &["does not use --", "leave it out"]);
        }
    }
    let hook = cli.run(&["hook", "--store", "sqlite:other.db"]);
    // Claude Code takes 2 as a refusal of the tool call.
    hook.refused(1, &["`shikiri hook` does not use --store", "SHIKIRI_STORE"]);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "something was made");
}

#[test]
fn a_mistake_in_the_configuration_is_named_with_file_line_and_key() {
    let (folder, cli) = fresh();
    let file = folder.path().join("shikiri.toml");
    let name = file.to_str().unwrap();
    fs::write(&file, "\nmax_stream = 5\n").unwrap();
    let words = [name, "line 2", "`max_stream`", "did you mean `max_streams`?", "schema config"];
    cli.run(&["tenants", "list"]).refused(2, &words);
    fs::write(&file, "listen = 7\n").unwrap();
    cli.run(&["serve"]).refused(2, &[name, "line 1", "string"]);
    fs::write(&file, "listen = 'here'\n").unwrap();
    let serve = cli.clone().env("SHIKIRI_TRUST", "1").run(&["serve"]);
    serve.refused(2, &["`listen`", name, "IP:PORT"]);
    fs::remove_file(&file).unwrap();
    fs::create_dir(&file).unwrap();
    cli.run(&["tenants", "list"]).refused(5, &[name, "cannot read"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_port_that_another_server_has_is_told_apart_from_another_programs() {
    let app = TestApp::new(PROGRAM).start().await;
    let address = format!("127.0.0.1:{}", app.port());
    let (_folder, cli) = fresh();
    let taken = cli.run(&["serve", "--listen", &address]);
    taken.refused(5, &[&address, "in use", "a Shikiri server listens there", "--listen"]);
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = other.local_addr().unwrap().to_string();
    let taken = cli.run(&["serve", "--listen", &address]);
    taken.refused(5, &[&address, "in use", "stop the program that listens there", "--listen"]);
}

#[test]
fn a_store_of_a_newer_version_is_refused_with_both_versions() {
    let (folder, cli) = fresh();
    cli.run(&["tenants", "create", "a"]).done();
    let path = folder.path().join(".shikiri/state.db");
    let database = SqliteDatabase::open(&path, &DatabaseOptions::default()).unwrap();
    let newer = "INSERT INTO schema_version (version, applied_at) VALUES (9999, '')";
    database.execute(newer, []).unwrap();
    drop(database);
    for command in [&["tenants", "list"][..], &["tenants", "create", "b"], &["db", "check"]] {
        cli.run(command).refused(5, &["state.db", "newer Shikiri", "schema 9999", "upgrade"]);
    }
}

#[test]
fn a_data_folder_that_cannot_be_used_is_named_with_a_way_out() {
    let (folder, cli) = fresh();
    fs::write(folder.path().join(".shikiri"), "a file").unwrap();
    let words = [".shikiri", "cannot use", "CLAUDE_PROJECT_DIR"];
    cli.run(&["tenants", "create", "a"]).refused(5, &words);
    cli.run(&["ask", "chatgpt", "hi"]).refused(5, &words);
}
