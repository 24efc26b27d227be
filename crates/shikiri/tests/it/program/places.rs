//! Folders and ports that cannot be used: one line, the right exit code, nothing changed.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use shikiri_testkit::{Cleanup, Cli, Follower, unprivileged};
use tempfile::TempDir;

use super::fresh;
use crate::PROGRAM;

/// A program that runs as a user without rights: root is refused nothing.
struct Restricted {
    folder: TempDir,
    cli: Cli,
}

impl Restricted {
    fn new() -> Self {
        let folder = TempDir::new().unwrap();
        let mut cli = Cli::new(PROGRAM, folder.path());
        if let Some((uid, gid)) = unprivileged() {
            let user = Some((uid, gid));
            fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
            let copy = folder.path().join("shikiri");
            // The build folder may be closed to that user. Another process copies: a descriptor
            // open for writing here would be inherited by any child that another test starts
            // just now, and "Text file busy" is what running the copy would then give.
            assert!(
                Command::new("cp")
                    .args([PROGRAM.as_ref(), copy.as_os_str()])
                    .status()
                    .unwrap()
                    .success()
            );
            chown(folder.path(), Some(uid), Some(gid)).unwrap();
            cli = Cli::new(copy, folder.path()).user(user);
        }
        Self { folder, cli }
    }

    fn data(&self) -> std::path::PathBuf {
        self.folder.path().join(".shikiri")
    }
}

fn mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn a_folder_that_cannot_be_written_is_told_with_the_way_out() {
    let world = Restricted::new();
    mode(world.folder.path(), 0o555);
    let root = world.folder.path().to_owned();
    let _open = Cleanup::new(move || mode(&root, 0o755));
    for arguments in [&["serve", "--listen", "127.0.0.1:0"][..], &["tenants", "create", "a"]] {
        world.cli.run(arguments).refused(5, &[".shikiri", "writable"]);
    }
    let doctor = world.cli.run(&["doctor"]);
    assert_eq!(doctor.code, 1);
    assert!(doctor.stdout.contains("not writable"), "{}", doctor.stdout);
    assert!(!world.data().exists());
}

#[test]
fn a_data_folder_that_became_read_only_or_unreadable_is_told() {
    let world = Restricted::new();
    world.cli.run(&["tenants", "create", "kept"]).done();
    let data = world.data();
    let files = ["state.db", "state.db-wal", "state.db-shm", "state.db.lock"];
    let existing: Vec<_> =
        files.map(|name| data.join(name)).into_iter().filter(|f| f.exists()).collect();
    let opened = data.clone();
    let _open = Cleanup::new(move || mode(&opened, 0o700));
    mode(&data, 0o000);
    for arguments in [&["serve", "--listen", "127.0.0.1:0"][..], &["tenants", "list"]] {
        world.cli.run(arguments).refused(5, &[".shikiri"]);
    }
    mode(&data, 0o700);
    existing.iter().for_each(|file| mode(file, 0o400));
    mode(&data, 0o500);
    world.cli.run(&["tenants", "create", "lost"]).refused(5, &[".shikiri"]);
    mode(&data, 0o700);
    existing.iter().for_each(|file| mode(file, 0o600));
    mode(&data.join("state.db"), 0o000);
    world.cli.run(&["tenants", "list"]).refused(5, &["state.db"]);
    mode(&data.join("state.db"), 0o600);
    let list = world.cli.run(&["tenants", "list", "--json"]).done().json();
    let ids: Vec<&str> =
        list["items"].as_array().unwrap().iter().filter_map(|t| t["id"].as_str()).collect();
    assert_eq!(ids, ["local", "kept"], "set aside or lost by a refusal");
}

#[test]
fn a_port_in_use_and_a_foreign_address_are_refused() {
    let (folder, cli) = fresh();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    cli.run(&["serve", "--listen", &address]).refused(5, &[&address, "in use", "--listen"]);
    cli.run(&["serve", "--listen", "0.0.0.0:0"]).refused(3, &["--allow-remote"]);
    cli.run(&["serve", "--listen", "192.0.2.1:1", "--allow-remote"]).refused(5, &["192.0.2.1"]);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "something was made");
}

