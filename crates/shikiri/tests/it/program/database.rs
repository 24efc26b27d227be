//! The database from the outside: checked, copied under load, put back, refused, set aside.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use futures_util::future::join_all;
use serde_json::json;
use shikiri_testkit::history::{History, Seen, check};
use shikiri_testkit::{Cut, Frame, Tenant, TestApp, TestDatabase, have_postgres, until};

use super::fresh;
use crate::PROGRAM;

const SEEN_BEFORE: usize = 40;

async fn log(local: &Tenant, run: &str) -> Vec<Seen> {
    local.reader(run, Cut::End).rest().await.iter().map(Frame::seen).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_under_load_restores_to_a_complete_prefix_of_the_log() {
    // So long that no process takes up the runs of the restored store while they are looked at.
    let mut app = TestApp::new(PROGRAM).env("SHIKIRI_NODE_LEASE_SECONDS", "600").start().await;
    let local = app.local();
    let mut runs = Vec::new();
    for _ in 0..6 {
        let input = json!({ "steps": 120, "step_ms": 10 });
        runs.push(local.start_run("long_running_agent", input).await);
    }
    // What is seen before the backup begins must be in it.
    let mut reader = local.reader(&runs[0], Cut::End);
    for _ in 0..SEEN_BEFORE {
        assert!(reader.next().await.is_some());
    }
    let copy = app.root().join("copy.db");
    app.cli().run(&["db", "backup", copy.to_str().unwrap()]).done();
    app.cli().run(&["db", "backup", copy.to_str().unwrap()]).refused(3, &["copy.db"]);
    app.cli().run(&["db", "restore", copy.to_str().unwrap()]).refused(3, &["state.db"]);
    let mut logs = BTreeMap::new();
    for run in &runs {
        logs.insert(run.clone(), log(&local, run).await);
    }
    assert_eq!(app.terminate().await.0, 0);

    app.cli().run(&["db", "restore", copy.to_str().unwrap()]).done();
    assert!(kept_copies(app.root(), "state.db.").len() == 1, "what was there is kept");
    app.cli().run(&["db", "check"]).done();
    app.restart().await;
    let seen = join_all(logs.keys().map(|run| kept(&local, run))).await;
    for ((run, log), seen) in logs.iter().zip(seen) {
        let least = if *run == runs[0] { SEEN_BEFORE } else { 1 };
        assert!(seen.len() >= least, "{} of {} events of {run}", seen.len(), log.len());
        let history = History { name: run.clone(), after: 0, seen, whole: false };
        check(&history, log).unwrap_or_else(|violation| panic!("not a prefix: {violation}"));
    }
}

/// The events that are there now: the run does not go on, for its node seems to live.
async fn kept(local: &Tenant, run: &str) -> Vec<Seen> {
    let mut reader = local.reader(run, Cut::End);
    let mut seen = Vec::new();
    let mut patience = Duration::from_secs(30);
    while let Ok(Some(frame)) = tokio::time::timeout(patience, reader.next()).await {
        seen.push(frame.seen());
        patience = Duration::from_secs(3);
    }
    seen
}

/// Files of the data folder that begin so.
fn kept_copies(root: &Path, start: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(root.join(".shikiri")).unwrap().flatten().map(|entry| entry.path());
    let mut found: Vec<PathBuf> = entries
        .filter(|path| {
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            name.starts_with(start)
                && !name.ends_with("-wal")
                && !name.ends_with("-shm")
                && !name.ends_with("lock")
        })
        .collect();
    found.sort();
    found
}

#[test]
fn a_store_with_a_newer_schema_is_refused_and_left_alone() {
    let (folder, cli) = fresh();
    cli.run(&["tenants", "create", "kept"]).done();
    let path = folder.path().join(".shikiri/state.db");
    set_schema(&path, 9_999);
    let before = fs::read(&path).unwrap();
    let cases: [&[&str]; 4] = [
        &["serve", "--listen", "127.0.0.1:0"],
        &["tenants", "list"],
        &["db", "check"],
        &["db", "migrate"],
    ];
    for arguments in cases {
        cli.run(arguments).refused(5, &["newer", "9999", "upgrade"]);
    }
    assert_eq!(cli.run(&["doctor"]).code, 1);
    assert!(fs::read(&path).unwrap() == before, "the refused file was changed");
    assert_eq!(kept_copies(folder.path(), "state.db."), Vec::<PathBuf>::new());
}

/// As if a later program had been here.
fn set_schema(path: &Path, version: u32) {
    let options = shikiri_sqlite::DatabaseOptions::default();
    let database = shikiri_sqlite::SqliteDatabase::open(path, &options).unwrap();
    let sql = format!("INSERT INTO schema_version (version, applied_at) VALUES ({version}, 'x')");
    database.execute_batch(&sql).unwrap();
    database.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)").unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_file_is_set_aside_reported_and_replaced() {
    let mut app = TestApp::new(PROGRAM).start().await;
    app.client().post("/v1/tenants", &json!({ "id": "old" })).await.expect(201);
    let key = app.admin_key();
    assert_eq!(app.terminate().await.0, 0);
    let path = app.data_folder().join("state.db");
    let mut bytes = fs::read(&path).unwrap();
    bytes[..2_000].fill(0x5a);
    fs::write(&path, &bytes).unwrap();
    app.cli().run(&["db", "check"]).refused(1, &["problem", "restore"]);

    app.restart().await;
    let kept = kept_copies(app.root(), "state.db.damaged-");
    assert_eq!(kept.len(), 1, "{kept:?}");
    assert!(fs::read(&kept[0]).unwrap() == bytes, "the kept file is the damaged one");
    let name = kept[0].file_name().unwrap().to_str().unwrap().to_owned();
    until("the log tells of it", async || app.log().contains(&name)).await;
    assert_eq!(app.admin_key(), key, "the key stays the same");
    app.client().get("/v1/tenants/old").await.problem(404);
    app.client().get("/v1/tenants/local").await.expect(200);
    assert_eq!(app.client().get("/readyz").await.status, 200);
    let doctor = app.cli().run(&["doctor"]);
    assert!(doctor.stdout.contains(&name), "{}", doctor.stdout);
}

