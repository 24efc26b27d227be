//! `shikiri hooks install`, `uninstall` and `status`: what they leave on the disk.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use shikiri_testkit::{Cli, TestApp, have_postgres, script};
use tempfile::TempDir;

use super::call::told;
use crate::PROGRAM;

/// A project, with a home of its own.
struct World {
    folder: TempDir,
    cli: Cli,
}

impl World {
    fn new() -> Self {
        let folder = TempDir::new().unwrap();
        let (project, home) = (folder.path().join("project"), folder.path().join("home"));
        fs::create_dir_all(project.join(".claude")).unwrap();
        fs::create_dir(&home).unwrap();
        let cli = Cli::new(PROGRAM, project).env("HOME", home);
        Self { folder, cli }
    }

    fn settings(&self) -> PathBuf {
        self.folder.path().join("project/.claude/settings.json")
    }

    fn files(&self) -> Vec<String> {
        let found = fs::read_dir(self.folder.path().join("project/.claude")).unwrap();
        let mut names: Vec<_> =
            found.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

fn read(path: impl AsRef<Path>) -> String {
    fs::read_to_string(path).unwrap()
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

const SETTINGS: &str = "{\n\t// 私の設定\n\t\"model\": \"opus\",\n\t\"hooks\": {\n\t\t\"PreToolUse\": [\n\t\t\t{\"matcher\": \"Bash\", \"hooks\": [{\"type\": \"command\", \"command\": \"mine\"}]}\n\t\t]\n\t},\n\t\"unknown\": [1, 2,   3], /* here */\n}\n";

#[test]
fn settings_are_changed_once_and_come_back_to_the_byte() {
    let world = World::new();
    fs::write(world.settings(), SETTINGS).unwrap();
    fs::set_permissions(world.settings(), Permissions::from_mode(0o640)).unwrap();

    let first = world.cli.run(&["hooks", "install", "--json"]).done().json();
    assert_eq!(first["changed"], true);
    let installed = read(world.settings());
    for kept in ["// 私の設定", "\"command\": \"mine\"", "[1, 2,   3], /* here */\n}\n"] {
        assert!(installed.contains(kept), "{kept} is lost: {installed}");
    }
    let backup = world.settings().with_extension("json.shikiri-backup");
    assert_eq!(first["backup"], json!(backup));
    assert_eq!((read(&backup).as_str(), mode(&backup)), (SETTINGS, 0o640));

    let second = world.cli.run(&["hooks", "install", "--json"]).done().json();
    assert_eq!((&second["changed"], &second["events"]), (&json!(false), &first["events"]));
    assert_eq!(read(world.settings()), installed, "a second time changed something");
    assert_eq!(mode(&world.settings()), 0o640);

    world.cli.run(&["hooks", "uninstall"]).done();
    assert_eq!((read(world.settings()).as_str(), mode(&world.settings())), (SETTINGS, 0o640));
    assert_eq!(world.files(), ["settings.json"], "something was left");
}

#[test]
fn what_was_changed_in_the_meantime_stays() {
    let world = World::new();
    fs::write(world.settings(), "{\"hooks\": {}}").unwrap();
    world.cli.run(&["hooks", "install"]).done();
    let installed = read(world.settings());
    fs::write(world.settings(), installed.replacen('{', "{\"model\": \"haiku\", ", 1)).unwrap();
    world.cli.run(&["hooks", "uninstall"]).done();
    assert_eq!(read(world.settings()), "{\"model\": \"haiku\"}");

    // And where nothing was changed, what cannot be guessed comes from the copy.
    fs::remove_file(world.settings().with_extension("json.shikiri-backup")).unwrap();
    fs::write(world.settings(), "{\n\n\"hooks\" : { \"Stop\": [] } }").unwrap();
    world.cli.run(&["hooks", "install"]).done();
    world.cli.run(&["hooks", "uninstall"]).done();
    assert_eq!(read(world.settings()), "{\n\n\"hooks\" : { \"Stop\": [] } }");
}

#[test]
fn a_project_without_settings_has_none_afterwards() {
    let world = World::new();
    fs::remove_dir(world.settings().parent().unwrap()).unwrap();
    let shown = world.cli.run(&["hooks", "install", "--dry-run"]).done().stdout;
    assert!(!world.settings().exists(), "--dry-run wrote something");
    world.cli.run(&["hooks", "install"]).done();
    assert_eq!(read(world.settings()), shown);
    world.cli.run(&["hooks", "uninstall"]).done();
    assert_eq!(world.files(), [""; 0]);
    world.cli.run(&["hooks", "uninstall"]).done();
}

/// Another program may take hooks under the same path.
#[test]
fn hooks_of_others_stay() {
    let world = World::new();
    let text = r#"{"hooks": {"Stop": [{"hooks": [
        {"type": "http", "url": "https://audit.example.com/hooks/claude"}]}]}}"#;
    fs::write(world.settings(), text).unwrap();
    let said = world.cli.run(&["hooks", "uninstall", "--json"]).done().json();
    assert_eq!(said["changed"], false);
    assert_eq!(read(world.settings()), text);
    world.cli.run(&["hooks", "install"]).done();
    assert!(read(world.settings()).contains("audit.example.com"));
    world.cli.run(&["hooks", "uninstall"]).done();
    assert_eq!(read(world.settings()), text);
}

