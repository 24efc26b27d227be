//! The real Claude Code, both versions, calls the program by the names that `hooks install` writes
//! into the settings that a project shares.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use shikiri_sqlite::{DatabaseOptions, SqliteDatabase};
use shikiri_testkit::{ClaudeCli, FakeModel, Reply, claude_programs};

use crate::PROGRAM;

const PATIENCE: Duration = Duration::from_secs(60);

/// Installs hooks of this program, and returns the name in the settings.
fn install(cli: &ClaudeCli, program: &Path, path: &str) -> String {
    let mut install = Command::new(program);
    install.args(["hooks", "install"]).current_dir(cli.project());
    install.env("HOME", cli.home()).env("PATH", path).env_remove("CLAUDE_PROJECT_DIR");
    let done = install.output().unwrap();
    assert!(done.status.success() && done.stderr.is_empty(), "{done:?}");
    let settings = std::fs::read(cli.project().join(".claude/settings.json")).unwrap();
    let settings: Value = serde_json::from_slice(&settings).unwrap();
    settings["hooks"]["Stop"][0]["hooks"][0]["command"].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn claude_code_calls_the_program_by_its_shared_names() {
    let usual = std::env::var("PATH").unwrap_or_default();
    for claude in claude_programs() {
        for is_in_project in [false, true] {
            let model = FakeModel::start().await;
            let cli = ClaudeCli::new(&claude, &model).patience(PATIENCE);
            let cli = cli.env("CLAUDE_CODE_MAX_RETRIES", 0);
            let (cli, name) = if is_in_project {
                let tools = cli.project().join("my tools");
                std::fs::create_dir(&tools).unwrap();
                // Another process copies: a child of another test could inherit a writer of ours.
                let copied = Command::new("cp").arg(PROGRAM).arg(&tools).status().unwrap();
                assert!(copied.success());
                let name = install(&cli, &tools.join("shikiri"), &usual);
                assert_eq!(name, "${CLAUDE_PROJECT_DIR}/my tools/shikiri");
                (cli, name)
            } else {
                let programs = Path::new(PROGRAM).parent().unwrap().display();
                let path = format!("{programs}:{usual}");
                let name = install(&cli, Path::new(PROGRAM), &path);
                assert!(!name.contains('/'), "{name}");
                (cli.env("PATH", path), name)
            };
            model.script("挨拶せよ", [Reply::text("こんにちは")]);
            let ended = cli.print("挨拶せよ").await;
            assert_eq!(ended.result()["is_error"], false, "{ended:?}");
            let path = cli.project().join(".shikiri/state.db");
            let database = SqliteDatabase::open_reader(&path, &DatabaseOptions::default());
            let count = "SELECT count(*) FROM hook_log WHERE event_type = 'UserPromptSubmit'";
            let count: i64 = database.unwrap().query_row(count, [], |row| row.get(0)).unwrap();
            assert_eq!(count, 1, "{} does not call {name}", claude.display());
        }
    }
}
