//! A data folder that came with a repository, and where a project's folder is.

use std::fs;
use std::os::unix::fs::symlink;

use shikiri_testkit::Cli;
use tempfile::TempDir;

use super::{ClonedRepository, git};
use crate::PROGRAM;

#[test]
fn cloned_database_is_not_opened() {
    let stranger = TempDir::new().unwrap();
    Cli::new(PROGRAM, stranger.path()).run(&["tenants", "create", "planted"]).done();
    let database = stranger.path().join(".shikiri/state.db");
    let repository = ClonedRepository::made_by(|root| {
        fs::create_dir(root.join(".shikiri")).unwrap();
        fs::copy(&database, root.join(".shikiri/state.db")).unwrap();
        fs::write(root.join(".shikiri/conventions.toml"), "[default]\ntext = 'x'\n").unwrap();
    });
    let cli = repository.cli().env("SHIKIRI_TRUST", "1");
    let words = [".shikiri/state.db", "tracked by git", "git rm --cached"];
    for command in [&["tenants", "list"][..], &["db", "check"], &["tenants", "create", "acme"]] {
        cli.run(command).refused(3, &words);
    }
    let doctor = cli.run(&["doctor"]);
    assert!(doctor.stdout.contains("tracked by git"), "{}", doctor.stdout);
    // In a folder below it is the same project.
    fs::create_dir(repository.root().join("src")).unwrap();
    let below = Cli::new(PROGRAM, repository.root().join("src")).env("HOME", repository.home());
    below.run(&["tenants", "list"]).refused(3, &words);
}

#[test]
fn cloned_database_elsewhere_in_the_folder_is_not_opened_before_trust() {
    let stranger = TempDir::new().unwrap();
    Cli::new(PROGRAM, stranger.path()).run(&["tenants", "create", "planted"]).done();
    let repository = ClonedRepository::made_by(|root| {
        fs::copy(stranger.path().join(".shikiri/state.db"), root.join("data.db")).unwrap();
        fs::write(root.join("shikiri.toml"), "store = 'sqlite:data.db'\n").unwrap();
    });
    let command = repository.trust_command();
    repository.cli().run(&["tenants", "list"]).refused(3, &["store", &command]);
    repository.cli().run(&["trust"]).done();
    repository.cli().run(&["tenants", "show", "planted"]).done();
}

#[test]
fn data_folder_that_is_a_link_is_refused() {
    let repository = ClonedRepository::made_by(|root| {
        symlink("../home", root.join(".shikiri")).unwrap();
    });
    let cli = repository.cli().env("SHIKIRI_TRUST", "1");
    for command in [
        &["tenants", "create", "acme"][..],
        &["tenants", "list"],
        &["serve", "--listen", "127.0.0.1:0"],
        &["hooks", "init"],
        &["browser", "check"],
    ] {
        cli.run(command).refused(3, &[".shikiri", "link"]);
    }
    assert_eq!(fs::read_dir(repository.home()).unwrap().count(), 0, "something was written there");
}

#[test]
fn project_root_is_found_upwards_to_the_git_root() {
    let folder = TempDir::new().unwrap();
    let root = folder.path().join("project");
    let below = root.join("crates/one");
    fs::create_dir_all(&below).unwrap();
    let cli = |folder| Cli::new(PROGRAM, folder).env("HOME", "/nonexistent");
    // No repository: the folder itself.
    cli(&root).run(&["tenants", "create", "above"]).done();
    cli(&below).run(&["tenants", "list"]).refused(4, &["no data here"]);
    git(&root, &["init", "-q"]);
    cli(&below).run(&["tenants", "show", "above"]).done();
    // The nearest one counts, and nothing beyond the repository does.
    fs::write(root.join("crates/shikiri.toml"), "log = 'warn'\n").unwrap();
    cli(&below).run(&["tenants", "create", "nearer"]).done();
    assert!(root.join("crates/.shikiri/state.db").exists());
    let inner = root.join("crates/two");
    fs::create_dir(&inner).unwrap();
    git(&inner, &["init", "-q"]);
    cli(&inner).run(&["tenants", "list"]).refused(4, &["no data here"]);
    let named = cli(&below).env("CLAUDE_PROJECT_DIR", &inner);
    named.run(&["tenants", "list"]).refused(4, &["no data here"]);
}