/// Whatever is taken out of a file that a person wrote, what it said is kept.
#[test]
fn a_file_that_install_did_not_make_is_kept_and_copied() {
    let world = World::new();
    let by_hand = r#"{"hooks":{"Stop":[{"hooks":[{"type":"command","command":"shikiri hook"}]}]}}"#;
    fs::write(world.settings(), by_hand).unwrap();
    world.cli.run(&["hooks", "uninstall"]).done();
    assert_eq!(read(world.settings()), "{}");
    let backup = world.settings().with_extension("json.shikiri-backup");
    assert_eq!(read(&backup), by_hand);

    // A later installation keeps what is there by then.
    fs::write(world.settings(), "{\"model\": \"opus\"}").unwrap();
    world.cli.run(&["hooks", "install"]).done();
    assert_eq!(read(&backup), "{\"model\": \"opus\"}");
    let installed = read(world.settings());
    fs::write(world.settings(), installed.replace("opus", "haiku")).unwrap();
    world.cli.run(&["hooks", "install"]).done();
    assert_eq!(read(&backup), "{\"model\": \"opus\"}", "nothing was installed anew");
    world.cli.run(&["hooks", "uninstall"]).done();
    assert_eq!(read(world.settings()), "{\"model\": \"haiku\"}");
}

#[test]
fn a_link_stays_a_link() {
    let world = World::new();
    let kept = world.folder.path().join("dotfiles.json");
    fs::write(&kept, "{}\n").unwrap();
    symlink(&kept, world.settings()).unwrap();
    world.cli.run(&["hooks", "install"]).done();
    assert!(world.settings().is_symlink());
    assert!(read(&kept).contains("PreToolUse"));
    world.cli.run(&["hooks", "uninstall"]).done();
    assert!(world.settings().is_symlink());
    assert_eq!(read(&kept), "{}\n");

    fs::remove_file(&kept).unwrap();
    world.cli.run(&["hooks", "install"]).refused(1, &["settings.json", "left alone"]);
    assert!(!kept.exists());
}

#[test]
fn broken_settings_are_left_alone() {
    let cases = [
        ("{\n  \"model\": \"opus\"\n  \"x\": 1\n}", "line 3"),
        ("{\n  \"hooks\": []\n}", "line 2"),
        ("[]", "line 1"),
        ("{\"hooks\": {}, \"hooks\": {}}", "twice"),
    ];
    for (text, words) in cases {
        let world = World::new();
        fs::write(world.settings(), text).unwrap();
        for command in ["install", "uninstall"] {
            world.cli.run(&["hooks", command]).refused(1, &[words, "left alone"]);
        }
        let status = world.cli.run(&["hooks", "status"]);
        assert!(status.code == 1 && status.stdout.contains(words), "{status:?}");
        assert_eq!(read(world.settings()), text);
        assert_eq!(world.files(), ["settings.json"], "something was left");
    }
    let world = World::new();
    fs::write(world.settings(), [0xff, 0xfe]).unwrap();
    world.cli.run(&["hooks", "install"]).refused(1, &["UTF-8"]);
    fs::remove_file(world.settings()).unwrap();
    fs::create_dir(world.settings()).unwrap();
    world.cli.run(&["hooks", "install"]).refused(1, &["not a regular file"]);
}

