//! The program that hooks call, and how a settings file names it.

use std::env;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use crate::env_vars;

/// What Claude Code replaces by the project's folder.
pub(super) const PROJECT: &str = "${CLAUDE_PROJECT_DIR}";
const SMALL: &str = "shikiri-hook";

/// The programs of this installation that hooks can call, the fastest first.
pub(super) struct HookPrograms(Vec<HookProgram>);

struct HookProgram {
    path: PathBuf,
    args: &'static [&'static str],
}

/// How a settings file names a program.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ProgramName {
    pub(super) command: String,
    pub(super) args: Vec<String>,
    /// What is wrong with the name, and what to do.
    pub(super) warning: Option<String>,
}

/// The places that a program may have.
pub(super) struct Places<'a> {
    /// The value of `PATH`.
    pub(super) search_path: Option<&'a OsStr>,
    /// The project's folder for Claude Code.
    pub(super) project: &'a Path,
}

impl HookPrograms {
    /// The small hook program beside this program, and this program.
    pub(super) fn beside(program: &Path) -> Self {
        let small = HookProgram { path: program.with_file_name(SMALL), args: &[] };
        let large = HookProgram { path: program.to_owned(), args: &["hook"] };
        Self([small, large].into_iter().filter(|program| program.path.is_file()).collect())
    }

    /// The name for settings of one user on this machine; None if the programs are gone.
    pub(super) fn private_name(&self) -> Option<ProgramName> {
        let fastest = self.0.first()?;
        Some(fastest.named(fastest.path.to_string_lossy().into_owned(), None))
    }

    /// The name for settings that others share.
    pub(super) fn shared_name(&self, places: &Places<'_>) -> Option<ProgramName> {
        let fastest = self.0.first()?;
        if let Some(command) = fastest.command_for_all(places) {
            return Some(fastest.named(command, None));
        }
        let name = fastest.name();
        let other = find_on_path(&name, places.search_path);
        let why = match &other {
            Some(other) => format!("{} on the PATH is another program or version", other.display()),
            None => format!("{name} is not on the PATH"),
        };
        let folder = fastest.path.parent().unwrap_or(Path::new("/")).display();
        let warning = |what: &str| {
            Some(format!(
                "{why}, so {what}: put {folder} first on the PATH and install again, or use --local"
            ))
        };
        let others = self.0[1..].iter().filter(|_| other.is_none());
        let mut slower = others.filter_map(|it| Some((it, it.command_for_all(places)?)));
        if let Some((program, command)) = slower.next() {
            return Some(program.named(command, warning("the slower `shikiri hook` is called")));
        }
        let here = "the settings hold a path of this machine";
        Some(ProgramName { warning: warning(here), ..self.private_name()? })
    }
}

impl HookProgram {
    fn name(&self) -> String {
        self.path.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    fn named(&self, command: String, warning: Option<String>) -> ProgramName {
        let args = self.args.iter().map(|arg| (*arg).to_owned()).collect();
        ProgramName { command, args, warning }
    }

    /// A command that leads to this program on other machines too.
    fn command_for_all(&self, places: &Places<'_>) -> Option<String> {
        let name = self.name();
        let found = find_on_path(&name, places.search_path);
        if found.is_some_and(|found| is_same_program(&found, &self.path)) {
            return Some(name);
        }
        inside(&self.path, places.project).map(|inside| format!("{PROJECT}/{inside}"))
    }
}

/// The program that a settings file names, if it is there.
pub(super) fn find(command: &Path, places: &Places<'_>) -> Option<PathBuf> {
    let text = command.to_string_lossy();
    let inside = [PROJECT, "$CLAUDE_PROJECT_DIR"].iter().find_map(|name| text.strip_prefix(name));
    let path = match inside {
        Some(inside) => places.project.join(inside.trim_start_matches('/')),
        None if command.components().count() == 1 && !command.is_absolute() => {
            return find_on_path(&text, places.search_path);
        }
        None => places.project.join(command),
    };
    path.is_file().then_some(path)
}

/// The value of `PATH` in this process.
pub(super) fn search_path() -> Option<std::ffi::OsString> {
    env::var_os(env_vars::PATH.name)
}

/// The program that a name starts. A relative folder of `PATH` depends on the current folder, so it
/// does not count.
fn find_on_path(name: &str, search_path: Option<&OsStr>) -> Option<PathBuf> {
    let folders = search_path.map(env::split_paths).into_iter().flatten();
    let absolute = folders.filter(|folder| folder.is_absolute());
    absolute.map(|folder| folder.join(name)).find(|path| {
        path.metadata()
            .is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
    })
}

/// Whether both are one file, or have the same content.
fn is_same_program(one: &Path, other: &Path) -> bool {
    match (one.canonicalize(), other.canonicalize()) {
        (Ok(one), Ok(other)) => one == other || has_same_content(&one, &other).unwrap_or(false),
        _ => false,
    }
}

fn has_same_content(one: &Path, other: &Path) -> io::Result<bool> {
    let (mut one, mut other) = (File::open(one)?, File::open(other)?);
    if one.metadata()?.len() != other.metadata()?.len() {
        return Ok(false);
    }
    let (mut left, mut right) = (vec![0; 1 << 16], vec![0; 1 << 16]);
    loop {
        let read = one.read(&mut left)?;
        if read == 0 {
            return Ok(true);
        }
        other.read_exact(&mut right[..read])?;
        if left[..read] != right[..read] {
            return Ok(false);
        }
    }
}

/// The path of a program relative to the project, without links.
fn inside(program: &Path, project: &Path) -> Option<String> {
    let (program, project) = (fs::canonicalize(program).ok()?, fs::canonicalize(project).ok()?);
    program.strip_prefix(project).ok()?.to_str().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct World {
        folder: tempfile::TempDir,
    }

    impl World {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            for name in ["ours", "bin", "project/tools"] {
                fs::create_dir_all(folder.path().join(name)).unwrap();
            }
            let world = Self { folder };
            world.put("ours/shikiri", "large");
            world.put("ours/shikiri-hook", "small");
            world
        }

        fn path(&self, name: &str) -> PathBuf {
            self.folder.path().canonicalize().unwrap().join(name)
        }

        fn put(&self, name: &str, content: &str) {
            let path = self.path(name);
            fs::write(&path, content).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        }

        /// The shared name of the program beside `ours`, with these folders on the PATH.
        fn name(&self, ours: &str, path: &[&str]) -> ProgramName {
            let path = env::join_paths(path.iter().map(|name| self.path(name))).unwrap();
            let project = self.path("project");
            let places = Places { search_path: Some(&path), project: &project };
            let named = HookPrograms::beside(&self.path(ours)).shared_name(&places).unwrap();
            let command = Path::new(&named.command);
            assert!(find(command, &places).is_some(), "{named:?} leads to no program");
            named
        }
    }