#[test]
fn files_that_are_no_backup_are_refused_and_change_nothing() {
    let (folder, cli) = fresh();
    cli.run(&["tenants", "create", "kept"]).done();
    let nonsense = folder.path().join("nonsense.db");
    fs::write(&nonsense, "not a database at all".repeat(1_000)).unwrap();
    let ended = cli.run(&["db", "restore", nonsense.to_str().unwrap()]);
    assert!(matches!(ended.code, 1 | 5), "{} {}", ended.code, ended.stderr);
    assert_eq!(ended.stderr.lines().count(), 1, "{}", ended.stderr);
    assert!(nonsense.exists(), "another program's file was moved away");
    cli.run(&["db", "restore", "not-there.db"]).refused(4, &["not-there.db"]);
    cli.run(&["db", "backup", "/proc/nowhere/x.db"]).refused(5, &["/proc/nowhere"]);
    cli.run(&["tenants", "show", "kept"]).done();
    let (_empty, other) = fresh();
    other.run(&["db", "check"]).refused(4, &["state.db"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn looking_at_postgresql_migrates_nothing() {
    if !have_postgres("looking_at_postgresql_migrates_nothing") {
        return;
    }
    let database = TestDatabase::create().await;
    let (folder, cli) = fresh();
    let cli = cli.store(database.url());
    // Twice: the first look has not changed what the second finds.
    for _ in 0..2 {
        let doctor = cli.run(&["doctor"]);
        assert_eq!(doctor.code, 1, "{}", doctor.stdout);
        assert!(doctor.stdout.contains("run `shikiri db migrate`"), "{}", doctor.stdout);
        for arguments in [&["db", "check"][..], &["tenants", "list"]] {
            cli.run(arguments).refused(5, &["run `shikiri db migrate`"]);
        }
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "something was made");
    cli.run(&["db", "migrate"]).done();
    cli.run(&["db", "check"]).done();
    cli.run(&["doctor"]).done();
    cli.run(&["tenants", "list"]).done();
}

#[test]
fn postgresql_is_pointed_to_its_own_tools() {
    let (_folder, cli) = fresh();
    let cli = cli.store("postgres://me@127.0.0.1:1/x");
    cli.run(&["db", "backup", "x.db"]).refused(2, &["pg_dump"]);
    cli.run(&["db", "restore", "x.db"]).refused(2, &["pg_restore"]);
    cli.run(&["db", "check"]).refused(5, &[]);
}
