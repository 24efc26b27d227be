use std::collections::HashMap;
use std::fs;

use shikiri_model::team::TeamLimits;

use super::*;

struct World {
    folder: tempfile::TempDir,
    variables: HashMap<String, OsString>,
}

impl World {
    fn new() -> Self {
        let world = Self { folder: tempfile::tempdir().unwrap(), variables: HashMap::new() };
        world.set("SHIKIRI_TRUST", "1")
    }

    fn set(mut self, name: &str, value: &str) -> Self {
        self.variables.insert(name.to_owned(), value.into());
        self
    }

    fn project_file(self, text: &str) -> Self {
        fs::write(self.folder.path().join("shikiri.toml"), text).unwrap();
        self
    }

    fn user_file(self, text: &str) -> Self {
        let folder = self.folder.path().join("xdg");
        fs::create_dir_all(folder.join("shikiri")).unwrap();
        fs::write(folder.join("shikiri/config.toml"), text).unwrap();
        let folder = folder.display().to_string();
        self.set("XDG_CONFIG_HOME", &folder)
    }

    fn load(&self, flags: Settings) -> Result<Config, Failure> {
        let surroundings = Surroundings {
            variable: &|name| self.variables.get(name).cloned(),
            current_folder: Some(self.folder.path().to_owned()),
            ask: |_| None,
        };
        Config::load(flags, &surroundings)
    }

    fn complaint(&self) -> String {
        let failure = self.load(Settings::default()).unwrap_err();
        assert_eq!(failure.code(), 2, "{failure}");
        failure.to_string().replace(&self.folder.path().display().to_string(), "ROOT")
    }
}

fn listening(port: u16) -> Settings {
    Settings { listen: Some(format!("127.0.0.1:{port}")), ..Settings::default() }
}

#[test]
fn the_nearer_source_wins() {
    let port = |world: &World, flags| world.load(flags).unwrap().listen.port();
    let world = World::new();
    assert_eq!(port(&world, Settings::default()), 7420);
    let world = world.user_file("listen = '127.0.0.1:1'\nlog = 'debug'");
    assert_eq!(port(&world, Settings::default()), 1);
    let world = world.project_file("listen = '127.0.0.1:2'");
    assert_eq!(port(&world, Settings::default()), 2);
    let world = world.set("SHIKIRI_LISTEN", "127.0.0.1:3");
    assert_eq!(port(&world, Settings::default()), 3);
    assert_eq!(port(&world, listening(4)), 4);
    // A value that only a weaker source has applies as well.
    assert_eq!(world.load(Settings::default()).unwrap().log.as_deref(), Some("debug"));
}

#[test]
fn data_lies_in_the_project_and_relative_paths_start_from_their_source() {
    let world = World::new();
    let root = world.folder.path().to_owned();
    let config = world.load(Settings::default()).unwrap();
    assert_eq!(config.store, StoreUrl::Sqlite(root.join(".shikiri/state.db")));

    fs::create_dir(root.join("project")).unwrap();
    fs::write(root.join("project/shikiri.toml"), "store = 'sqlite:data/x.db'").unwrap();
    let world = world.set("CLAUDE_PROJECT_DIR", "project");
    let config = world.load(Settings::default()).unwrap();
    assert_eq!(config.root, root.join("project"));
    assert_eq!(config.store, StoreUrl::Sqlite(root.join("project/data/x.db")));
    let flags = Settings { store: Some("sqlite:y.db".to_owned()), ..Settings::default() };
    assert_eq!(world.load(flags).unwrap().store, StoreUrl::Sqlite(root.join("y.db")));
}

#[test]
fn engines_may_read_what_is_named_and_never_what_is_the_servers() {
    let world = World::new();
    let root = world.folder.path().to_owned();
    assert_eq!(world.load(Settings::default()).unwrap().engine_paths, Vec::<PathBuf>::new());
    let world = world.project_file("engine_paths = ['tools', '/srv/node']");
    let paths = world.load(Settings::default()).unwrap().engine_paths;
    assert_eq!(paths, [root.join("tools"), "/srv/node".into()]);
    let world = world.set("SHIKIRI_ENGINE_PATHS", "/srv/a::b").set("SHIKIRI_STORE", "sqlite:x.db");
    let config = world.load(Settings::default()).unwrap();
    assert_eq!(config.engine_paths, ["/srv/a".into(), root.join("b")]);
    let secret = [".shikiri", "shikiri.toml", "x.db", "x.db-wal", "x.db-shm"];
    assert_eq!(config.secret_places(), secret.map(|name| root.join(name)));
}

