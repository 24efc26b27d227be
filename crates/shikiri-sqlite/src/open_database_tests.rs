use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::*;

fn place() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("状態.db");
    (folder, path)
}

fn open(path: &Path) -> Result<SqliteDatabase, OpenError> {
    SqliteDatabase::open(path, &DatabaseOptions::default())
}

fn patient(ms: u64) -> DatabaseOptions {
    DatabaseOptions { busy_timeout: Duration::from_millis(ms), ..DatabaseOptions::default() }
}

fn set_fact(database: &SqliteDatabase, name: &str) {
    database.execute("INSERT INTO facts (name, value) VALUES (?1, '')", [name]).unwrap();
}

fn facts(database: &Connection) -> Vec<String> {
    let mut select = database.prepare("SELECT name FROM facts ORDER BY name").unwrap();
    select.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect()
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<_> =
        entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn a_first_start_makes_a_private_folder_and_a_whole_file() {
    use std::os::unix::fs::PermissionsExt as _;
    let (folder, _) = place();
    let path = folder.path().join("深い/所/state.db");
    let database = open(&path).unwrap();
    let mode = fs::metadata(path.parent().unwrap()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
    for (pragma, expected) in
        [("synchronous", "2"), ("foreign_keys", "1"), ("trusted_schema", "0"), ("mmap_size", "0")]
    {
        let value: i64 = database.pragma_query_value(None, pragma, |row| row.get(0)).unwrap();
        assert_eq!(value.to_string(), expected, "{pragma}");
    }
    let mode: String = database.pragma_query_value(None, "journal_mode", |row| row.get(0)).unwrap();
    assert_eq!(mode, "wal");
    drop(database);
    assert_eq!(names(path.parent().unwrap()), ["state.db", "state.db.lock"], "no scraps are left");
}

#[test]
fn chunks_of_the_first_schema_keep_their_numbers() {
    let (_folder, path) = place();
    let old = build_connection(&path).unwrap();
    old.execute_batch(migrate::MIGRATIONS[0].sql).unwrap();
    old.execute_batch(
        "CREATE TABLE schema_version (version INTEGER PRIMARY KEY, applied_at TEXT NOT NULL);
         INSERT INTO schema_version VALUES (1, '');
         INSERT INTO events (id, stream, first_seq, last_seq, at, body)
         VALUES (3, 1, 1, 2, 7, '一'), (9, 1, 3, 3, 8, '二'), (12, 1, 4, 4, 9, '三');
         DELETE FROM events WHERE id = 12",
    )
    .unwrap();
    drop(old);
    let database = open(&path).unwrap();
    let mut select = database.prepare("SELECT id || body FROM events ORDER BY id").unwrap();
    let found = select.query_map([], |row| row.get(0)).unwrap();
    assert_eq!(found.collect::<Result<Vec<String>, _>>().unwrap(), ["3一", "9二"]);
    let sql = "SELECT value FROM facts WHERE name = 'last_event'";
    let last: String = database.query_row(sql, [], |row| row.get(0)).unwrap();
    assert_eq!(last, "12", "the number of what was erased is not given again");
}

#[test]
fn what_was_written_is_there_after_opening_again() {
    let (_folder, path) = place();
    set_fact(&open(&path).unwrap(), "一");
    assert_eq!(facts(&open(&path).unwrap()), ["一"]);
    let reader = SqliteDatabase::open_reader(&path, &DatabaseOptions::default()).unwrap();
    assert_eq!(facts(&reader), ["一"]);
    assert!(reader.execute("DELETE FROM facts", []).is_err(), "a reader does not write");
}

#[test]
fn a_hook_leaves_the_log_and_the_next_opener_reads_it() {
    let (_folder, path) = place();
    let hook = DatabaseOptions { checkpoint_on_close: false, ..DatabaseOptions::default() };
    set_fact(&SqliteDatabase::open(&path, &hook).unwrap(), "一");
    assert!(crate::database_files::with_suffix(&path, "-wal").exists());
    assert_eq!(facts(&open(&path).unwrap()), ["一"]);
}

#[test]
fn an_empty_file_is_filled() {
    let (_folder, path) = place();
    fs::write(&path, "").unwrap();
    set_fact(&open(&path).unwrap(), "一");
}

#[test]
fn each_obstacle_has_its_own_message_with_the_next_step() {
    let (folder, path) = place();
    let message = |outcome: Result<SqliteDatabase, OpenError>| outcome.unwrap_err().to_string();

    assert!(message(open(folder.path())).contains("is a folder: name a file inside it"));
    let under_a_file = folder.path().join("file");
    fs::write(&under_a_file, "").unwrap();
    let blocked = message(open(&under_a_file.join("x.db")));
    assert!(blocked.contains("cannot create the folder"), "{blocked}");
    let missing = message(SqliteDatabase::open_reader(&path, &DatabaseOptions::default()));
    assert!(missing.contains("there is no database at"), "{missing}");
    for text in [blocked, missing] {
        assert_eq!(text.lines().count(), 1);
    }
}

#[test]
fn a_newer_schema_is_refused_and_left_alone() {
    let (folder, path) = place();
    let known = migrate::latest_version();
    let newer = known + 1;
    let database = open(&path).unwrap();
    database
        .execute("INSERT INTO schema_version (version, applied_at) VALUES (?1, '')", [newer])
        .unwrap();
    drop(database);
    let error = open(&path).unwrap_err();
    let expected = format!(
        "{} was made by a newer Shikiri (schema {newer}, this one knows {known}): upgrade, or restore a backup",
        path.display()
    );
    assert_eq!(error.to_string(), expected);
    assert!(matches!(
        SqliteDatabase::open_reader(&path, &DatabaseOptions::default()),
        Err(OpenError::Newer { found, .. }) if found == newer
    ));
    assert!(names(folder.path()).iter().all(|name| !name.contains("damaged")));
}

#[test]
fn another_programs_database_is_refused_and_not_changed() {
    let (_folder, path) = place();
    let other = build_connection(&path).unwrap();
    other.execute_batch("CREATE TABLE bookmarks (url TEXT)").unwrap();
    drop(other);
    let before = fs::read(&path).unwrap();
    assert!(matches!(open(&path), Err(OpenError::Foreign(_))));
    assert_eq!(fs::read(&path).unwrap(), before);
}

#[test]
fn a_file_that_is_no_database_is_kept_under_another_name() {
    let (_folder, path) = place();
    fs::write(&path, "これは台帳ではない。".repeat(500)).unwrap();
    let database = open(&path).unwrap();
    let kept = database.set_aside().unwrap();
    assert!(fs::read_to_string(kept).unwrap().starts_with("これは台帳ではない。"));
    set_fact(&database, "新");
    drop(database);
    assert_eq!(open(&path).unwrap().set_aside(), None, "the new one is sound");
}

#[test]
fn a_file_that_was_cut_short_is_kept_under_another_name() {
    let (_folder, path) = place();
    drop(open(&path).unwrap());
    let whole = fs::metadata(&path).unwrap().len();
    fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(whole / 2).unwrap();
    let database = open(&path).unwrap();
    assert_eq!(fs::metadata(database.set_aside().unwrap()).unwrap().len(), whole / 2);
}

#[test]
fn a_log_without_its_file_is_never_read_into_a_new_one() {
    let (folder, path) = place();
    let hook = DatabaseOptions { checkpoint_on_close: false, ..DatabaseOptions::default() };
    set_fact(&SqliteDatabase::open(&path, &hook).unwrap(), "古");
    fs::remove_file(&path).unwrap();
    let database = open(&path).unwrap();
    assert!(facts(&database).is_empty());
    assert!(names(folder.path()).iter().any(|n| n.contains("damaged-") && n.ends_with("-wal")));
}

#[test]
fn a_damaged_file_that_others_have_open_stays_where_it_is() {
    let (folder, path) = place();
    let other = open(&path).unwrap();
    fs::write(&path, "x".repeat(20_000)).unwrap();
    let error = SqliteDatabase::open(&path, &patient(50)).unwrap_err();
    assert!(matches!(error, OpenError::DamagedInUse(_)), "{error}");
    drop(other);
    assert!(open(&path).unwrap().set_aside().is_some());
    assert!(names(folder.path()).iter().any(|name| name.contains("damaged-")));
}

/// Keeps everybody else out, also readers.
fn hold_alone(path: &Path) -> SqliteDatabase {
    let holder = open(path).unwrap();
    holder.pragma_update_and_check(None, "locking_mode", "exclusive", |_| Ok(())).unwrap();
    holder.execute_batch("BEGIN EXCLUSIVE; INSERT INTO facts VALUES ('held', '')").unwrap();
    holder
}

#[test]
fn a_busy_file_is_waited_for_and_never_set_aside() {
    let (folder, path) = place();
    drop(open(&path).unwrap());
    let holder = hold_alone(&path);
    let started = Instant::now();
    let error = SqliteDatabase::open(&path, &patient(100)).unwrap_err();
    assert!(matches!(error, OpenError::Busy(_)) && error.is_transient(), "{error}");
    assert!(started.elapsed() >= Duration::from_millis(100));

    let waiting = std::thread::spawn({
        let path = path.clone();
        move || SqliteDatabase::open(&path, &patient(5_000)).map(|database| facts(&database))
    });
    std::thread::sleep(Duration::from_millis(200));
    holder.execute_batch("COMMIT").unwrap();
    drop(holder);
    assert_eq!(waiting.join().unwrap().unwrap(), ["held"]);
    assert!(names(folder.path()).iter().all(|name| !name.contains("damaged")));
}

#[test]
fn a_link_to_the_file_shares_its_lock_and_its_log() {
    let (folder, path) = place();
    let first = open(&path).unwrap();
    set_fact(&first, "一");
    let link = folder.path().join("link.db");
    std::os::unix::fs::symlink(&path, &link).unwrap();
    assert_eq!(facts(&open(&link).unwrap()), ["一"]);
    assert!(!folder.path().join("link.db.lock").exists());
}

#[test]
fn maintenance_through_a_link_keeps_to_the_lock_of_its_file() {
    use crate::maintenance::{MaintenanceError, backup, check, restore};
    let (folder, path) = place();
    let elsewhere = tempfile::tempdir().unwrap();
    let (link, copy) = (elsewhere.path().join("link.db"), folder.path().join("copy.db"));
    let first = open(&path).unwrap();
    set_fact(&first, "一");
    std::os::unix::fs::symlink(&path, &link).unwrap();
    backup(&link, &copy).unwrap();
    assert!(check(&link).unwrap().log_bytes > 0, "the log of the real file");
    set_fact(&first, "二");
    let refused = restore(&copy, &link).unwrap_err();
    assert!(matches!(refused, MaintenanceError::InUse(_)), "{refused}");
    drop(first);

    let replaced = restore(&copy, &link).unwrap().unwrap();
    assert_eq!(replaced.parent(), Some(folder.path()));
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert_eq!(facts(&open(&link).unwrap()), ["一"]);
    assert_eq!(names(elsewhere.path()), ["link.db"]);
}

#[test]
fn looking_at_what_is_not_there_makes_nothing() {
    let (folder, path) = place();
    let missing = SqliteDatabase::open_reader(&path, &DatabaseOptions::default()).unwrap_err();
    assert!(matches!(missing, OpenError::Missing(_)), "{missing}");
    assert_eq!(names(folder.path()), [""; 0]);
}

fn brief() -> DatabaseOptions {
    DatabaseOptions { brief: true, checkpoint_on_close: false, ..DatabaseOptions::default() }
}

#[test]
fn a_brief_opener_is_alone_and_the_next_one_waits_for_it() {
    let (folder, path) = place();
    let first = SqliteDatabase::open(&path, &brief()).unwrap();
    set_fact(&first, "一");
    assert!(first.is_exclusive());
    assert!(names(folder.path()).iter().all(|name| !name.ends_with("-shm")), "nothing is shared");
    let refused =
        SqliteDatabase::open(&path, &DatabaseOptions { brief: true, ..patient(50) }).unwrap_err();
    assert!(matches!(refused, OpenError::Busy(_)), "{refused}");

    let waiting = std::thread::spawn({
        let path = path.clone();
        move || SqliteDatabase::open(&path, &brief()).map(|database| facts(&database))
    });
    drop(first);
    assert_eq!(waiting.join().unwrap().unwrap(), ["一"]);
}

#[test]
fn a_brief_opener_joins_the_processes_that_are_there() {
    let (_folder, path) = place();
    let server = open(&path).unwrap();
    let hook = SqliteDatabase::open(&path, &brief()).unwrap();
    assert!(!hook.is_exclusive());
    set_fact(&hook, "一");
    assert_eq!(facts(&server), ["一"]);
    drop((server, hook));

    // Another program has the file open and knows nothing of the lock beside it.
    let other = open_file(&path, OpenFlags::SQLITE_OPEN_READ_WRITE).unwrap();
    assert_eq!(facts(&other), ["一"]);
    let hook = SqliteDatabase::open(&path, &brief()).unwrap();
    assert!(!hook.is_exclusive());
    assert_eq!(facts(&hook), ["一"]);
}

#[test]
fn a_long_log_is_shortened_and_nothing_is_lost() {
    let (_folder, path) = place();
    let log = || fs::metadata(crate::database_files::with_suffix(&path, "-wal")).unwrap().len();
    for number in 0..40 {
        let hook = SqliteDatabase::open(&path, &brief()).unwrap();
        hook.execute("INSERT INTO facts VALUES (?1, 'x')", [number.to_string()]).unwrap();
    }
    let before = log();
    let options = DatabaseOptions { checkpoint_on_close: false, ..DatabaseOptions::default() };
    SqliteDatabase::open(&path, &options).unwrap().truncate_wal().unwrap();
    assert!(log() * 10 < before, "{} of {before} bytes are left", log());
    let count = "SELECT count(*) FROM facts WHERE value = 'x'";
    let kept: u32 = open(&path).unwrap().query_row(count, [], |row| row.get(0)).unwrap();
    assert_eq!(kept, 40);
}

/// Between one that finds no file and its look whether there is one, another may have made it.
#[test]
fn a_file_that_another_process_creates_meanwhile_is_opened() {
    let (_folder, path) = place();
    let connects = std::cell::Cell::new(0);
    let connection = connect_or_create(&path, || {
        connects.set(connects.get() + 1);
        let found = open_file(&path, OpenFlags::SQLITE_OPEN_READ_WRITE);
        if !path.exists() {
            open(&path).unwrap();
        }
        found
    });
    assert_eq!(facts(&connection.unwrap()), facts(&open(&path).unwrap()));
    assert_eq!(connects.get(), 2);
}
