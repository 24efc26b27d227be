//! One file and many real processes: this test binary starts itself again as the others.

#![expect(clippy::unwrap_used, reason = "helpers of tests stand outside #[test]")]

mod processes;

use std::fs;
use std::io::{Seek as _, Write as _};
use std::path::Path;
use std::time::Duration;

use processes::{Crew, place};
use shikiri_sqlite::{DatabaseOptions, SqliteDatabase, maintenance};

fn open(path: &Path) -> SqliteDatabase {
    SqliteDatabase::open(path, &DatabaseOptions::default()).unwrap()
}

fn facts(database: &SqliteDatabase) -> Vec<String> {
    let mut select = database.prepare("SELECT name FROM facts ORDER BY name").unwrap();
    select.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect()
}

fn count_of(folder: &Path, part: &str, end: &str) -> usize {
    let names = fs::read_dir(folder).unwrap().map(|e| e.unwrap().file_name());
    names
        .filter(|n| n.to_string_lossy().contains(part) && n.to_string_lossy().ends_with(end))
        .count()
}

#[test]
fn sixteen_first_starts_at_once_lose_nothing() {
    for prepared in [false, true] {
        let (folder, path) = place();
        if prepared {
            // An empty file: all sixteen want to build the tables in it.
            fs::write(&path, "").unwrap();
        }
        let crew = Crew::start(16, "write_fact", &path);
        crew.go();
        crew.all_succeed();
        let expected: Vec<_> = (0..16).map(|n| format!("child-{n:02}")).collect();
        assert_eq!(facts(&open(&path)), expected);
        assert!(maintenance::check(&path).unwrap().is_sound());
        assert_eq!(count_of(folder.path(), ".new-", ""), 0, "no scraps are left");
    }
}

#[test]
fn sixteen_openers_set_a_damaged_file_aside_once() {
    let (folder, path) = place();
    fs::write(&path, "nonsense".repeat(2_000)).unwrap();
    let crew = Crew::start(16, "write_fact", &path);
    crew.go();
    crew.all_succeed();
    assert_eq!(facts(&open(&path)).len(), 16, "no row went away with the damaged file");
    assert_eq!(count_of(folder.path(), ".damaged-", ""), 1);
}

#[test]
fn a_damaged_file_goes_with_its_log_and_can_be_read_under_its_new_name() {
    let (folder, path) = place();
    drop(open(&path));
    // A process that dies leaves its row in the log only.
    let crew = Crew::start(1, "write_fact_and_die", &path);
    crew.go();
    crew.all_end();
    let mut file = fs::OpenOptions::new().read(true).write(true).open(&path).unwrap();
    let header = fs::read(&path).unwrap()[..16].to_vec();
    file.write_all(b"not a database!!").unwrap();
    drop(file);

    let database = open(&path);
    let kept = database.set_aside().unwrap().to_owned();
    assert!(facts(&database).is_empty());
    for end in ["-wal", "-shm"] {
        assert_eq!(count_of(folder.path(), ".damaged-", end), 1, "{end}");
    }
    let mut file = fs::OpenOptions::new().write(true).open(&kept).unwrap();
    file.rewind().unwrap();
    file.write_all(&header).unwrap();
    drop(file);
    assert_eq!(facts(&open(&kept)), ["child-00"], "with its first bytes mended, all is there");
}

#[test]
fn a_process_that_died_does_not_keep_the_file_locked() {
    let (folder, path) = place();
    drop(open(&path));
    let copy = folder.path().join("copy.db");
    maintenance::backup(&path, &copy).unwrap();
    let crew = Crew::start(1, "hold", &path);
    crew.go();
    crew.wait_for("held");
    assert!(maintenance::restore(&copy, &path).is_err(), "another process has it open");
    crew.kill();
    maintenance::restore(&copy, &path).unwrap();
}

#[test]
fn a_folder_that_cannot_be_written_is_named() {
    use std::os::unix::fs::PermissionsExt as _;
    let (folder, path) = place();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o555)).unwrap();
    let crew = Crew::start_without_rights("open_without_rights", &path);
    crew.all_succeed();
    assert!(!path.exists());
}

/// Not a test: what a child process does.
#[test]
fn child() {
    let Some(child) = processes::Child::from_environment() else { return };
    match child.part.as_str() {
        "write_fact" => write_fact(&child),
        "write_fact_and_die" => {
            let _database = write_fact_and_keep(&child);
            std::process::abort();
        }
        "hold" => {
            let _database = open(&child.path);
            child.say("held");
            std::thread::sleep(Duration::from_secs(60));
        }
        "open_without_rights" => {
            let error = SqliteDatabase::open(&child.path, &DatabaseOptions::default()).unwrap_err();
            let text = error.to_string();
            assert!(
                text.starts_with("cannot write in ") && text.contains("choose another"),
                "{text}"
            );
        }
        other => panic!("no part called {other}"),
    }
}

fn write_fact(child: &processes::Child) {
    drop(write_fact_and_keep(child));
}

fn write_fact_and_keep(child: &processes::Child) -> SqliteDatabase {
    child.wait_for_go();
    let database = open(&child.path);
    let name = format!("child-{:02}", child.number);
    database.execute("INSERT INTO facts (name, value) VALUES (?1, '')", [name]).unwrap();
    database
}