#[test]
fn each_scope_has_its_file() {
    let world = World::new();
    let other = world.folder.path().join("other place");
    fs::create_dir(&other).unwrap();
    let other = other.to_str().unwrap();
    let written = |cli: &Cli, args: &[&str]| {
        let args = [&["hooks", "install", "--json"], args].concat();
        let file = cli.run(&args).done().json()["file"].as_str().unwrap().to_owned();
        assert!(read(&file).contains("SubagentStart"), "{file}");
        file.strip_prefix(&format!("{}/", world.folder.path().display())).unwrap().to_owned()
    };
    assert_eq!(written(&world.cli, &[]), "project/.claude/settings.json");
    assert_eq!(written(&world.cli, &["--project"]), "project/./.claude/settings.json");
    assert_eq!(written(&world.cli, &["--local"]), "project/.claude/settings.local.json");
    assert_eq!(written(&world.cli, &["--user"]), "home/.claude/settings.json");
    assert_eq!(written(&world.cli, &["--project", other]), "other place/.claude/settings.json");
    let local = ["--project", other, "--local"];
    assert_eq!(written(&world.cli, &local), "other place/.claude/settings.local.json");
    let elsewhere = world.cli.clone().env("CLAUDE_CONFIG_DIR", world.folder.path().join("config"));
    assert_eq!(written(&elsewhere, &["--user"]), "config/settings.json");
    world.cli.run(&["hooks", "install", "--user", "--local"]).refused(2, &["--local"]);
    world.cli.run(&["hooks", "install", "--project", "no/such"]).refused(2, &["no/such"]);
}

/// Runs what stands in the settings, as Claude Code does: no shell, the event on stdin.
fn call(settings: &Path, project: &Path, event: &str) -> String {
    let settings: Value = serde_json::from_str(&read(settings)).unwrap();
    let hook = &settings["hooks"][event][0]["hooks"][0];
    assert_eq!((&hook["type"], &hook["timeout"]), (&json!("command"), &json!(5)), "{hook}");
    let args = hook["args"].as_array().unwrap().iter().map(|arg| arg.as_str().unwrap());
    let mut command = Command::new(hook["command"].as_str().unwrap());
    command.args(args).current_dir(project).env("CLAUDE_PROJECT_DIR", project);
    told(
        &mut command,
        &json!({ "session_id": "s", "hook_event_name": event, "agent_id": "a1",
                                "agent_type": "tester" }),
    )
}

/// The small program where it lies beside the large one, else the large one; in a folder with
/// spaces too.
#[test]
fn what_is_installed_can_be_called() {
    // Beside the program, so that it can be linked instead of copied.
    let place = TempDir::new_in(Path::new(PROGRAM).parent().unwrap()).unwrap();
    let folder = place.path().join("私の tools'");
    fs::create_dir(&folder).unwrap();
    let program = folder.join("shikiri");
    fs::hard_link(PROGRAM, &program).unwrap();
    let world = World::new();
    let project = world.folder.path().join("project");
    fs::create_dir(project.join(".shikiri")).unwrap();
    let conventions = project.join(".shikiri/conventions.toml");
    fs::write(conventions, "[roles.tester]\ntext = \"試験者の規約\"\n").unwrap();
    let cli = Cli::new(&program, &project).env("HOME", world.folder.path());

    cli.run(&["hooks", "install"]).done();
    assert!(call(&world.settings(), &project, "SubagentStart").contains("試験者の規約"));

    // Stands for the small program: it tells that it was called, and with what.
    let small = folder.join("shikiri-hook");
    script(&small, "#!/bin/sh\necho \"small $# $(cat)\"\n");
    cli.run(&["hooks", "install"]).done();
    let said = call(&world.settings(), &project, "SubagentStart");
    assert!(said.starts_with("small 0 {"), "{said}");
    let settings = read(world.settings());
    assert!(!settings.contains("\"hook\""), "the large one is still called: {settings}");

    fs::remove_file(&small).unwrap();
    let status = cli.run(&["hooks", "status"]);
    assert_eq!(status.code, 1);
    assert!(status.stdout.contains("shikiri-hook, which is not there"), "{}", status.stdout);
}

