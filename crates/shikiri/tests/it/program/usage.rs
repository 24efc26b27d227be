//! What cannot be understood: exit 2, one line that says what to write instead, nothing made.

use super::fresh;

#[test]
fn bad_flags_and_values_are_one_line_with_exit_2() {
    let (folder, cli) = fresh();
    let cases: [(&[&str], &[&str]); 12] = [
        (&["serve", "--lisen", "x"], &["--lisen", "--help"]),
        (&["srve"], &["srve"]),
        (&["serve", "--listen", "nowhere"], &["--listen", "IP:PORT"]),
        (&["serve", "--listen", "127.0.0.1:99999"], &["--listen", "IP:PORT"]),
        (&["attach"], &["RUN"]),
        (&["attach", "run/1"], &["run/1", "letters"]),
        (&["runs", "start", "long_running_agent", "--input", "{"], &["--input", "JSON"]),
        (&["runs", "list", "--limit", "0"], &["--limit"]),
        (&["tenants", "create", "a b"], &["a b", "letters"]),
        (&["completions", "tcl"], &["tcl", "bash"]),
        (&["db", "backup"], &["FILE"]),
        (&["--log-format", "xml", "doctor"], &["xml", "json"]),
    ];
    for (arguments, words) in cases {
        cli.run(arguments).refused(2, words);
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "something was made");
}

#[test]
fn wrong_environment_names_the_variable() {
    let (folder, cli) = fresh();
    let cases = [
        ("SHIKIRI_NODE_LEASE_SECONDS", "soon", "number"),
        ("SHIKIRI_NODE_LEASE_SECONDS", "-1", "0.2 seconds"),
        ("SHIKIRI_RETENTION_DAYS", "NaN", "out of range"),
        ("SHIKIRI_LISTEN", "7420", "IP:PORT"),
        ("SHIKIRI_ALLOW_REMOTE", "maybe", "true or false"),
        ("SHIKIRI_MAX_STREAMS", "0", "at least 1"),
        ("SHIKIRI_DURABILITY", "some", "full"),
        ("SHIKIRI_LOG_FORMAT", "xml", "json"),
        ("CLAUDE_PROJECT_DIR", "not/there", "folder"),
    ];
    for (name, value, words) in cases {
        cli.clone().env(name, value).run(&["doctor"]).refused(2, &[name, words]);
        cli.clone().env(name, value).run(&["serve"]).refused(2, &[name, words]);
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "something was made");
}

#[test]
fn a_wrong_configuration_file_is_named_with_its_line() {
    let (folder, cli) = fresh();
    std::fs::write(folder.path().join("shikiri.toml"), "listen = '127.0.0.1:1'\nlissten = 1\n")
        .unwrap();
    cli.run(&["doctor"]).refused(2, &["shikiri.toml", "line 2", "lissten"]);
}

#[test]
fn a_wrong_store_url_is_refused_and_its_password_never_printed() {
    let (folder, cli) = fresh();
    let secret = "hunter2";
    for url in ["mysql://me:hunter2@db/x", "me:hunter2@db", "sqlite:", "http://me:hunter2@db/"] {
        for refused in [
            cli.clone().store(url).run(&["tenants", "list"]),
            cli.run(&["--store", url, "tenants", "list"]),
        ] {
            refused.refused(2, &["sqlite:PATH", "postgres://"]);
            assert!(!refused.stderr.contains(secret), "{}", refused.stderr);
        }
    }
    let unreachable = [
        "postgres://me:hunter2@127.0.0.1:1/x",
        "postgres://me:hunter2@host.invalid/x?password=hunter2",
        "postgres://me:hunter2@127.0.0.1:notaport/x",
        "postgres://me:hunter2@/x?host=/nowhere/hunter2",
    ];
    for url in unreachable {
        for arguments in [&["tenants", "list"][..], &["serve", "--listen", "127.0.0.1:0"]] {
            let ended = cli.clone().store(url).run(arguments);
            assert!(matches!(ended.code, 2 | 5), "{} {}", ended.code, ended.stderr);
            let said = format!("{}{}", ended.stdout, ended.stderr);
            assert!(!said.contains(secret), "{url}: {said}");
            assert_eq!(ended.stderr.lines().count(), 1, "{said}");
        }
        let doctor = cli.clone().store(url).run(&["doctor"]);
        assert_eq!(doctor.code, 1, "{}", doctor.stdout);
        assert!(!format!("{}{}", doctor.stdout, doctor.stderr).contains(secret));
    }
    assert!(!folder.path().join("x").exists());
}

#[test]
fn help_and_version_are_answers_and_not_errors() {
    let (_folder, cli) = fresh();
    let help = cli.run(&["--help"]).done();
    for command in ["demo", "serve", "tenants", "keys", "attach", "cancel", "db", "doctor"] {
        assert!(help.stdout.contains(command), "{command} is not in the help");
    }
    assert!(help.stdout.contains("SHIKIRI_STORE"), "the environment is part of the help");
    assert!(cli.run(&["--version"]).done().stdout.starts_with("shikiri "));
}
