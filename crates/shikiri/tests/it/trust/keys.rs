//! An admin key that did not come from this store opens nothing.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown, symlink};
use std::path::Path;

use shikiri_testkit::{Cli, Ended, TestApp, unprivileged};
use tempfile::TempDir;

use super::{ClonedRepository, git};
use crate::PROGRAM;

const PLANTED: &str = "shk_planted-by-a-stranger-0123456789abcdefghij\n";
const NEXT: &str = "shikiri keys rotate-admin";

fn serve(cli: &Cli) -> Ended {
    cli.run(&["serve", "--listen", "127.0.0.1:0"])
}

fn plant(root: &Path, mode: u32) {
    fs::create_dir_all(root.join(".shikiri")).unwrap();
    fs::write(root.join(".shikiri/admin.key"), PLANTED).unwrap();
    fs::set_permissions(root.join(".shikiri/admin.key"), fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn admin_key_that_is_tracked_by_git_is_refused() {
    let repository = ClonedRepository::made_by(|root| plant(root, 0o600));
    let key = repository.root().join(".shikiri/admin.key");
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
    let cli = repository.cli().env("SHIKIRI_TRUST", "1");
    serve(&cli).refused(3, &[".shikiri/admin.key", "tracked by git", "git rm --cached"]);
    cli.run(&["run", "hello", "--server", "http://127.0.0.1:1"]).refused(3, &["tracked by git"]);
    assert!(!repository.root().join(".shikiri/state.db").exists());
}

#[test]
fn admin_key_that_the_store_does_not_know_is_refused() {
    let folder = TempDir::new().unwrap();
    plant(folder.path(), 0o600);
    let cli = Cli::new(PROGRAM, folder.path());
    serve(&cli).refused(3, &["admin.key", NEXT]);
    // Nor on a store that other commands have made.
    cli.run(&["tenants", "create", "acme"]).done();
    serve(&cli).refused(3, &["admin.key", NEXT]);
    assert_eq!(fs::read_to_string(folder.path().join(".shikiri/admin.key")).unwrap(), PLANTED);
    // The stranger's key is in no store: as many end as there were.
    let rotated = cli.run(&["keys", "rotate-admin"]).done().stdout;
    assert!(rotated.contains("earlier admin keys that ended: 0\n"), "{rotated}");
}

#[tokio::test(flavor = "multi_thread")]
async fn admin_key_after_rotation_is_ours() {
    let folder = TempDir::new().unwrap();
    plant(folder.path(), 0o600);
    let cli = Cli::new(PROGRAM, folder.path());
    tokio::task::block_in_place(|| cli.run(&["keys", "rotate-admin"]).done());
    let app = TestApp::new(PROGRAM).root(folder.path()).start().await;
    app.client().get("/v1/tenants").await.expect(200);
    let planted = app.client().with_key(PLANTED.trim());
    assert_eq!(planted.get("/v1/tenants").await.status, 401);
}

#[test]
fn admin_key_that_others_can_read_or_that_is_a_link_is_refused() {
    let folder = TempDir::new().unwrap();
    let cli = Cli::new(PROGRAM, folder.path());
    let key = folder.path().join(".shikiri/admin.key");
    for mode in [0o644, 0o640, 0o620] {
        plant(folder.path(), mode);
        serve(&cli).refused(3, &["admin.key", NEXT]);
    }
    fs::rename(&key, folder.path().join("elsewhere.key")).unwrap();
    fs::set_permissions(folder.path().join("elsewhere.key"), fs::Permissions::from_mode(0o600))
        .unwrap();
    symlink("../elsewhere.key", &key).unwrap();
    serve(&cli).refused(3, &["admin.key", "link"]);
    let there = ["run", "hello", "--server", "http://127.0.0.1:1"];
    cli.run(&there).refused(3, &["admin.key", "link"]);
    fs::remove_file(&key).unwrap();
    let made = std::process::Command::new("mkfifo").arg(&key).status().unwrap();
    assert!(made.success());
    serve(&cli).refused(3, &["admin.key"]);
}

#[test]
fn admin_key_and_data_folder_of_another_user_are_refused() {
    let Some((uid, gid)) = unprivileged() else { return };
    let folder = TempDir::new().unwrap();
    plant(folder.path(), 0o600);
    let cli = Cli::new(PROGRAM, folder.path());
    chown(folder.path().join(".shikiri/admin.key"), Some(uid), Some(gid)).unwrap();
    serve(&cli).refused(3, &["admin.key", "another user"]);
    fs::remove_file(folder.path().join(".shikiri/admin.key")).unwrap();
    chown(folder.path().join(".shikiri"), Some(uid), Some(gid)).unwrap();
    for command in [&["tenants", "create", "acme"][..], &["tenants", "list"]] {
        cli.run(command).refused(3, &[".shikiri", "another user"]);
    }
}

#[test]
fn key_that_was_added_to_git_by_its_owner_is_refused_until_taken_out() {
    let folder = TempDir::new().unwrap();
    let cli = Cli::new(PROGRAM, folder.path());
    cli.run(&["keys", "rotate-admin"]).done();
    git(folder.path(), &["init", "-q"]);
    git(folder.path(), &["add", "-f", ".shikiri/admin.key"]);
    serve(&cli).refused(3, &["tracked by git", "git rm --cached"]);
    cli.run(&["tenants", "list"]).refused(3, &["tracked by git"]);
    git(folder.path(), &["rm", "-q", "--cached", ".shikiri/admin.key"]);
    cli.run(&["tenants", "list"]).done();
}