    #[test]
    fn a_program_on_the_path_is_named_alone() {
        let world = World::new();
        let named = world.name("ours/shikiri", &["bin", "ours"]);
        let expected =
            ProgramName { command: "shikiri-hook".into(), args: Vec::new(), warning: None };
        assert_eq!(named, expected);
        // A link or a copy is the same program.
        std::os::unix::fs::symlink(world.path("ours/shikiri-hook"), world.path("bin/shikiri-hook"))
            .unwrap();
        assert_eq!(world.name("ours/shikiri", &["bin"]).command, "shikiri-hook");
        fs::remove_file(world.path("bin/shikiri-hook")).unwrap();
        world.put("bin/shikiri-hook", "small");
        assert_eq!(world.name("ours/shikiri", &["bin"]).command, "shikiri-hook");
        // Without the small program, the large one.
        fs::remove_file(world.path("ours/shikiri-hook")).unwrap();
        let named = world.name("ours/shikiri", &["ours"]);
        assert_eq!((named.command.as_str(), named.warning), ("shikiri", None));
        assert_eq!(named.args, ["hook"]);
    }

    #[test]
    fn another_program_of_the_name_leads_to_the_whole_path_and_a_warning() {
        let world = World::new();
        let absolute = world.path("ours/shikiri-hook").display().to_string();
        world.put("bin/shikiri-hook", "#!/usr/bin/env node");
        let named = world.name("ours/shikiri", &["bin", "ours"]);
        assert_eq!(named.command, absolute);
        let warning = named.warning.unwrap();
        assert!(warning.contains("bin/shikiri-hook on the PATH is another"), "{warning}");
        let named = world.name("ours/shikiri", &[]);
        assert_eq!(named.command, absolute);
        assert!(named.warning.unwrap().contains("not on the PATH"));
        // The large one is better than a path of this machine.
        fs::remove_file(world.path("bin/shikiri-hook")).unwrap();
        world.put("bin/shikiri", "large");
        let named = world.name("ours/shikiri", &["bin"]);
        assert_eq!((named.command.as_str(), &*named.args), ("shikiri", &["hook".to_owned()][..]));
        assert!(named.warning.unwrap().contains("the slower `shikiri hook`"));
        // A file that is no program is not found.
        world.put("bin/shikiri-hook", "small?");
        fs::set_permissions(world.path("bin/shikiri-hook"), fs::Permissions::from_mode(0o644))
            .unwrap();
        assert_eq!(world.name("ours/shikiri", &["bin", "ours"]).command, "shikiri-hook");
    }

    #[test]
    fn a_program_in_the_project_is_named_from_there() {
        let world = World::new();
        world.put("project/tools/shikiri", "large");
        world.put("project/tools/shikiri-hook", "new");
        let named = world.name("project/tools/shikiri", &["ours"]);
        let command = "${CLAUDE_PROJECT_DIR}/tools/shikiri-hook".to_owned();
        assert_eq!(named, ProgramName { command, args: Vec::new(), warning: None });
    }
}