/// The commands of the hooks in a settings file, each once.
fn commands(settings: &Path) -> Vec<String> {
    let settings: Value = serde_json::from_str(&read(settings)).unwrap();
    let events = settings["hooks"].as_object().unwrap().values();
    let groups = events.flat_map(|groups| groups.as_array().unwrap());
    let hooks = groups.flat_map(|group| group["hooks"].as_array().unwrap());
    let mut commands: Vec<_> =
        hooks.map(|hook| hook["command"].as_str().unwrap().to_owned()).collect();
    commands.sort();
    commands.dedup();
    commands
}

/// Others share the file, and have the program in another folder.
#[test]
fn shared_settings_name_a_program_on_the_path_and_private_ones_its_place() {
    let place = TempDir::new_in(Path::new(PROGRAM).parent().unwrap()).unwrap();
    let (program, small) = (place.path().join("shikiri"), place.path().join("shikiri-hook"));
    fs::hard_link(PROGRAM, &program).unwrap();
    script(&small, "#!/bin/sh\nexec \"$(dirname \"$0\")\"/shikiri hook\n");
    let world = World::new();
    let project = world.folder.path().join("project");
    let away = Cli::new(&program, &project).env("HOME", world.folder.path().join("home"));
    let usual = std::env::var("PATH").unwrap();
    let cli = away.clone().env("PATH", format!("{}:{usual}", place.path().display()));
    let small = small.to_str().unwrap().to_owned();

    // As an earlier version did everywhere, and where the program cannot be found.
    let warned = away.run(&["hooks", "install"]).done();
    assert!(warned.stderr.contains("shikiri-hook is not on the PATH"), "{}", warned.stderr);
    assert_eq!(commands(&world.settings()), std::slice::from_ref(&small));
    let moved = cli.run(&["hooks", "install", "--json"]).done();
    assert_eq!((&moved.json()["changed"], moved.stderr.as_str()), (&json!(true), ""));
    assert_eq!(commands(&world.settings()), ["shikiri-hook"]);
    assert_eq!(cli.run(&["hooks", "install", "--json"]).done().json()["changed"], false);
    let status = cli.run(&["hooks", "status", "--json"]).done().json();
    assert_eq!(status["places"][0]["events"].as_array().unwrap().len(), 13);
    assert_eq!(status["places"][0]["calls"], "shikiri-hook");
    let elsewhere = away.run(&["hooks", "status"]);
    assert_eq!(elsewhere.code, 1);
    assert!(elsewhere.stdout.contains("which is not on the PATH"), "{}", elsewhere.stdout);

    for (scope, file) in [
        ("--local", world.settings().with_extension("local.json")),
        ("--user", world.folder.path().join("home/.claude/settings.json")),
    ] {
        let said = cli.run(&["hooks", "install", scope]).done();
        assert!(said.stderr.contains("handled twice"), "{}", said.stderr);
        assert_eq!(commands(&file), std::slice::from_ref(&small), "{scope}");
        let left = cli.run(&["hooks", "uninstall"]).done();
        let next = format!("`shikiri hooks uninstall {scope}`");
        assert!(left.stderr.contains(&next), "{}", left.stderr);
        cli.run(&["hooks", "uninstall", scope]).done();
        cli.run(&["hooks", "install"]).done();
    }
}

