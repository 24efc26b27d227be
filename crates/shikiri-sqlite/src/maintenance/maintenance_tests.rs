use std::fs;
use std::path::{Path, PathBuf};

use rusqlite::params;

use super::*;
use crate::{DatabaseOptions, SqliteDatabase};

fn place() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state.db");
    (folder, path)
}

fn open(path: &Path) -> SqliteDatabase {
    SqliteDatabase::open(path, &DatabaseOptions::default()).unwrap()
}

/// Appends one event to the stream 1 as the store does.
fn append(database: &mut SqliteDatabase) {
    let transaction = database.transaction().unwrap();
    transaction
        .execute(
            "INSERT INTO streams (id, name, tenant, head) VALUES (1, '流', 'local', 1)
             ON CONFLICT (id) DO UPDATE SET head = head + 1",
            [],
        )
        .unwrap();
    let head: i64 =
        transaction.query_row("SELECT head FROM streams", [], |row| row.get(0)).unwrap();
    let body = format!("1794772800000 log {{\"n\":{head}}}\n");
    transaction
        .execute(
            "INSERT INTO events (stream, first_seq, last_seq, at, body)
             VALUES (1, ?1, ?1, 1794772800000, ?2)",
            params![head, body],
        )
        .unwrap();
    transaction.commit().unwrap();
}

#[test]
fn a_sound_database_is_counted() {
    let (_folder, path) = place();
    let mut database = open(&path);
    for _ in 0..5 {
        append(&mut database);
    }
    let report = check(&path).unwrap();
    assert_eq!(report.problems, [""; 0]);
    assert_eq!((report.streams, report.chunks, report.events), (1, 5, 5));
    assert_eq!(report.schema, crate::migrate::latest_version());
    assert!(report.file_bytes > 0 && report.log_bytes > 0);
}

#[test]
fn every_kind_of_damage_to_the_log_is_named() {
    for (damage, told) in [
        (
            "DELETE FROM events WHERE first_seq = 3",
            "流: event 3 is missing, yet a chunk begins at 4",
        ),
        ("DELETE FROM events WHERE first_seq = 5", "流: its head is 5 but its events end at 4"),
        ("UPDATE events SET body = 'x' WHERE first_seq = 2", "流: the chunk 2–2 is damaged"),
        ("UPDATE streams SET first_kept = 2", "流: event 2 was removed, yet a chunk begins at 1"),
        ("DELETE FROM streams", "events of the unknown stream 1"),
    ] {
        let (_folder, path) = place();
        let mut database = open(&path);
        for _ in 0..5 {
            append(&mut database);
        }
        database.execute_batch(damage).unwrap();
        let report = check(&path).unwrap();
        assert!(report.problems.iter().any(|problem| problem == told), "{:?}", report.problems);
    }
}

#[test]
fn damage_to_the_file_is_an_answer_and_changes_nothing() {
    let (folder, path) = place();
    drop(open(&path));
    let mut bytes = fs::read(&path).unwrap();
    let end = bytes.len();
    bytes[end / 2..].fill(0xAA);
    fs::write(&path, &bytes).unwrap();
    assert!(!check(&path).unwrap().is_sound());
    fs::write(&path, "nonsense".repeat(1_000)).unwrap();
    assert!(!check(&path).unwrap().is_sound());
    let names: Vec<_> =
        fs::read_dir(folder.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert!(names.iter().all(|name| !name.to_string_lossy().contains("damaged")));
    assert!(matches!(check(&folder.path().join("none.db")), Err(OpenError::Missing(_))));
}

#[test]
fn a_backup_under_load_is_a_prefix_of_the_log() {
    use std::sync::atomic::{AtomicBool, Ordering};
    let (folder, path) = place();
    let mut database = open(&path);
    append(&mut database);
    let stop = AtomicBool::new(false);
    let (sender, appended) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        let (stop, database) = (&stop, &mut database);
        scope.spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                append(database);
                let _ = sender.send(());
            }
        });
        // By then it is at it.
        appended.recv().unwrap();
        let mut last = 0;
        for round in 0..5 {
            let copy = folder.path().join(format!("copy-{round}.db"));
            backup(&path, &copy).unwrap();
            let report = check(&copy).unwrap();
            assert_eq!(report.problems, [""; 0]);
            assert!(report.events >= last, "a later backup holds at least as much");
            last = report.events;
        }
        stop.store(true, Ordering::Relaxed);
        assert!(last > 1, "a writer was at work");
    });
    let names: Vec<_> =
        fs::read_dir(folder.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert!(names.iter().all(|name| !name.to_string_lossy().contains("partial")), "{names:?}");
}