#[test]
fn each_limit_of_teams_has_its_setting() {
    let world = World::new();
    assert_eq!(world.load(Settings::default()).unwrap().team, TeamLimits::default());
    let numbers = [
        "SHIKIRI_DIALOGUE_PENDING_SECONDS",
        "SHIKIRI_DIALOGUE_IDLE_SECONDS",
        "SHIKIRI_SESSION_SECONDS",
        "SHIKIRI_CHAT_IDLE_SECONDS",
        "SHIKIRI_DELEGATION_CLAIM_SECONDS",
        "SHIKIRI_DELEGATION_SECONDS",
        "SHIKIRI_SPAWN_GUARD_SECONDS",
        "SHIKIRI_DELEGATION_DEPTH",
        "SHIKIRI_MESSAGES_PER_CAUSE",
    ];
    let world = (1..).zip(numbers).fold(world, |world, (n, name)| world.set(name, &n.to_string()));
    let world = world.set("SHIKIRI_DIALOGUE_IDLE_SECONDS", "0.5").project_file("max_spawns = 9");
    let expected = TeamLimits {
        dialogue_pending: Duration::from_secs(1),
        dialogue_idle: Duration::from_millis(500),
        session: Duration::from_secs(3),
        chat_idle: Duration::from_secs(4),
        delegation_claim: Duration::from_secs(5),
        delegation_wall: Duration::from_secs(6),
        spawn_guard: Duration::from_secs(7),
        delegation_depth: 8,
        messages_per_cause: 9,
        max_spawns: 9,
        attempts: 3,
        rest: Duration::from_secs(600),
    };
    assert_eq!(world.load(Settings::default()).unwrap().team, expected);
}

#[test]
fn bad_values_are_refused_with_their_source() {
    let cases = [
        (World::new().set("SHIKIRI_LISTEN", "here"), "SHIKIRI_LISTEN: \"here\" is not an address"),
        (World::new().set("SHIKIRI_RETENTION_DAYS", "-1"), "SHIKIRI_RETENTION_DAYS: -1 is out of"),
        (World::new().set("SHIKIRI_RETENTION_DAYS", "NaN"), "SHIKIRI_RETENTION_DAYS: NaN is out"),
        (World::new().set("SHIKIRI_MAX_STREAMS", "0"), "SHIKIRI_MAX_STREAMS: is 0: allow"),
        (World::new().set("SHIKIRI_MAX_SPAWNS", "0"), "SHIKIRI_MAX_SPAWNS: is 0: allow"),
        (World::new().set("SHIKIRI_DELEGATION_DEPTH", "-1"), "SHIKIRI_DELEGATION_DEPTH: \"-1\" is"),
        (World::new().set("SHIKIRI_SESSION_SECONDS", "0"), "SHIKIRI_SESSION_SECONDS: 0 is out of"),
        (World::new().set("SHIKIRI_CHAT_IDLE_SECONDS", "x"), "SHIKIRI_CHAT_IDLE_SECONDS: \"x\" is"),
        (World::new().set("SHIKIRI_ALLOW_REMOTE", "maybe"), "SHIKIRI_ALLOW_REMOTE: \"maybe\""),
        (World::new().set("LOG_FORMAT", "xml"), "SHIKIRI_LOG_FORMAT: \"xml\" is not known"),
        (
            World::new().set("CLAUDE_PROJECT_DIR", "gone"),
            "CLAUDE_PROJECT_DIR: ROOT/gone is not there",
        ),
        (
            World::new().project_file("\nlisen = 'x'"),
            "ROOT/shikiri.toml line 2: unknown field `lisen`",
        ),
        (World::new().project_file("listen = "), "ROOT/shikiri.toml line 1: "),
        (World::new().user_file("store = 'mysql:x'"), "`store` in ROOT/xdg/shikiri/config.toml: "),
    ];
    for (world, expected) in cases {
        let complaint = world.complaint();
        assert!(complaint.starts_with(expected), "{complaint}");
    }
}

#[test]
fn guarded_keys_of_a_project_count_after_trust_and_only_those_in_use_are_asked_for() {
    let text = "listen = '127.0.0.1:2'\nclaude_bin = './c'\nmax_streams = 7";
    let world = World::new().set("SHIKIRI_TRUST", "0").project_file(text);
    let load = |uses: &[ConfigUse], flags| {
        let surroundings = Surroundings {
            variable: &|name| world.variables.get(name).cloned(),
            current_folder: Some(world.folder.path().to_owned()),
            ask: |_| None,
        };
        Config::load_for(uses, flags, &surroundings)
    };
    let refused = load(ConfigUse::ALL, Settings::default()).unwrap_err();
    assert_eq!(refused.code(), 3);
    assert!(refused.to_string().contains("agreed to: listen, claude_bin: allow it"), "{refused}");
    let refused = load(ConfigUse::ALL, listening(4)).unwrap_err();
    assert!(refused.to_string().contains("agreed to: claude_bin: allow it"), "{refused}");

    let config = load(&[ConfigUse::Listener], listening(4)).unwrap();
    assert_eq!((config.listen.port(), config.claude_bin), (4, None));
    let config = load(&[], Settings::default()).unwrap();
    assert_eq!((config.listen.port(), config.max_streams), (7420, Some(7)));
}

/// Such values exist in people's files.
#[test]
fn configuration_keys_are_as_they_were() {
    let unknown = toml::from_str::<Settings>("unknown = 1").unwrap_err();
    let (_, keys) = unknown.message().split_once("expected one of ").unwrap();
    insta::assert_snapshot!(keys.replace(", ", "\n"));
}