#[test]
fn a_program_in_the_project_is_named_from_the_project() {
    let world = World::new();
    let project = world.folder.path().join("project");
    // In the build folder, so that it can be linked instead of copied.
    let place = TempDir::new_in(Path::new(PROGRAM).parent().unwrap()).unwrap();
    let tools = place.path().join("node_modules/bin");
    fs::create_dir_all(&tools).unwrap();
    fs::hard_link(PROGRAM, tools.join("shikiri")).unwrap();
    let cli = Cli::new(tools.join("shikiri"), place.path()).env("HOME", &project);
    assert_eq!(cli.run(&["hooks", "install"]).done().stderr, "");
    let settings = place.path().join(".claude/settings.json");
    assert_eq!(commands(&settings), ["${CLAUDE_PROJECT_DIR}/node_modules/bin/shikiri"]);
    cli.run(&["hooks", "status"]).done();
    cli.run(&["hooks", "uninstall"]).done();
    assert!(!settings.exists());
}

/// Where a server answers events, it has to be there.
#[tokio::test(flavor = "multi_thread")]
async fn status_fails_if_the_server_behind_the_hooks_is_away() {
    let mut app = TestApp::new(PROGRAM).start().await;
    let cli = app.cli();
    let url = format!("http://127.0.0.1:{}", app.port());
    let install = ["hooks", "install", "--local", "--http", &url];
    cli.run(&install).done();
    cli.run(&["hooks", "status"]).done();
    let log = cli.run(&["hooks", "log", "--json"]).done().json();
    assert_eq!(log["items"], json!([]), "asking left a trace");
    let unknown = [&install[..], &["--key", "shk_nobody_has_it"]].concat();
    cli.run(&unknown).done();
    let refused = cli.run(&["hooks", "status"]);
    assert!(
        refused.code == 1 && refused.stdout.contains("key that the server refuses"),
        "{refused:?}"
    );
    app.kill9();
    let away = cli.run(&["hooks", "status"]);
    assert!(away.code == 1 && away.stdout.contains("no server answers"), "{away:?}");
}

/// A hook process does not reach a database server, so hooks are posted to a server of the store.
#[tokio::test(flavor = "multi_thread")]
async fn on_postgresql_hooks_are_posted_to_the_stores_server() {
    if !have_postgres("on_postgresql_hooks_are_posted_to_the_stores_server") {
        return;
    }
    let mut app = TestApp::new(PROGRAM).postgres().start().await;
    let cli = app.cli();
    let settings = app.root().join(".claude/settings.local.json");
    let said = cli.run(&["hooks", "install", "--local"]).done();
    assert!(said.stderr.contains("the store is postgres://"), "{}", said.stderr);
    let url = format!("http://127.0.0.1:{}/hooks/claude", app.port());
    let written: Value = serde_json::from_str(&read(&settings)).unwrap();
    assert_eq!(written["hooks"]["Stop"][0]["hooks"][0]["url"], json!(url));
    cli.run(&["hooks", "status"]).done();
    let before = read(&settings);
    cli.run(&["hooks", "install", "--local"]).done();
    assert_eq!(read(&settings), before, "another key was made");

    app.kill9();
    cli.run(&["hooks", "uninstall", "--local"]).done();
    let refused = cli.run(&["hooks", "install", "--local"]);
    refused.refused(3, &["postgres://", "only through a server", "shikiri serve", "--http URL"]);
    assert!(!settings.exists());
    // Hooks that were installed before the store was chosen.
    let program = json!({ "hooks": { "Stop": [{ "hooks": [
        { "type": "command", "command": PROGRAM, "args": ["hook"] }] }] } });
    fs::write(&settings, program.to_string()).unwrap();
    let status = cli.run(&["hooks", "status"]);
    assert!(status.code == 1 && status.stdout.contains("names a database server"), "{status:?}");
}