#[test]
fn a_backup_overwrites_nothing() {
    let (folder, path) = place();
    drop(open(&path));
    let copy = folder.path().join("copy.db");
    fs::write(&copy, "mine").unwrap();
    assert!(matches!(backup(&path, &copy), Err(MaintenanceError::Exists(_))));
    assert_eq!(fs::read_to_string(&copy).unwrap(), "mine");
}

#[test]
fn a_backup_is_restored_only_while_the_file_is_unused() {
    let (folder, path) = place();
    let mut database = open(&path);
    append(&mut database);
    let copy = folder.path().join("copy.db");
    backup(&path, &copy).unwrap();
    append(&mut database);

    let refused = restore(&copy, &path).unwrap_err();
    assert!(refused.to_string().contains("is in use: stop every Shikiri"), "{refused}");
    assert_eq!(check(&path).unwrap().events, 2, "nothing was changed");
    drop(database);

    let replaced = restore(&copy, &path).unwrap().unwrap();
    assert_eq!(check(&path).unwrap().events, 1);
    assert_eq!(check(&replaced).unwrap().events, 2, "what was there is kept");
    append(&mut open(&path));
}

#[test]
fn what_is_not_a_sound_backup_is_refused_before_anything_moves() {
    let (folder, path) = place();
    append(&mut open(&path));
    let bad = folder.path().join("bad.db");
    for content in [String::new(), "nonsense".repeat(1_000)] {
        fs::write(&bad, content).unwrap();
        let error = restore(&bad, &path).unwrap_err();
        assert!(matches!(error, MaintenanceError::Unsound { .. }), "{error}");
    }
    let missing = restore(&folder.path().join("none.db"), &path).unwrap_err();
    assert!(matches!(missing, MaintenanceError::Open(OpenError::Missing(_))));
    assert_eq!(check(&path).unwrap().events, 1);
}

/// What a restore leaves that is killed after it has moved the old database away.
fn broken_off(path: &Path) -> PathBuf {
    append(&mut open(path));
    let replaced = crate::database_files::move_away(path, "replaced").unwrap();
    fs::write(crate::database_files::scratch_name(path, "restoring"), "half").unwrap();
    replaced
}

#[test]
fn a_restore_that_was_broken_off_does_not_lead_to_an_empty_database() {
    let (folder, path) = place();
    let replaced = broken_off(&path);
    let before = fs::read_dir(folder.path()).unwrap().count();
    let options = DatabaseOptions::default();
    let refusals = [
        SqliteDatabase::open(&path, &options).unwrap_err(),
        SqliteDatabase::open_reader(&path, &options).unwrap_err(),
        check(&path).unwrap_err(),
    ];
    for refusal in refusals {
        let line = refusal.to_string();
        let next = format!("`shikiri db restore {}`", replaced.display());
        assert!(line.contains(&next) && line.lines().count() == 1, "{line}");
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), before, "nothing was made");

    restore(&replaced, &path).unwrap();
    assert_eq!(check(&path).unwrap().events, 1);
    let scraps = fs::read_dir(folder.path()).unwrap().flatten();
    assert!(scraps.map(|e| e.file_name()).all(|n| !n.to_string_lossy().contains("restoring")));
}

#[test]
fn a_first_restore_that_was_broken_off_is_told_too() {
    let (_folder, path) = place();
    let left = crate::database_files::scratch_name(&path, "restoring");
    fs::write(&left, "half").unwrap();
    let refusal = SqliteDatabase::open(&path, &DatabaseOptions::default()).unwrap_err().to_string();
    assert!(refusal.contains(&left.display().to_string()), "{refusal}");
    fs::remove_file(left).unwrap();
    open(&path);
}

#[test]
fn a_backup_with_a_log_beside_it_is_restored_with_it() {
    let (folder, path) = place();
    let source = folder.path().join("copied-live.db");
    let hook = DatabaseOptions { checkpoint_on_close: false, ..DatabaseOptions::default() };
    append(&mut SqliteDatabase::open(&source, &hook).unwrap());
    restore(&source, &path).unwrap();
    assert_eq!(check(&path).unwrap().events, 1);
}