#[test]
fn reading_where_there_is_no_data_makes_nothing() {
    let (folder, cli) = fresh();
    let reads: [&[&str]; 6] = [
        &["runs", "list"],
        &["runs", "show", "run_0"],
        &["attach", "run_0"],
        &["tenants", "list"],
        &["tenants", "show", "local"],
        &["keys", "list"],
    ];
    for arguments in reads {
        cli.run(arguments).refused(4, &["no data here: start with `shikiri serve`"]);
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "something was made");
    fs::create_dir(folder.path().join(".shikiri")).unwrap();
    cli.run(&["runs", "list"]).refused(4, &["no data here"]);
    assert_eq!(fs::read_dir(folder.path().join(".shikiri")).unwrap().count(), 0);
}

#[test]
fn a_restore_that_was_broken_off_does_not_lead_to_an_empty_store() {
    let (folder, cli) = fresh();
    cli.run(&["tenants", "create", "kept"]).done();
    let path = folder.path().join(".shikiri/state.db");
    let replaced = folder.path().join(".shikiri/state.db.replaced-1");
    fs::rename(&path, &replaced).unwrap();
    let cases: [&[&str]; 4] = [
        &["serve", "--listen", "127.0.0.1:0"],
        &["tenants", "create", "other"],
        &["tenants", "list"],
        &["db", "check"],
    ];
    let next = format!("`shikiri db restore {}`", replaced.display());
    for arguments in cases {
        cli.run(arguments).refused(5, &[&next]);
    }
    assert!(!path.exists(), "an empty store was made");
    cli.run(&["db", "restore", replaced.to_str().unwrap()]).done();
    cli.run(&["tenants", "show", "kept"]).done();
}

#[test]
fn the_first_start_makes_private_files_and_ignores_them_in_git() {
    let (folder, cli) = fresh();
    let _server = serve(&cli);
    let data = folder.path().join(".shikiri");
    let mode_of = |name: &str| fs::metadata(data.join(name)).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode_of("admin.key"), 0o600);
    assert_eq!(mode_of("."), 0o700);
    let ignored = fs::read_to_string(data.join(".gitignore")).unwrap();
    assert_eq!(ignored, "*\n!conventions.toml\n!providers.toml\n");
}

/// A server that is up.
fn serve(cli: &Cli) -> Follower {
    let mut server = cli.start(&["serve", "--listen", "127.0.0.1:0"]);
    let up = server.find(Duration::from_secs(60), |l| l.contains("listening on").then_some(()));
    assert!(up.is_some(), "{}", server.output());
    server
}

#[test]
fn many_first_starts_at_once_agree_on_one_store_and_one_key() {
    let (folder, cli) = fresh();
    let servers: Vec<_> = std::thread::scope(|scope| {
        let starts: Vec<_> = (0..16)
            .map(|n| {
                let cli = cli.clone();
                scope.spawn(move || {
                    cli.run(&["tenants", "create", &format!("t{n}")]).done();
                    serve(&cli)
                })
            })
            .collect();
        starts.into_iter().map(|start| start.join().unwrap()).collect()
    });
    for server in servers {
        let said = server.output();
        assert!(!said.contains("rotate-admin"), "another key was made: {said}");
    }
    let rotated = cli.run(&["keys", "rotate-admin"]).done().stdout;
    assert!(rotated.contains("earlier admin keys that ended: 1\n"), "{rotated}");
    let list = cli.run(&["tenants", "list", "--json"]).done().json();
    assert_eq!(list["items"].as_array().unwrap().len(), 17);
    let report = cli.run(&["db", "check", "--json"]).done().json();
    assert_eq!(report["sound"], true);
    let names = fs::read_dir(folder.path().join(".shikiri")).unwrap().flatten();
    let stray: Vec<_> = names
        .map(|entry| entry.file_name().into_string().unwrap())
        .filter(|name| name.contains("new") || name.contains("tmp") || name.contains("damaged"))
        .collect();
    assert_eq!(stray, Vec::<String>::new());
}