#[test]
fn hooks_can_be_posted_to_a_server() {
    let world = World::new();
    let install = ["hooks", "install", "--local", "--http", "http://127.0.0.1:7420/"];
    let file = world.settings().with_extension("local.json");
    world.cli.run(&[&install[..], &["--key", "shk_given"]].concat()).done();
    let settings: Value = serde_json::from_str(&read(&file)).unwrap();
    let hook = &settings["hooks"]["PreToolUse"][0]["hooks"][0];
    let expected = json!({ "type": "http", "url": "http://127.0.0.1:7420/hooks/claude",
                           "headers": { "Authorization": "Bearer shk_given" }, "timeout": 5 });
    assert_eq!(*hook, expected);
    assert!(settings["hooks"].get("SessionStart").is_none(), "Claude Code would not post it");
    assert_eq!(mode(&file), 0o600, "others can read the key");

    // The key that is there is kept; where there is none, one is made.
    let before = read(&file);
    world.cli.run(&install).done();
    assert_eq!(read(&file), before);
    world.cli.run(&["hooks", "uninstall", "--local"]).done();
    world.cli.run(&[&install[..], &["--dry-run"]].concat()).done();
    assert!(!world.folder.path().join("project/.shikiri").exists(), "a key was made");
    world.cli.run(&install).done();
    let made = read(&file);
    world.cli.run(&install).done();
    assert_eq!(read(&file), made, "another key was made");
    let keys = world.cli.run(&["keys", "list", "--json"]).done().json();
    assert_eq!(keys["items"].as_array().unwrap().len(), 1, "{keys}");
    // Programs instead: nothing of the server is left.
    world.cli.run(&["hooks", "install", "--local"]).done();
    assert!(!read(&file).contains("http"), "{}", read(&file));

    let shared =
        world.cli.run(&["hooks", "install", "--http", "http://h", "--key", "shk_k"]).done();
    assert!(shared.stderr.contains("version control"), "{}", shared.stderr);
    world.cli.run(&["hooks", "install", "--http", "h:1"]).refused(2, &["http://"]);
    world.cli.run(&["hooks", "install", "--key", "shk_k"]).refused(2, &["--http"]);
    let other = ["hooks", "install", "--http", "http://h", "--key", "secret"];
    let refused = world.cli.run(&other);
    assert!(!refused.stderr.contains("secret"), "{}", refused.stderr);
    refused.refused(2, &["no key", "secr…"]);
}

#[test]
fn status_tells_what_is_installed_where() {
    let world = World::new();
    let status = || world.cli.run(&["hooks", "status", "--json"]).done().json();
    assert_eq!(status()["installed"], false);
    world.cli.run(&["hooks", "install"]).done();
    let found = status();
    assert_eq!(found["installed"], true);
    assert_eq!(found["places"][0]["events"].as_array().unwrap().len(), 13);
    assert_eq!(found["places"][1]["calls"], Value::Null);
    assert_eq!(found["conventions"]["state"], "none");

    let plugin = json!({ "enabledPlugins": { "shikiri@shikiri": true }, "disableAllHooks": true });
    fs::create_dir(world.folder.path().join("home/.claude")).unwrap();
    let user = world.folder.path().join("home/.claude/settings.json");
    fs::write(user, plugin.to_string()).unwrap();
    let settings = read(world.settings());
    fs::write(world.settings(), settings.replace("\"SubagentStart\"", "\"Setup\"")).unwrap();
    let said = world.cli.run(&["hooks", "status"]);
    assert_eq!(said.code, 1);
    for words in ["the plugin", "more than once", "disableAllHooks", "no hook for SubagentStart"] {
        assert!(said.stdout.contains(words), "{words}: {}", said.stdout);
    }
}

/// A link that a repository brings could name any file of the user's; one that the user made may.
#[test]
fn a_link_out_of_the_project_that_git_tracks_is_not_followed() {
    let world = World::new();
    let project = world.folder.path().join("project");
    let secret = world.folder.path().join("credentials.json");
    fs::write(&secret, r#"{"key":"canary"}"#).unwrap();
    symlink(&secret, world.settings()).unwrap();
    let git = |words: &[&str]| {
        let done = Command::new("git").arg("-C").arg(&project).args(words).output().unwrap();
        assert!(done.status.success(), "git {words:?}");
    };
    git(&["init", "-q"]);
    git(&["add", "-A"]);
    world.cli.run(&["hooks", "install"]).refused(3, &["tracked by git", "--user"]);
    assert_eq!(read(&secret), r#"{"key":"canary"}"#);
    assert_eq!(world.files(), ["settings.json"]);
}
