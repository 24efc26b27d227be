//! Guarded keys of a project's `shikiri.toml`.

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::symlink;

use super::{ClonedRepository, Listener};

const MODEL: &[&str] =
    &["models", "create", "m", "--engine", "claude-code", "--model-name", "claude-x"];
const RUN: &[&str] = &["run", "hello", "--model", "m"];

#[test]
fn cloned_claude_bin_is_not_started_before_trust() {
    let listener = Listener::start();
    let repository = ClonedRepository::with(&[
        ("shikiri.toml", "claude_bin = './claude.sh'\n"),
        ("claude.sh", &listener.caller()),
    ]);
    let cli = repository.cli();
    // It uses the store alone, which is the folder's own.
    cli.run(MODEL).done();
    let words = ["shikiri.toml", "claude_bin", &repository.trust_command(), "SHIKIRI_TRUST=1"];
    cli.run(RUN).refused(3, &words);
    cli.run(&["serve", "--listen", "127.0.0.1:0"]).refused(3, &words);
    cli.run(&["mcp"]).refused(3, &words);
    cli.clone().env("SHIKIRI_TRUST", "0").run(RUN).refused(3, &words);
    listener.assert_unvisited();
    assert!(!repository.trust_file().exists(), "a refusal is no agreement");

    // The stranger's program is no engine, but it is started.
    assert_ne!(cli.clone().env("SHIKIRI_TRUST", "1").run(RUN).code, 3);
    listener.assert_visited();
    assert!(!repository.trust_file().exists(), "one command's agreement is not kept");
    cli.run(RUN).refused(3, &words);
}

#[test]
fn cloned_store_url_is_not_opened_before_trust() {
    let listener = Listener::start();
    let store = format!("store = 'postgres://me:hunter2@{}/x'\n", listener.address);
    let repository = ClonedRepository::with(&[("shikiri.toml", &store)]);
    let cli = repository.cli();
    let commands: [&[&str]; 6] = [
        &["tenants", "list"],
        &["tenants", "create", "acme"],
        &["serve", "--listen", "127.0.0.1:0"],
        &["run", "hello"],
        &["db", "check"],
        &["host", "tokens", "list"],
    ];
    for command in commands {
        let refused = cli.run(command);
        refused.refused(3, &["shikiri.toml", "store", &repository.trust_command()]);
        assert!(!refused.stderr.contains("hunter2"), "{}", refused.stderr);
    }
    listener.assert_unvisited();
    repository.assert_untouched("a refused command");
    // What comes from the person wins, and no question is needed.
    cli.run(&["--store", "sqlite:mine.db", "tenants", "create", "acme"]).done();
    cli.clone().store("sqlite:mine.db").run(&["tenants", "show", "acme"]).done();
    listener.assert_unvisited();
}

#[test]
fn cloned_store_path_stays_inside_the_folder_before_trust() {
    for path in ["../outside.db", "link/outside.db", "file.db", "made/../../outside.db"] {
        let repository = ClonedRepository::made_by(|root| {
            fs::write(root.join("shikiri.toml"), format!("store = 'sqlite:{path}'\n")).unwrap();
            symlink("..", root.join("link")).unwrap();
            symlink("../outside.db", root.join("file.db")).unwrap();
        });
        let command = repository.trust_command();
        let words = ["shikiri.toml", "store", command.as_str()];
        repository.cli().run(&["tenants", "create", "acme"]).refused(3, &words);
        assert!(!repository.root().join("../outside.db").exists(), "{path}");
        repository.assert_untouched(path);
    }
    let repository = ClonedRepository::with(&[("shikiri.toml", "store = 'sqlite:data/my.db'")]);
    fs::create_dir(repository.root().join("data")).unwrap();
    repository.cli().run(&["tenants", "create", "acme"]).done();
    assert!(repository.root().join("data/my.db").exists(), "inside the folder it is the project's");
}

#[test]
fn cloned_listen_address_is_not_opened_before_trust() {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    for (key, text) in [
        ("listen", format!("listen = '127.0.0.1:{port}'\n")),
        ("allow_remote", format!("listen = '0.0.0.0:{port}'\nallow_remote = true\n")),
        ("allowed_hosts", "allowed_hosts = ['evil.example']\n".to_owned()),
        ("metrics_public", "metrics_public = true\n".to_owned()),
    ] {
        let repository = ClonedRepository::with(&[("shikiri.toml", &text)]);
        let cli = repository.cli().env("SHIKIRI_STORE", "sqlite:elsewhere.db");
        cli.run(&["serve"]).refused(3, &["shikiri.toml", key, &repository.trust_command()]);
        assert!(TcpStream::connect(("127.0.0.1", port)).is_err(), "something listens");
        // A command that opens nothing has nothing to ask.
        cli.run(&["tenants", "create", "acme"]).done();
    }
}

#[test]
fn cloned_browser_settings_are_not_used_before_trust() {
    let listener = Listener::start();
    let cases = [
        ("chrome_bin", "chrome_bin = './chrome.sh'\n".to_owned()),
        ("browser_url", format!("browser_url = 'http://{}'\n", listener.address)),
        ("browser_allow_remote", "browser_allow_remote = true\n".to_owned()),
        ("pages", "pages = 'offline:../questions'\n".to_owned()),
        ("engine_paths", "engine_paths = ['/']\n".to_owned()),
    ];
    for (key, text) in cases {
        let files = [("shikiri.toml", text.as_str()), ("chrome.sh", &listener.caller())];
        let repository = ClonedRepository::with(&files);
        let words = ["shikiri.toml", key, &repository.trust_command()];
        let cli = repository.cli();
        cli.run(&["serve", "--listen", "127.0.0.1:0"]).refused(3, &words);
        if key != "engine_paths" {
            cli.run(&["browser", "check"]).refused(3, &words);
        }
        listener.assert_unvisited();
        repository.assert_untouched(key);
    }
}

#[test]
fn cloned_providers_file_leads_no_question_elsewhere_before_trust() {
    let listener = Listener::start();
    let text = format!("[chatgpt]\nnew_chat = 'http://{}/'\n", listener.address);
    let repository = ClonedRepository::with(&[(".shikiri/providers.toml", &text)]);
    let words = [".shikiri/providers.toml", "chatgpt", &repository.trust_command()];
    let cli = repository.cli();
    cli.run(&["browser", "check"]).refused(3, &words);
    cli.run(&["mcp"]).refused(3, &words);
    cli.run(&["serve", "--listen", "127.0.0.1:0"]).refused(3, &words);
    listener.assert_unvisited();
    cli.run(&["tenants", "create", "acme"]).done();
}

#[test]
fn unconfined_engines_never_count_from_a_project_file() {
    let repository = ClonedRepository::with(&[("shikiri.toml", "unconfined_engines = true\n")]);
    let cli = repository.cli().env("SHIKIRI_TRUST", "1");
    cli.run(&["run", "hello"]).refused(3, &["shikiri.toml", "unconfined_engines", "environment"]);
    repository.assert_untouched("a refused command");
}
