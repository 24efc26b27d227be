use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use super::*;

/// A folder of its own for one test, removed at the end.
struct World(PathBuf);

impl World {
    fn new(test: &str) -> World {
        let root = env::temp_dir().join(format!("shikiri-find-{}-{test}", std::process::id()));
        fs::create_dir_all(&root).expect("a temporary folder");
        World(root.canonicalize().expect("its real path"))
    }

    fn install(&self, folder: &str, programs: &[&str]) -> PathBuf {
        let bin = self.0.join(folder);
        fs::create_dir_all(&bin).expect("a folder");
        for name in programs {
            fs::write(bin.join(name), "").expect("a program");
            let mode = fs::Permissions::from_mode(0o755);
            fs::set_permissions(bin.join(name), mode).expect("its mode");
        }
        bin
    }

    fn versions(&self) -> PathBuf {
        self.0.join("versions")
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn found(bin: &Path) -> Option<Installed> {
    Some(Installed { bin: bin.to_path_buf() })
}

#[test]
fn the_ordered_folder_wins_and_is_the_only_one_tried() {
    let world = World::new("ordered");
    let ordered = world.install("ordered", &PROGRAMS);
    let in_path = world.install("path", &PROGRAMS);
    let path = Some(in_path.as_os_str());

    assert_eq!(find_in(Some(ordered.as_os_str()), path, &world.versions()), found(&ordered));
    assert_eq!(find_in(Some(OsStr::new("/nowhere")), path, &world.versions()), None);
    assert_eq!(find_in(Some(OsStr::new("")), path, &world.versions()), found(&in_path));
}

#[test]
fn a_folder_in_path_must_have_all_programs_and_links_are_followed() {
    let world = World::new("path");
    let clients = world.install("clients", &["initdb"]);
    let real = world.install("real", &PROGRAMS);
    let links = world.install("links", &[]);
    for name in PROGRAMS {
        symlink(real.join(name), links.join(name)).expect("a link");
    }
    let path = env::join_paths([&clients, &links]).expect("a PATH");

    assert_eq!(find_in(None, Some(&path), &world.versions()), found(&real));
}

#[test]
fn the_newest_version_is_taken_by_number() {
    let world = World::new("versions");
    for version in ["9.6", "15", "16-broken"] {
        world.install(&format!("versions/{version}/bin"), &PROGRAMS);
    }
    world.install("versions/17/bin", &["initdb"]);

    assert_eq!(find_in(None, None, &world.versions()), found(&world.versions().join("15/bin")));
    assert_eq!(find_in(None, None, Path::new("/nowhere")), None);
}
