use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use super::*;
use crate::trust_file::{Agreements, FileAgreement};

/// A project and a home, with variables.
struct World {
    _folder: tempfile::TempDir,
    root: PathBuf,
    variables: HashMap<&'static str, OsString>,
}

impl World {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let base = folder.path().canonicalize().unwrap();
        let (root, home) = (base.join("project"), base.join("home"));
        fs::create_dir_all(home.join(".config/shikiri")).unwrap();
        fs::create_dir(&root).unwrap();
        Self { _folder: folder, root, variables: [("HOME", home.into())].into() }
    }

    fn home(&self) -> PathBuf {
        PathBuf::from(&self.variables["HOME"])
    }

    fn project_file(&self, text: &str) {
        fs::write(self.root.join(PROJECT_FILE), text).unwrap();
    }

    fn find(&self) -> Result<ConfiguredStore, String> {
        let current = self.root.join("sub");
        ConfiguredStore::find(&self.root, &current, &|name| self.variables.get(name).cloned())
    }

    fn file(&self) -> PathBuf {
        match self.find() {
            Ok(ConfiguredStore::File(path)) => path,
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn the_nearer_source_names_the_store() {
    let mut world = World::new();
    assert_eq!(world.find(), Ok(ConfiguredStore::Default));
    let user = world.home().join(".config").join(USER_FILE);
    fs::write(&user, "store = 'sqlite:mine.db'\nlog = 'debug'\n").unwrap();
    assert_eq!(world.file(), user.with_file_name("mine.db"));
    world.project_file("log = 'debug'\n");
    assert_eq!(world.file(), user.with_file_name("mine.db"), "it names no store");
    world.project_file("unknown = 1\nstore = 'sqlite:data/x.db'\n");
    assert_eq!(world.file(), world.root.join("data/x.db"));
    world.variables.insert("SHIKIRI_STORE", "sqlite:y.db".into());
    assert_eq!(world.file(), world.root.join("sub/y.db"));
    world.variables.insert("SHIKIRI_STORE", "".into());
    assert_eq!(world.file(), world.root.join("data/x.db"), "an empty one counts as unset");
    world.project_file("store = 'sqlite:.shikiri/state.db'\n");
    assert_eq!(world.find(), Ok(ConfiguredStore::Default));
    world.variables.insert("SHIKIRI_STORE", "postgres://me:hunter2@db/x".into());
    assert_eq!(world.find(), Ok(ConfiguredStore::Server(StoreSource::Environment)));
}

#[test]
fn a_projects_file_chooses_a_store_elsewhere_only_after_agreement() {
    let mut world = World::new();
    let content = "store = 'sqlite:../other.db'\n";
    world.project_file(content);
    assert_eq!(world.find(), Ok(ConfiguredStore::Default));
    let state = world.home().join(".local/state/shikiri");
    fs::create_dir_all(&state).unwrap();
    let agreement = FileAgreement {
        sha256: content_hash(content),
        entries: Vec::new(),
        agreed_at: shikiri_model::time::Timestamp::from_millis(1),
    };
    let mut agreements = Agreements { version: 1, ..Agreements::default() };
    let files = agreements.folders.entry(world.root.to_str().unwrap().to_owned()).or_default();
    files.insert(PROJECT_FILE.to_owned(), agreement);
    let path = state.join("trust.json");
    fs::write(&path, serde_json::to_vec(&agreements).unwrap()).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    assert_eq!(world.file(), world.root.join("../other.db"));
    world.project_file("store = 'postgres://db/x'\n");
    assert_eq!(world.find(), Ok(ConfiguredStore::Default), "another content");
    world.variables.insert("SHIKIRI_TRUST", "1".into());
    let source = StoreSource::File(world.root.join(PROJECT_FILE));
    assert_eq!(world.find(), Ok(ConfiguredStore::Server(source)));
}

#[test]
fn a_store_that_cannot_be_known_is_an_error_that_repeats_no_secret() {
    let mut world = World::new();
    world.project_file("store = ");
    assert!(world.find().unwrap_err().contains("shikiri.toml"));
    world.variables.insert("SHIKIRI_STORE", "mysql://me:hunter2@db/x".into());
    assert_eq!(world.find(), Err("SHIKIRI_STORE: this is not a store URL".to_owned()));
}
